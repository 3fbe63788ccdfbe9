"""Headers over HTTP, from a real server on this machine that answers range requests."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from capplan.describe.checkpoint import HubCheckpoint, read_checkpoint
from capplan.describe.huggingface_cache import cached_snapshot, home_folder, hub_folder
from capplan.describe.remote import Hub, RemoteFile, is_offline, read_remote_text
from capplan.errors import InvalidFileError, NotFoundError, UsageError

BASE = "/org/model/resolve/main/"


def hub(server: Any, **more: object) -> Hub:
    return Hub(server.address, **more)  # type: ignore[arg-type]


def serve_shards(server: Any, shards: int = 3) -> int:
    weight_map, total = {}, 0
    for number in range(shards):
        arrays = {f"model.layers.{number}.mlp.up_proj.weight": np.zeros((500, 1000), np.float32)}
        file = f"model-{number}.safetensors"
        server.files[BASE + file] = save(arrays)
        weight_map |= dict.fromkeys(arrays, file)
        total += sum(array.nbytes for array in arrays.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    server.files[BASE + "model.safetensors.index.json"] = json.dumps(index).encode()
    return total


def test_a_sharded_checkpoint_by_its_headers_alone(server: Any) -> None:
    total = serve_shards(server)
    checkpoint = read_checkpoint(HubCheckpoint(hub(server), "org/model"))
    assert checkpoint.data_bytes == checkpoint.total_size == total
    assert checkpoint.bytes_by_component() == {"mlp": total}
    sent = server.bytes_asked - (32 << 20)  # the index is asked for whole, up to its cap
    assert sent <= 3 * (64 << 10)
    assert len(server.seen) == 4


def test_a_checkpoint_in_one_file(server: Any) -> None:
    server.files[BASE + "model.safetensors"] = save({"w": np.zeros(10, np.float16)})
    assert read_checkpoint(HubCheckpoint(hub(server), "org/model")).data_bytes == 20


def test_a_header_beyond_the_first_answer(server: Any) -> None:
    arrays = {f"model.layers.{index}.mlp.experts.{index}.up_proj.weight": np.zeros(2, np.int8) for index in range(3000)}
    server.files[BASE + "model.safetensors"] = save(arrays)
    assert len(read_checkpoint(HubCheckpoint(hub(server), "org/model")).tensors) == 3000
    assert [seen.range for seen in server.seen][-1].startswith("bytes=65536-")


def test_the_token_goes_to_the_hub_and_not_where_it_redirects(server: Any, elsewhere: Any) -> None:
    elsewhere.files["/cdn/file"] = b"hello"
    server.behaviour[BASE + "a"] = f"302 {elsewhere.address}/cdn/file"
    server.behaviour[BASE + "b"] = f"302 {BASE}c"
    server.files[BASE + "c"] = b"there"
    with_token = hub(server, token="secret")
    assert read_remote_text(with_token, with_token.address("org/model", "a"), 100) == "hello"
    assert server.seen[0].authorization == "Bearer secret"
    assert [seen.authorization for seen in elsewhere.seen] == [None]
    assert elsewhere.seen[0].range == "bytes=0-99"
    assert read_remote_text(with_token, with_token.address("org/model", "b"), 100) == "there"
    assert [seen.authorization for seen in server.seen[1:]] == ["Bearer secret"] * 2


def test_a_redirect_that_comes_back_through_another_host_gets_the_token_again_only_at_home(
    server: Any, elsewhere: Any
) -> None:
    server.behaviour[BASE + "a"] = f"302 {elsewhere.address}/x"
    elsewhere.behaviour["/x"] = f"302 {server.address}{BASE}b"
    server.files[BASE + "b"] = b"home"
    with_token = hub(server, token="secret")
    assert read_remote_text(with_token, with_token.address("org/model", "a"), 100) == "home"
    assert [seen.authorization for seen in elsewhere.seen] == [None]


def test_a_token_never_goes_to_an_address_outside_the_hub(server: Any, elsewhere: Any) -> None:
    elsewhere.files["/f"] = b"x"
    assert read_remote_text(hub(server, token="secret"), f"{elsewhere.address}/f", 10) == "x"
    assert elsewhere.seen[0].authorization is None


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://[bad/x", "gopher://x/"])
def test_redirects_to_other_schemes_are_refused(server: Any, target: str) -> None:
    server.behaviour[BASE + "a"] = f"302 {target}"
    with pytest.raises(NotFoundError):
        read_remote_text(hub(server), hub(server).address("org/model", "a"), 100)


def test_a_redirect_without_end(server: Any) -> None:
    server.behaviour[BASE + "a"] = f"302 {BASE}a"
    with pytest.raises(NotFoundError, match="302"):
        read_remote_text(hub(server), hub(server).address("org/model", "a"), 100)
    assert len(server.seen) < 10


@pytest.mark.parametrize(
    ("status", "hint"), [("401", "HF_TOKEN"), ("403", "gated"), ("404", ""), ("429", "later"), ("503", "later")]
)
def test_refusals(server: Any, status: str, hint: str) -> None:
    server.behaviour[BASE + "a"] = status
    with pytest.raises(NotFoundError, match=status) as caught:
        read_remote_text(hub(server), hub(server).address("org/model", "a"), 100)
    assert hint in caught.value.hint
    assert caught.value.exit_code == 3


def test_a_missing_checkpoint(server: Any) -> None:
    with pytest.raises(NotFoundError, match="404"):
        read_checkpoint(HubCheckpoint(hub(server), "org/model"))


@pytest.mark.parametrize(
    ("fault", "message"),
    [("no-range", "range requests"), ("wrong-range", "another range"), ("short", "ended early|in time|reached")],
)
def test_faulty_answers(server: Any, fault: str, message: str) -> None:
    server.files[BASE + "model.safetensors"] = save({"w": np.zeros(100_000, np.float32)})
    server.behaviour[BASE + "model.safetensors"] = fault
    with pytest.raises((InvalidFileError, NotFoundError), match=message):
        read_checkpoint(HubCheckpoint(hub(server, timeout=2.0), "org/model"))


def test_a_small_file_from_a_server_without_ranges(server: Any) -> None:
    server.files[BASE + "config.json"] = b"{}"
    server.behaviour[BASE + "config.json"] = "no-range"
    assert read_remote_text(hub(server), hub(server).address("org/model", "config.json"), 100) == "{}"


def test_empty_and_oversized_files(server: Any) -> None:
    server.files |= {BASE + "empty": b"", BASE + "large": b"x" * 200}
    assert read_remote_text(hub(server), hub(server).address("org/model", "empty"), 100) == ""
    with pytest.raises(InvalidFileError, match="longer than 100"):
        read_remote_text(hub(server), hub(server).address("org/model", "large"), 100)


def test_no_answer_in_time(server: Any) -> None:
    server.files[BASE + "a"] = b"slow"
    server.behaviour[BASE + "a"] = "slow"
    with pytest.raises(NotFoundError, match="in time"):
        RemoteFile(hub(server, timeout=0.05), hub(server).address("org/model", "a"), 10)


def test_nobody_there() -> None:
    with pytest.raises(NotFoundError, match="cannot be reached") as caught:
        read_remote_text(Hub("http://127.0.0.1:1"), "http://127.0.0.1:1/x", 10)
    assert "HF_ENDPOINT" in caught.value.hint


def test_offline_is_obeyed_before_anything_is_asked(server: Any) -> None:
    with pytest.raises(NotFoundError, match="HF_HUB_OFFLINE") as caught:
        read_remote_text(hub(server, offline=True), hub(server).address("org/model", "a"), 100)
    assert "cache" in caught.value.hint
    assert server.seen == []
    assert is_offline({"HF_HUB_OFFLINE": "ON"})
    assert not is_offline({"HF_HUB_OFFLINE": "0"})


def test_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" from-file \n")
    found = Hub.from_environment({"HF_ENDPOINT": "https://mirror.example/", "HF_HOME": str(tmp_path)})
    assert (found.endpoint, found.token, found.offline) == ("https://mirror.example", "from-file", False)
    assert Hub.from_environment({"HF_TOKEN": "t", "HF_HOME": str(tmp_path)}).token == "t"
    assert Hub.from_environment({"HF_HOME": str(tmp_path / "none")}).token == ""
    assert Hub.from_environment({"HF_TOKEN": "two words\r\nX: y", "HF_HOME": str(tmp_path)}).token == ""
    assert "secret" not in repr(Hub(token="secret"))
    for bad in ("ftp://x", "nonsense", "http://", "http://h:port"):
        with pytest.raises(UsageError):
            Hub.from_environment({"HF_ENDPOINT": bad})


@pytest.mark.parametrize("name", ["../x", "a/b/c", "a/../b", "", "a b", "a/b?x", "-x/y", "http://x/y"])
def test_names_that_are_no_repository(name: str) -> None:
    with pytest.raises(UsageError):
        Hub().address(name, "config.json")


def test_addresses_are_quoted() -> None:
    assert Hub().address("org/m", "a b/ü#?.json", "refs/pr/1") == (
        "https://huggingface.co/org/m/resolve/refs%2Fpr%2F1/a%20b/%C3%BC%23%3F.json"
    )
    with pytest.raises(UsageError):
        Hub().address("org/m", "x", "../main")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_the_local_cache(tmp_path: Path) -> None:
    environment = {"HF_HUB_CACHE": str(tmp_path)}
    folder = tmp_path / "models--org--model"
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    assert cached_snapshot("org/model", environment=environment) == folder / "snapshots" / COMMIT
    (folder / "snapshots" / COMMIT.replace("0", "f")).mkdir()
    assert cached_snapshot("org/model", environment=environment) is None
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    assert cached_snapshot("org/model", environment=environment) == folder / "snapshots" / COMMIT
    assert cached_snapshot("org/model", COMMIT, environment) == folder / "snapshots" / COMMIT
    assert cached_snapshot("org/model", "v1", environment) is None
    (folder / "refs" / "main").write_text("../../../etc")
    assert cached_snapshot("org/model", "../../x", environment) is None
    for other in ("org/other", "../model", "model", "a/b/c"):
        assert cached_snapshot(other, environment=environment) is None


def test_where_the_cache_is() -> None:
    assert hub_folder({"HF_HOME": "/h"}) == Path("/h/hub")
    assert hub_folder({"HUGGINGFACE_HUB_CACHE": "/c"}) == Path("/c")
    assert home_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/huggingface")
    assert home_folder({}) == Path.home() / ".cache/huggingface"
