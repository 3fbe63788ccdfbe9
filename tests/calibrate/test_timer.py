"""Repeats: what is marked, what is kept, and the clocks of a CPU and (by stand-ins) of a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibrate.repeats import Timing, mark, quantile

torch = pytest.importorskip("torch")

from calibrate import device as devices  # noqa: E402
from calibrate import other_programs, phase_timer, timer  # noqa: E402
from calibrate.device import conditions, open_device, provenance  # noqa: E402
from calibrate.kernels import launch  # noqa: E402
from capplan.errors import NotFoundError, UsageError  # noqa: E402

pytestmark = pytest.mark.torch


def test_percentiles_are_numpys() -> None:
    values = list(np.random.default_rng(0).exponential(size=31))
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        assert quantile(values, share) == pytest.approx(float(np.quantile(values, share)))


def test_outliers_are_kept_and_marked_and_do_not_move_the_median() -> None:
    repeats = [1.0, 1.01, 0.99, 1.0, 9.0, 1.02, 1.0]
    found = mark(repeats)
    assert found.repeats == tuple(repeats)
    assert found.marked == (4,)
    assert found.seconds == 1.0
    assert found.high < 1.03


def test_disturbed_repeats_are_marked_unless_too_few_would_be_left() -> None:
    found = mark([1.0, 5.0, 1.0, 1.0, 5.0], disturbed=[1, 4])
    assert found.marked == (1, 4)
    assert found.seconds == 1.0
    assert mark([1.0, 2.0, 3.0], disturbed=[0, 1]).seconds == 2.0


def test_equal_repeats_have_no_noise() -> None:
    assert Timing((2.0, 2.0, 2.0), ()).noise == 0
    assert mark([2.0] * 5).marked == ()


@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_a_call_of_known_length_is_timed(clock: str) -> None:
    device = open_device("cpu", threads=1, clock=clock)

    def spin(index: int) -> None:
        end = time.thread_time() + 0.002
        while time.thread_time() < end:
            pass

    found = timer.time_call(spin, device, budget=0.03)
    assert found.seconds >= 0.0019
    if clock == "cpu":
        assert found.seconds == pytest.approx(0.002, rel=0.2)
    assert len(found.repeats) >= timer.LEAST_REPEATS


def test_time_that_others_had_is_not_spent_by_the_processors_clock() -> None:
    for clock, least, most in (("cpu", 0.0, 0.04), ("wall", 0.05, 60.0)):
        device = open_device("cpu", threads=1, clock=clock)
        before = device.spent_seconds()
        time.sleep(0.05)
        assert least <= device.spent_seconds() - before <= most


def test_short_calls_are_timed_together_and_buffers_rotate() -> None:
    seen: list[int] = []
    timer.time_call(seen.append, open_device("cpu"), sets=3, budget=0.0)
    assert set(seen) == {0, 1, 2}
    assert seen[-3:] in ([0, 1, 2], [1, 2, 0], [2, 0, 1])


def test_the_processors_clock_is_for_one_thread() -> None:
    with pytest.raises(UsageError, match="all threads"):
        open_device("cpu", threads=2, clock="cpu")
    open_device("cpu", threads=1)


@pytest.mark.parametrize(("used", "threads", "clock"), [(1.5, 1, "cpu"), (0.1, None, "wall")])
def test_a_busy_machine_is_measured_by_the_processors_clock(
    used: float, threads: int | None, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "cores_in_use", lambda: used)
    device = open_device("cpu", clock="auto")
    assert device.clock == clock
    assert bool(device.note) == (clock == "cpu")
    if threads:
        assert device.threads == threads
        assert "1.5 cores busy" in device.note
    assert open_device("cpu", clock="wall").note == ""


def test_busy_cores_are_counted_from_the_systems_ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    texts = iter([
        "cpu 100 0 100 800 0 0 0 0 0 0\n", "cpu 110 0 100 890 0 0 0 0 0 0\n", "cpu 160 0 100 940 0 0 0 0 0 0\n",
        "cpu 160 0 100 1040 0 0 0 0 0 0\n",
    ])  # fmt: skip

    def read(path: Path, encoding: str) -> str:
        return next(texts)

    monkeypatch.setattr(other_programs, "_PROCESSOR_TIMES", stat)
    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert other_programs.cores_in_use(0.0, times=3) == pytest.approx(0.5 * 4)


def test_waiting_is_what_the_system_accounts_for_every_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for thread, text in (("7", "900 2000000 3\n"), ("8", "900 500000000 3\n"), ("9", "odd\n")):
        (tmp_path / thread).mkdir()
        (tmp_path / thread / "schedstat").write_text(text)
    monkeypatch.setattr(other_programs, "_THREADS", tmp_path)
    with other_programs.waiting() as waited:
        assert waited() == pytest.approx(0.502)
        (tmp_path / "8" / "schedstat").write_text("900 700000000 3\n")
        assert waited() == pytest.approx(0.702)
    monkeypatch.setattr(other_programs, "_THREADS", tmp_path / "nothing")
    with other_programs.waiting() as waited:
        assert waited() == 0


@pytest.mark.skipif(not Path("/proc/self/schedstat").is_file(), reason="the system keeps no account of waiting")
def test_threads_that_are_more_than_the_cores_wait_for_them() -> None:
    """Two processes on one core have half of it each, and wait for the other half."""
    core = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    rival = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
    )
    try:
        os.sched_setaffinity(0, {core})
        time.sleep(0.3)
        with other_programs.waiting() as waited:
            start, before_waiting, own = time.perf_counter(), waited(), time.thread_time()
            while time.perf_counter() - start < 0.5:
                pass
            seconds, share = time.perf_counter() - start, waited() - before_waiting
            assert share == pytest.approx(seconds - (time.thread_time() - own), abs=0.1 * seconds)
            assert other_programs.is_disturbed(share, seconds)
    finally:
        rival.kill()
        rival.wait()
        os.sched_setaffinity(0, before)


def test_disturbed_calls_are_repeated_until_three_were_left_in_peace(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter(range(10_000))
    monkeypatch.setattr(timer, "waiting", lambda: nullcontext(lambda: float(next(waits))))
    device = open_device("cpu", clock="wall")
    found = timer.time_call(lambda index: None, device, budget=0.0)
    assert len(found.repeats) == timer.PATIENCE * timer.LEAST_REPEATS
    assert set(found.marked) == set(range(len(found.repeats)))
    monkeypatch.setattr(timer, "waiting", lambda: nullcontext(lambda: 0.0))
    assert len(timer.time_call(lambda index: None, device, budget=0.0).repeats) == timer.LEAST_REPEATS


@pytest.mark.parametrize(
    ("disturbed", "repeats", "seconds"),
    [
        ([False] * 9, 3, 11.0),  # in peace, the usual time is enough
        ([True, True, False, True, False, False, False], 6, 14.0),  # those of 12, 14 and 15 s were left in peace
        ([True] * 9, 8, 13.5),  # never in peace: three times as long, then the median of all
    ],
)
def test_disturbed_phases_are_repeated_until_three_were_left_in_peace(
    disturbed: list[bool], repeats: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(100))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(clock)))
    runs = iter([(10.0 + number, pushed) for number, pushed in enumerate(disturbed)])
    (found,) = phase_timer.repeated(lambda: [next(runs)], budget=2.5)
    assert len(found.repeats) == repeats
    assert found.seconds == seconds


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("tpu", {}, UsageError),
        ("cpu", {"clock": "sun"}, UsageError),
        ("cuda:x", {}, UsageError),
    ],
)
def test_devices_that_cannot_be_are_refused(name: str, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        open_device(name, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told() -> None:
    with pytest.raises(NotFoundError) as found:
        open_device("cuda")
    assert found.value.hint == "--device cpu"


def test_provenance_names_device_and_software_and_nobody() -> None:
    facts = provenance(open_device("cpu"))
    assert facts["torch"] == torch.__version__
    assert facts["slug"].startswith("cpu-")
    assert not any(str(Path.home()) in value for value in facts.values())


# --- a GPU, by stand-ins -------------------------------------------------------------------------------------------


class _Event:
    """An event that records the time when it is recorded."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: _Event) -> float:
        return (other.at - self.at) * 1e3


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch with one CUDA device that computes nothing."""
    found = SimpleNamespace(
        name="NVIDIA Test 80GB", total_memory=80 << 30, multi_processor_count=100, L2_cache_size=50 << 20
    )
    replaced = {
        "is_available": lambda: True, "device_count": lambda: 1, "set_device": lambda index: None,
        "get_device_properties": lambda index: found, "get_device_capability": lambda index: (9, 0),
        "mem_get_info": lambda name: (70 << 30, 80 << 30), "synchronize": lambda name=None: None,
        "Event": _Event, "_sleep": lambda cycles: None,
    }  # fmt: skip
    for name, value in replaced.items():
        monkeypatch.setattr(torch.cuda, name, value, raising=False)
    return found


def test_a_gpu_is_opened_by_its_properties(gpu: Any) -> None:
    device = open_device("auto")
    assert (device.torch_name, device.kind, device.clock) == ("cuda:0", "cuda", "events")
    assert (device.cache_bytes, device.compute_units) == (50 << 20, 100)
    assert device.slug == "nvidia-test-80gb"
    assert device.free_bytes() == 70 << 30
    facts = provenance(device)
    assert facts["compute_capability"] == "9.0"
    assert "cuda" in facts
    with pytest.raises(NotFoundError, match="cuda:3"):
        open_device("cuda:3")
    with pytest.raises(UsageError, match="threads are for a CPU"):
        open_device("cuda", threads=2)
    with pytest.raises(UsageError, match="its own events"):
        open_device("cuda", clock="cpu")


def test_a_gpu_is_timed_between_its_events(gpu: Any) -> None:
    found = timer.time_call(lambda index: time.sleep(0.001), open_device("cuda"), budget=0.0)
    assert found.seconds >= 0.001


def test_the_drivers_word_on_clocks_is_noted(gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "nvidia-smi"
    script.write_text("#!/bin/sh\necho '1980, 2619, 41, [N/A]'\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    device = open_device("cuda")
    assert conditions(device) == {"clocks.sm": 1980.0, "clocks.mem": 2619.0, "temperature.gpu": 41.0}
    script.write_text("#!/bin/sh\nexit 9\n")
    assert conditions(device) == {}
    script.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert conditions(device) == {}


def test_work_is_captured_on_a_stream_of_its_own_after_two_runs(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import nullcontext

    calls: list[str] = []
    stream = SimpleNamespace(wait_stream=lambda other: calls.append("wait"))
    graph = SimpleNamespace(replay=lambda: calls.append("replay"))
    for name, value in {
        "Stream": lambda: stream, "current_stream": lambda: stream, "stream": lambda one: nullcontext(),
        "CUDAGraph": lambda: graph, "graph": lambda one: nullcontext(),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    replay = launch.captured(lambda: calls.append("body"))
    assert calls == ["wait", "body", "body", "wait", "body"]
    replay()
    assert calls[-1] == "replay"


def test_a_known_gpu_keeps_the_catalogs_figures(gpu: Any) -> None:
    from calibrate.hardware import catalog_entry

    gpu.name = "NVIDIA H100 80GB HBM3"
    facts = provenance(open_device("cuda"))
    entry = catalog_entry(facts)
    assert entry is not None
    assert entry.architecture == "hopper"
    assert catalog_entry({**facts, "device": "NVIDIA Nothing"}) is None
    assert catalog_entry({"device": "AMD EPYC"}) is None


def test_the_largest_cache_of_the_system_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, size in enumerate(("32K", "1024K", "33M", "x")):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        (folder / "size").write_text(size)
    monkeypatch.setattr(devices, "_CACHE_INDEX", tmp_path)
    assert replace(open_device("cpu")).cache_bytes == 33 << 20


def test_the_peak_of_a_phase_is_what_it_allocates_beside_what_was_there(
    gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibrate import phases
    from calibrate.phase_load import Load
    from capplan.describe.model import Attention, Block, Dense, Embedding, ModelSpec

    block = Block(mixer=Attention(heads=4, kv_heads=2, head_dim=16), ffn=Dense(intermediate_size=96))
    spec = ModelSpec(
        name="tiny", hidden_size=64, blocks={"a": block}, layers="2*a", embedding=Embedding(vocab_size=300)
    )
    device = replace(open_device("cuda"), torch_name="cpu")  # computes on the CPU, and is asked like a GPU
    there, used = 7_000_000, 9_000_000
    for name, value in {
        "reset_peak_memory_stats": None, "memory_allocated": there, "max_memory_allocated": used,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, lambda where, value=value: value)
    found = phases.run_phases(spec, Load(1, 8, 3), device, budget=0.0)
    assert found.peak_bytes == found.weight_bytes + found.cache_bytes + used - there
    peak = phases.expected_peak(found, "bf16")
    assert peak.low <= peak.bytes <= peak.high
    assert peak.low > found.weight_bytes + found.expected_bytes
