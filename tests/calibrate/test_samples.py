"""Samples on disk: appended as they come, none lost, none twice, whatever ends the run."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibrate.samples import Sample, read_samples, recording
from capplan.errors import InvalidFileError, NotFoundError, UsageError

FACTS = {"device": "x", "torch": "2.0"}
SETTINGS: dict[str, Any] = {"minutes": 1.0, "points": None, "seed": 0}


def sample(number: int = 0) -> Sample:
    shape = {"m": float(number), "n": 2.0}
    return Sample("kernel", "gemm", {"format": "bf16"}, shape, "cold", 1e-3, 0.9e-3, 1.1e-3, (1e-3, 1.1e-3), (1,))


def write(path: Path, *numbers: int, resume: bool = False) -> list[str]:
    with recording(path, FACTS, SETTINGS, resume=resume) as recorder:
        for number in numbers:
            recorder.add(sample(number))
        return [one.identity for one in recorder.samples]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.jsonl"
    write(path, 1, 2, 3)
    found = read_samples(path)
    assert found.samples == (sample(1), sample(2), sample(3))
    assert found.provenance == FACTS
    assert found.settings == SETTINGS


def test_resuming_keeps_what_is_there_and_takes_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, 1, 2)
    assert len(write(path, 2, 3, 3, resume=True)) == 3
    assert [one.shape["m"] for one in read_samples(path).samples] == [1, 2, 3]


@pytest.mark.parametrize("cut", [1, 5, 40, 100])
def test_a_torn_last_line_is_dropped_and_measured_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "s.jsonl"
    write(path, 1, 2, 3)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert len(read_samples(path).samples) == 2
    write(path, 3, resume=True)
    assert path.read_bytes() == whole


def test_a_torn_heading_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"schema":1,"prov')
    write(path, 1, resume=True)
    assert len(read_samples(path).samples) == 1


def test_an_existing_file_is_not_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, 1)
    with pytest.raises(UsageError, match="there already") as error:
        write(path, 2)
    assert "--resume" in error.value.hint


@pytest.mark.parametrize(
    ("facts", "settings", "said"),
    [
        ({**FACTS, "torch": "3.0"}, SETTINGS, "torch 2.0, and this is 3.0"),
        (FACTS, {**SETTINGS, "seed": 1}, "seed 0, and this is 1"),
    ],
)
def test_another_device_or_setting_is_not_mixed_in(tmp_path: Path, facts: Any, settings: Any, said: str) -> None:
    path = tmp_path / "s.jsonl"
    write(path, 1)
    with pytest.raises(UsageError, match=said), recording(path, facts, settings, resume=True):
        pass


def test_a_run_may_be_resumed_for_longer(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, 1, 2)
    with recording(path, FACTS, {**SETTINGS, "minutes": 5.0, "points": 9}, resume=True) as recorder:
        assert len(recorder.samples) == 2
    assert read_samples(path).settings == SETTINGS


PHASE = {
    "kind": "phase", "name": "m", "key": {"phase": "decode", "mode": "eager", "runner": "stack", "format": "bf16"},
    "shape": {"batch": 1, "prompt": 8, "new": 2, "layers": 2},
    "figures": {"cache_bytes": 4, "expected_cache_bytes": 4, "peak_bytes": 0},
}  # fmt: skip
MESSAGE = {
    "kind": "collective", "name": "all_reduce", "shape": {"bytes": 1024.0},
    "key": {"collective": "all_reduce", "gpus": 2, "library": "gloo"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seconds": 0}, "seconds"),
        ({"seconds": "1"}, "seconds"),
        ({"seconds": True}, "seconds"),
        ({"low": 2.0}, "no sample"),
        ({"repeats": []}, "repeats"),
        ({"repeats": [1.0, -1.0]}, "repeats"),
        ({"kind": "kernels"}, "kind"),
        ({"name": None}, "name"),
        ({"key": {"format": ["bf16"]}}, "key"),
        ({"shape": {"m": "many"}}, "shape"),
        ({"shape": {"m": -1}}, "shape"),
        ({"flops": 1e31}, "flops"),
        ({"conditions": 3}, "conditions"),
        ({"started": "yesterday"}, "started"),
        ({"speed": 3}, "speed"),
        ({"key": None}, "key"),
        (PHASE | {"shape": {**PHASE["shape"], "layers": 1.5}}, "no whole layers"),  # type: ignore[dict-item]
        (PHASE | {"shape": {"batch": 1, "prompt": 8, "layers": 2}}, "no whole new"),
        (PHASE | {"key": {**PHASE["key"], "mode": "fast"}}, "no known mode"),  # type: ignore[dict-item]
        (PHASE | {"figures": {"cache_bytes": 4, "peak_bytes": 0}}, "no figure expected_cache_bytes"),
        (MESSAGE | {"shape": {}}, "ranks or bytes"),
        (MESSAGE | {"name": "all_gather"}, "ranks or bytes"),
    ],
)
def test_lines_that_are_no_samples_are_refused_with_their_place(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    path = tmp_path / "s.jsonl"
    write(path, 1, 2)
    lines = path.read_text().splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), **changes})
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InvalidFileError, match=said) as error:
        read_samples(path)
    assert error.value.where == f"{path}:3"


@pytest.mark.parametrize("whole", [PHASE, MESSAGE])
def test_phases_and_collectives_are_read(tmp_path: Path, whole: dict[str, Any]) -> None:
    path = tmp_path / "s.jsonl"
    write(path, 1)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], json.dumps({**json.loads(lines[1]), **whole})]) + "\n")
    assert read_samples(path).samples[0].name == whole["name"]


def test_links_are_written_to_and_devices_are_neither_replaced_nor_read(tmp_path: Path) -> None:
    from calibrate.files import write_whole

    target, link = tmp_path / "target.yaml", tmp_path / "link.yaml"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    write_whole(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(InvalidFileError, match="device"):
        read_samples(Path("/dev/zero"))


def test_two_runs_do_not_write_to_one_file(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    path = tmp_path / "s.jsonl"
    with recording(path, FACTS, SETTINGS, resume=False), pytest.raises(UsageError, match="another run"):
        write(path, 1, resume=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told() -> None:
    with pytest.raises(InvalidFileError, match="No space left") as error:
        write(Path("/dev/full"), 1, resume=True)
    assert "--resume" in error.value.hint


def test_a_disk_that_fills_up_leaves_only_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.jsonl"
    write(path, 1)
    real, calls = os.write, []

    def full(descriptor: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            real(descriptor, data[:20])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    with recording(path, FACTS, SETTINGS, resume=True) as recorder:
        monkeypatch.setattr("calibrate.samples.os.write", full)
        recorder.add(sample(2))
        with pytest.raises(InvalidFileError, match="No space left"):
            recorder.add(sample(3))
        monkeypatch.undo()
    assert [one.shape["m"] for one in read_samples(path).samples] == [1, 2]
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("folder", ["/proc/nowhere", "/sys/kernel"])
def test_a_read_only_folder_is_told(folder: str) -> None:
    if not Path(folder).parent.exists():
        pytest.skip("needs Linux")
    with pytest.raises(InvalidFileError, match="cannot be written"):
        write(Path(folder) / "s.jsonl", 1)


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(InvalidFileError, match="cannot be written"):
        write(tmp_path / "a" / "s.jsonl", 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no samples"),
        ("hello\n", "no JSON object"),
        ('{"schema": 2, "provenance": {}}\n', "not a file of samples"),
        ('{"schema": 1, "provenance": {}}\n{"kind": "kernel"}\n', "no sample"),
        ('{"schema": 1, "provenance": {}}\n[1]\n', "no JSON object"),
    ],
)
def test_what_is_no_file_of_samples_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidFileError, match=said):
        read_samples(path)


def test_impossible_samples_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, 1)
    data = json.loads(path.read_text().splitlines()[1])
    for change in ({"seconds": -1.0}, {"low": 2.0}, {"repeats": []}, {"colour": "red"}):
        path.write_text(path.read_text().splitlines()[0] + "\n" + json.dumps({**data, **change}) + "\n")
        with pytest.raises(InvalidFileError, match="no sample"):
            read_samples(path)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_samples(tmp_path / "nothing.jsonl")


_KILLED = """
import sys, time
sys.path.insert(0, {root!r}); sys.path.insert(0, {here!r})
from pathlib import Path
from test_samples import FACTS, SETTINGS, sample
from calibrate.samples import recording
with recording(Path({path!r}), FACTS, SETTINGS, resume=True) as recorder:
    print("ready", flush=True)
    for number in range(60):
        if not recorder.has(sample(number).identity):
            time.sleep(0.002)
            recorder.add(sample(number))
"""


@pytest.mark.parametrize("after", [0.01, 0.05, 0.12])
def test_a_killed_run_that_is_resumed_has_the_same_samples(tmp_path: Path, after: float) -> None:
    path = tmp_path / "s.jsonl"
    here = Path(__file__)
    code = _KILLED.format(root=str(here.parents[2]), here=str(here.parent), path=str(path))
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    numbers = [one.shape["m"] for one in read_samples(path).samples]
    assert numbers == list(range(60))


def test_identities_tell_cases_apart() -> None:
    one = sample(1)
    others = [
        replace(one, name="gemm_fp8"), replace(one, key={"format": "fp32"}), replace(one, cache="warm"),
        replace(one, shape={**one.shape, "m": 2.0}),
    ]  # fmt: skip
    assert len({one.identity, *(other.identity for other in others)}) == 5
    assert replace(one, seconds=5.0).identity == one.identity
