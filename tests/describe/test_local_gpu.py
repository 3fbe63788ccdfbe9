"""`--gpu auto` against a stand-in for nvidia-smi that prints what real drivers print."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from capplan.describe import local_gpu
from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.local_gpu import LocalDevice, local_devices, parse_devices
from capplan.errors import NotFoundError

H100 = "0, GPU-aaaa, NVIDIA H100 80GB HBM3, 81559, Disabled"
TWO = f"{H100}\n1, GPU-bbbb, NVIDIA GeForce RTX 4090, 24564, [N/A]"
MIG = "0, GPU-cccc, NVIDIA A100-SXM4-80GB, 81920, Enabled"
MIG_LISTING = """GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-cccc)
  MIG 3g.40gb     Device  0: (UUID: MIG-1111)
  MIG 1g.10gb     Device  1: (UUID: MIG-2222)
"""


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Puts an nvidia-smi on the path that prints what it is told to."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(answer: str, listing: str = "", code: int = 0, sleep: float = 0.0) -> None:
        (tmp_path / "answer").write_text(answer)
        (tmp_path / "listing").write_text(listing)
        script = f'#!/bin/sh\n/bin/sleep {sleep}\nif [ "$1" = -L ]; then /bin/cat {tmp_path}/listing\n'
        script += f"else /bin/cat {tmp_path}/answer; fi\nexit {code}\n"
        program = tmp_path / "nvidia-smi"
        program.write_text(script)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(tmp_path))

    return install


def test_the_local_device_is_found_in_the_catalog(nvidia_smi) -> None:  # type: ignore[no-untyped-def]
    nvidia_smi(H100)
    assert load_gpu("auto") == load_gpu("h100")
    assert load_gpu("AUTO").name == "h100-sxm-80gb"


def test_the_machine_is_right_about_its_memory(nvidia_smi) -> None:  # type: ignore[no-untyped-def]
    nvidia_smi("0, GPU-a, Tesla V100-SXM2-16GB, 16160, [N/A]")
    spec = load_gpu("auto")
    assert (spec.name, spec.memory.usable_mib, spec.memory.engine_bytes_basis) == ("v100-sxm-16gb", 16160, "usable_mib")


def test_unified_memory_has_no_figure(nvidia_smi) -> None:  # type: ignore[no-untyped-def]
    nvidia_smi("0, GPU-a, NVIDIA GB10, [N/A], [N/A]")
    assert load_gpu("auto") == load_gpu("gb10")


def test_mig_slices_are_devices_of_their_own(nvidia_smi, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    nvidia_smi(MIG, MIG_LISTING)
    assert [device.mig_profile for device in local_devices()] == ["3g.40gb", "1g.10gb"]
    assert load_gpu("auto") == load_gpu("a100-mig-3g.40gb")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2222")
    assert load_gpu("auto") == load_gpu("a100-mig-1g.10gb")


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("0,1", ["NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090"]),
        ("1", ["NVIDIA GeForce RTX 4090"]),
        ("1,0", ["NVIDIA GeForce RTX 4090", "NVIDIA H100 80GB HBM3"]),
        ("GPU-bb", ["NVIDIA GeForce RTX 4090"]),
        ("0,9,1", ["NVIDIA H100 80GB HBM3"]),
    ],
)
def test_cuda_visible_devices_is_obeyed(nvidia_smi, monkeypatch, setting: str, names: list[str]) -> None:  # type: ignore[no-untyped-def]
    nvidia_smi(TWO)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert [device.name for device in local_devices()] == names


@pytest.mark.parametrize("setting", ["", "-1", "7", "none"])
def test_no_visible_device(nvidia_smi, monkeypatch, setting: str) -> None:  # type: ignore[no-untyped-def]
    nvidia_smi(TWO)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    with pytest.raises(NotFoundError, match="no NVIDIA device is visible"):
        local_devices()


def test_an_unknown_device_gets_the_nearest_name(nvidia_smi) -> None:  # type: ignore[no-untyped-def]
    nvidia_smi("0, GPU-a, NVIDIA GeForce RTX 4080, 16376, [N/A]")
    with pytest.raises(NotFoundError) as caught:
        load_gpu("auto")
    assert "RTX 4080 with 16376 MiB is not in the catalog" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ("", 0, "no NVIDIA device"),
        ("No devices were found\n", 0, "answered"),
        ("a, b, c\n", 0, "answered"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9, "failed"),
    ],
)
def test_answers_that_are_none(nvidia_smi, answer: str, code: int, message: str) -> None:  # type: ignore[no-untyped-def]
    nvidia_smi(answer, code=code)
    with pytest.raises(NotFoundError, match=message) as caught:
        load_gpu("auto")
    assert caught.value.where == "--gpu auto"


def test_a_driver_that_hangs(nvidia_smi, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    nvidia_smi(H100, sleep=2)
    monkeypatch.setattr(local_gpu, "_TIMEOUT_SECONDS", 0.1)
    with pytest.raises(NotFoundError, match=r"no answer in 0\.1 s"):
        load_gpu("auto")


def test_a_machine_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFoundError, match="no nvidia-smi"):
        load_gpu("auto")
    (tmp_path / "nvidia-smi").write_text("not executable")
    os.chmod(tmp_path / "nvidia-smi", 0o600)
    with pytest.raises(NotFoundError):
        load_gpu("auto")


def test_names_with_commas_do_not_shift_columns() -> None:
    assert parse_devices('3, GPU-x, "Board, Special", 1024, Disabled\n\n') == [
        (LocalDevice(3, "GPU-x", "Board, Special", 1024), False)
    ]
