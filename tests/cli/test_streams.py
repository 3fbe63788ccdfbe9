"""Standard output as machines have it: encodings without our letters, readers that leave, disks that are full."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from capplan.cli.app import run
from capplan.cli.streams import PLAIN

KV = ["kv", "--model", "gemma-3-27b", "--seq", "8k"]
FULL = Path("/dev/full")


def started(argv: list[str], **streams: object) -> subprocess.CompletedProcess[str]:
    code = f"import sys; from capplan.cli.app import run; sys.exit(run({argv!r}))"
    return subprocess.run([sys.executable, "-c", code], text=True, check=False, **streams)  # type: ignore[call-overload, no-any-return]


def on(encoding: str, argv: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The exit code and what standard output got, in an encoding."""
    kept = io.BytesIO()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", io.TextIOWrapper(kept, encoding=encoding))
        code = run(argv)
        sys.stdout.flush()
        return code, kept.getvalue().decode(encoding)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-16"])
@pytest.mark.parametrize("shape", [["--explain"], ["--json", "--explain"], ["--csv"], ["--help"]])
def test_every_encoding_can_carry_an_answer(encoding: str, shape: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = on(encoding, [*KV, *shape], monkeypatch)
    assert code == 0
    assert text.strip()
    assert "\\u" not in text or shape[0] == "--json"


def test_a_document_has_the_same_bytes_on_every_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {on(encoding, [*KV, "--json", "--explain"], monkeypatch)[1] for encoding in ("ascii", "latin-1", "utf-8")}
    assert len(texts) == 1
    assert "L · B · entries" in json.loads(texts.pop())["explanation"][0]["formula"]


def test_what_an_encoding_lacks_is_written_in_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    text = on("ascii", [*KV, "--explain"], monkeypatch)[1]
    assert "L * B * entries * elements * b" in text
    assert "sum of the above" in text
    assert "L · B · entries" in on("latin-1", [*KV, "--explain"], monkeypatch)[1], "what an encoding has is kept"
    assert all(character not in "".join(PLAIN.values()) for character in PLAIN)
    "".join(PLAIN.values()).encode("ascii")


def test_letters_of_names_and_bytes_of_no_encoding_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of the user's is shown as near as ASCII gets: accents off, Greek by name, the rest by number."""
    asked = ["kv", "--model", "./é-α-中-\udcff.yaml", "--seq", "1", "--json"]
    code, text = on("ascii", asked, monkeypatch)
    assert code == 3
    assert "é-α-中-\udcff" in json.loads(text)["error"]["message"]
    stderr = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(stderr, encoding="ascii"))
    assert run(asked[:-1]) == 3
    sys.stderr.flush()
    assert b"e-alpha-\\u4e2d-\\udcff" in stderr.getvalue()


def test_a_terminal_of_ascii_gets_tables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, text = on("ascii", [*KV, "--explain"], monkeypatch)
    assert code == 0
    assert "\x1b[" in text


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["gpus", "list", "--json"], 0),
        (["gpus", "list"], 0),
        (["--help"], 0),
        (["kv", "--help"], 0),
        (["--version"], 0),
        ([], 0),
        (["prices"], 0),
        (["cost", "--json"], 2),
        (["gpus", "show", "h10", "--json"], 3),
        (["fit", "--model", "llama3.1-70b", "--gpu", "l4", "--check"], 1),
    ],
)
@pytest.mark.parametrize("color", ["", "1"])
def test_a_reader_that_leaves_changes_nothing(argv: list[str], code: int, color: str) -> None:
    read, written = os.pipe()
    os.close(read)
    done = started(argv, stdout=written, stderr=subprocess.PIPE, env=os.environ | {"FORCE_COLOR": color})
    os.close(written)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    "argv", [["prices", "list"], ["prices", "list", "--json"], ["--help"], ["kv", "--help"], ["--version"], []]
)
def test_a_full_disk_is_one_clear_block(argv: list[str]) -> None:
    with FULL.open("w") as full:
        done = started(argv, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: the answer cannot be written: no space left on device",
        "  where: standard output",
        "  hint:  write it where there is room",
    ]


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
def test_an_error_that_has_no_room_as_json_is_told_all_the_same() -> None:
    with FULL.open("w") as full:
        done = started(["gpus", "show", "h10", "--json"], stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 3
        assert done.stderr.startswith("error: there is no GPU named 'h10'")
        assert started(["gpus", "show", "h10"], stdout=subprocess.PIPE, stderr=full).returncode == 3


def test_streams_may_be_closed() -> None:
    done = subprocess.run(
        f'"{sys.executable}" -c "from capplan.cli.app import run; import sys; sys.exit(run([\'gpus\', \'list\']))" >&- 2>&-',
        shell=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0


words = str.split
NO_PLAN = words("plan --model llama3.1-8b --gpu h100 --isl 1k --osl 99 --concurrency 8 --ttft 1ms --on 2026-11-29")


@pytest.mark.parametrize("where", ["-", "drawn.svg"])
def test_the_answer_is_there_though_there_is_nothing_to_draw(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*NO_PLAN, "--plot", where]) == 2
    out, err = capsys.readouterr()
    assert "no deployment holds the limits" in out
    assert "too late a first token" in out
    assert err.startswith("error: nothing to draw")
    assert not (tmp_path / "drawn.svg").exists()


def test_a_document_stays_one_document_when_its_drawing_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*NO_PLAN, "--plot", str(tmp_path / "drawn.svg"), "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["result"]["plans"] == []
    assert err.startswith("error: nothing to draw")


def test_a_drawing_without_a_place_is_refused_before_anything_is_worked_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for plot, more in (("drawn.pdf", []), ("-", ["--json"]), ("-", ["--csv"])):
        assert run([*NO_PLAN, "--plot", plot, *more]) == 2
        out, err = capsys.readouterr()
        assert (json.loads(out)["error"]["where"] if more == ["--json"] else err.split("where: ")[1][:6]) == "--plot"


def test_tables_for_programs_say_on_the_other_stream_what_may_mislead(capsys: pytest.CaptureFixture[str]) -> None:
    load = "--isl 1k --osl 9 --concurrency 1 --price-per-gpu-hour 1"
    assert run(words(f"sweep --model llama3.1-8b --gpu h100 -tp 3 {load} --csv")) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert "no -tp 3 (2)" in err
