"""Which NVIDIA devices this machine has, asked of nvidia-smi (no CUDA context, no torch)."""

from __future__ import annotations

import csv
import os
import re
import subprocess
from dataclasses import dataclass, replace

from capplan.errors import NotFoundError

_QUERY = "index,uuid,name,memory.total,mig.mode.current"
_TIMEOUT_SECONDS = 15.0
_HINT = "name a GPU of the catalog (`capplan gpus list`), or give --gpu-memory, --memory-bandwidth and --tflops"
_MIG_LINE = re.compile(r"\s+MIG (?P<profile>[1-7]g\.[0-9]+gb)\S*\s+Device\s+[0-9]+:\s+\(UUID: (?P<uuid>\S+)\)")


@dataclass(frozen=True)
class LocalDevice:
    """One device as the driver describes it; `memory_mib` is None where memory is shared with the CPU."""

    index: int
    uuid: str
    name: str
    memory_mib: int | None
    mig_profile: str | None = None


def local_devices() -> list[LocalDevice]:
    """The devices that a CUDA program started here would see, in the driver's order; MIG slices one by one.

    ``$CUDA_VISIBLE_DEVICES`` is obeyed, by index and by UUID.

    Raises:
        NotFoundError: no nvidia-smi, no device, none visible, or no answer in time.
    """
    devices = parse_devices(_nvidia_smi(f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"))
    if any(mig for _, mig in devices):
        devices_seen = parse_mig_devices(_nvidia_smi("-L"), [device for device, _ in devices])
    else:
        devices_seen = [device for device, _ in devices]
    visible = _visible(devices_seen, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if not visible:
        raise NotFoundError("no NVIDIA device is visible on this machine", where="--gpu auto", hint=_HINT)
    return visible


def parse_devices(text: str) -> list[tuple[LocalDevice, bool]]:
    """Devices from ``nvidia-smi --query-gpu`` output, each with whether it is cut into MIG slices."""
    devices = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if not row:
            continue
        if len(row) != len(_QUERY.split(",")) or not row[0].strip().isdigit():
            raise NotFoundError(f"nvidia-smi answered {', '.join(row)[:80]!r}", where="--gpu auto", hint=_HINT)
        index, uuid, name, memory, mig = (cell.strip() for cell in row)
        mib = int(memory) if memory.isdigit() else None
        devices.append((LocalDevice(int(index), uuid, name, mib), mig == "Enabled"))
    return devices


def parse_mig_devices(listing: str, gpus: list[LocalDevice]) -> list[LocalDevice]:
    """Devices from ``nvidia-smi -L``: a GPU with MIG slices is replaced by its slices."""
    slices: dict[int, list[LocalDevice]] = {}
    current: LocalDevice | None = None
    for line in listing.splitlines():
        if whole := re.match(r"GPU ([0-9]+):", line):
            current = next((gpu for gpu in gpus if gpu.index == int(whole.group(1))), None)
        elif current is not None and (mig := _MIG_LINE.match(line)):
            part = replace(current, uuid=mig["uuid"], memory_mib=None, mig_profile=mig["profile"])
            slices.setdefault(current.index, []).append(part)
    return [device for gpu in gpus for device in slices.get(gpu.index, [gpu])]


def _visible(devices: list[LocalDevice], setting: str | None) -> list[LocalDevice]:
    """What ``$CUDA_VISIBLE_DEVICES`` leaves: like CUDA, nothing after the first unknown entry."""
    if setting is None:
        return devices
    chosen: list[LocalDevice] = []
    for entry in setting.split(","):
        wanted = entry.strip()
        matches = [d for d in devices if (wanted.isdecimal() and d.index == int(wanted)) or _same_uuid(wanted, d.uuid)]
        if not matches:
            break
        chosen.append(matches[0])
    return chosen


def _same_uuid(wanted: str, uuid: str) -> bool:
    return wanted.upper().startswith(("GPU-", "MIG-")) and uuid.lower().startswith(wanted.lower())


def _nvidia_smi(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise NotFoundError("there is no nvidia-smi on this machine", where="--gpu auto", hint=_HINT) from None
    except subprocess.TimeoutExpired:
        message = f"nvidia-smi gave no answer in {_TIMEOUT_SECONDS:g} s"
        raise NotFoundError(message, where="--gpu auto", hint=_HINT) from None
    except OSError as error:
        message = f"nvidia-smi cannot be run: {error.strerror}"
        raise NotFoundError(message, where="--gpu auto", hint=_HINT) from None
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines()[:1]
        message = f"nvidia-smi failed: {reason[0][:120] if reason else f'exit {done.returncode}'}"
        raise NotFoundError(message, where="--gpu auto", hint=_HINT)
    return done.stdout
