"""The device that is measured: what it is, how much memory and cache it has, what it says about its state."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from calibrate.other_programs import cores_in_use
from capplan.errors import NotFoundError, UsageError

DeviceKind = Literal["cpu", "cuda"]
Clock = Literal["wall", "cpu", "events"]

DEFAULT_CACHE_BYTES = 32 << 20
"""Last-level cache where the system does not tell."""

BUSY_CORES = 0.2
"""Cores that other programs may keep busy before a wall's clock measures them as well."""

_CACHE_INDEX = Path("/sys/devices/system/cpu/cpu0/cache")
_CONDITIONS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
_SMI_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class Device:
    """One device as torch addresses it.

    Args:
        torch_name: ``cpu`` or ``cuda:0``.
        kind: cpu or cuda.
        title: what the driver or the system calls it.
        threads: threads that torch computes with on a CPU; 0 on a GPU.
        clock: what a second is: of the wall, of the processor (one thread only), or between the device's own events.
        cache_bytes: the last-level cache.
        memory_bytes: all memory.
        compute_units: streaming multiprocessors, or the threads of a CPU.
        note: what was chosen for the user, and why.
    """

    torch_name: str
    kind: DeviceKind
    title: str
    threads: int
    clock: Clock
    cache_bytes: int
    memory_bytes: int
    compute_units: int
    note: str = ""

    @property
    def slug(self) -> str:
        """The device's name as a file may have it: ``cpu-amd-epyc``."""
        words = "-".join(re.findall(r"[a-z0-9]+", self.title.lower())[:12])
        return f"cpu-{words}" if self.kind == "cpu" else words

    def synchronise(self) -> None:
        """Wait until the device has done everything that it was asked."""
        if self.kind == "cuda":
            torch.cuda.synchronize(self.torch_name)

    def spent_seconds(self) -> float:
        """A clock of the time that a run has spent: of the processor where that is what counts, else of the wall."""
        return time.process_time() if self.clock == "cpu" else time.perf_counter()

    def free_bytes(self) -> int:
        """Memory that is free now."""
        if self.kind == "cuda":
            return int(torch.cuda.mem_get_info(self.torch_name)[0])
        return _available_memory()


def open_device(name: str = "auto", *, threads: int | None = None, clock: str = "wall") -> Device:
    """The device of a name: ``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or ``cuda:1``.

    Args:
        name: of the device.
        threads: of a CPU; None: as many as torch takes.
        clock: ``wall``, ``cpu``, or ``auto``: that of the wall, unless other programs keep the CPU busy.

    Raises:
        NotFoundError: torch sees no such device.
        UsageError: not a device, or a clock that it doesn't have.
    """
    wanted = name.strip().lower()
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cpu":
        return _open_cpu(threads, clock)
    match = re.fullmatch(r"cuda(?::([0-9]{1,3}))?", wanted)
    if match is None:
        raise UsageError(f"{name[:40]!r} is not a device", where="--device", hint="auto, cpu, cuda or cuda:1")
    return _open_cuda(int(match[1] or 0), threads, clock)


def _open_cpu(threads: int | None, clock: str) -> Device:
    if clock not in ("auto", "wall", "cpu"):
        raise UsageError(f"a CPU has no clock {clock[:20]!r}", where="--clock", hint="auto, wall or cpu")
    note = ""
    if clock == "auto":
        others = cores_in_use()
        clock = "cpu" if others > BUSY_CORES and threads in (None, 1) else "wall"
        if clock == "cpu":
            threads = 1
            note = (
                f"other programs keep {others:.1f} cores busy, so that one thread is measured, by the processor's own "
                "clock, which --minutes is then of; --clock wall insists on the wall's"
            )
    used = threads or torch.get_num_threads()
    if clock == "cpu" and used != 1:
        raise UsageError(
            "the processor's own clock counts all threads together", where="--clock", hint="add --threads 1"
        )
    cores = os.cpu_count() or used
    if used > cores:
        raise UsageError(f"{used} threads are more than the {cores} cores of this machine", where="--threads")
    torch.set_num_threads(used)
    keep_freed_memory()
    found: Any = clock
    return Device("cpu", "cpu", _cpu_title(), used, found, _cpu_cache_bytes(), _total_memory(), used, note)


def check_modes(device: Device, modes: Sequence[str]) -> None:
    """Return if a model's kernels can be launched in these ways.

    Raises:
        UsageError: graphs are CUDA's.
    """
    if "graphs" in modes and device.kind == "cpu":
        raise UsageError("a CPU has no CUDA graphs", where="--mode", hint="eager or compile")


def _open_cuda(index: int, threads: int | None, clock: str) -> Device:
    if not torch.cuda.is_available():
        raise NotFoundError("torch sees no CUDA device on this machine", where="--device", hint="--device cpu")
    if index >= torch.cuda.device_count():
        raise NotFoundError(
            f"there is no cuda:{index}; torch sees {torch.cuda.device_count()} devices", where="--device"
        )
    if threads is not None:
        raise UsageError("threads are for a CPU", where="--threads", hint="leave it out, or --device cpu")
    if clock not in ("auto", "wall", "events"):
        raise UsageError("a GPU is timed by its own events", where="--clock", hint="leave it out")
    torch.cuda.set_device(index)
    found = torch.cuda.get_device_properties(index)
    cache = int(getattr(found, "L2_cache_size", 0)) or DEFAULT_CACHE_BYTES
    return Device(
        f"cuda:{index}", "cuda", found.name, 0, "events", cache, int(found.total_memory), found.multi_processor_count
    )


def provenance(device: Device) -> dict[str, str]:
    """What a measurement must say about where it was made: device, driver, software; nothing about its user."""
    from capplan import __version__

    facts = {
        "device": device.title,
        "clock": device.clock,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "capplan": __version__,
        "slug": device.slug,
        "memory_bytes": str(device.memory_bytes),
        "compute_units": str(device.compute_units),
    }
    if device.kind == "cuda":
        index = int(device.torch_name.partition(":")[2])
        facts["cuda"] = str(torch.version.cuda or torch.version.hip or "unknown")
        facts["driver"] = _nvidia_smi("driver_version", index) or "unknown"
        facts["compute_capability"] = ".".join(map(str, torch.cuda.get_device_capability(index)))
    else:
        facts["threads"] = str(device.threads)
        facts["instructions"] = str(torch.backends.cpu.get_cpu_capability())
    return facts


def conditions(device: Device) -> dict[str, float]:
    """The state of the device now: clocks, temperature and power of a GPU, load of a CPU; untold ones are absent."""
    if device.kind == "cuda":
        answer = _nvidia_smi(",".join(_CONDITIONS), int(device.torch_name.partition(":")[2]))
        cells = [cell.strip() for cell in answer.split(",")] if answer else []
        return {name: float(cell) for name, cell in zip(_CONDITIONS, cells, strict=False) if _is_number(cell)}
    try:
        return {"load": round(os.getloadavg()[0], 2)}
    except (OSError, AttributeError):
        return {}


def keep_freed_memory() -> None:
    """Ask the C library to keep freed blocks, as a GPU's caching allocator does.

    Otherwise every large intermediate of an eager step is mapped and its pages zeroed anew, which measures the
    operating system. Does nothing where the library is not glibc.
    """
    import ctypes
    import ctypes.util

    name = ctypes.util.find_library("c")
    if platform.system() != "Linux" or name is None:
        return
    library = ctypes.CDLL(name)
    if hasattr(library, "mallopt"):
        trim_threshold, most_mappings = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
        library.mallopt(most_mappings, 0)
        library.mallopt(trim_threshold, (1 << 31) - 1)


def _nvidia_smi(query: str, index: int) -> str:
    """The driver's answer, or nothing."""
    command = ["nvidia-smi", f"--query-gpu={query}", f"--id={index}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SMI_TIMEOUT_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cpu_title() -> str:
    """The processor's model as the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"(?m)^model name\s*:\s*(.+)$", text):
            return found[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def _cpu_cache_bytes() -> int:
    """The largest cache that the system lists for the first core."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    found = [0]
    for file in _CACHE_INDEX.glob("index*/size"):
        try:
            text = file.read_text(encoding="ascii").strip()
            found.append(int(text[:-1]) * units[text[-1]])
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return max(found) or DEFAULT_CACHE_BYTES


def _total_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 8 << 30


def _available_memory() -> int:
    """What Linux says is available; elsewhere half of everything."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace")
        if found := re.search(r"(?m)^MemAvailable:\s+([0-9]+) kB$", text):
            return int(found[1]) << 10
    except OSError:
        pass
    return _total_memory() // 2
