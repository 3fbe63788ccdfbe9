"""Every kernel's result against its float64 reference, its FLOPs against torch's own count; wrong ones are caught."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from calibrate.device import open_device  # noqa: E402
from calibrate.kernels import KERNELS, gemm, gemm_block_scaled, host_transfer, launch  # noqa: E402
from calibrate.kernels.kernel import Call, Case, Kernel, Setting, error_of  # noqa: E402
from calibrate.measure import buffers_of, checked, measure, sample_identity  # noqa: E402

pytestmark = pytest.mark.torch

CPU = open_device("cpu")
SLOW = {"flex"}
"""Backends that are compiled on the spot, which takes longer than the rest of the suite."""


def smallest(kernel: Kernel) -> list[Case]:
    """The least work of each key of a kernel that runs here."""
    found: dict[str, Case] = {}
    ordered = sorted(kernel.cases(CPU), key=lambda case: kernel.work(case).flops + kernel.work(case).bytes)
    for case in ordered:
        if case.key.get("backend") not in SLOW:
            found.setdefault(str(sorted(case.key.items())), case)
    return [case for case in found.values() if not kernel.missing(CPU, case)]


CASES = [(name, case) for name, kernel in KERNELS.items() for case in smallest(kernel)]


@pytest.mark.parametrize(("name", "case"), CASES, ids=[case.identity for _, case in CASES])
def test_a_kernel_agrees_with_its_float64_reference(name: str, case: Case) -> None:
    with torch.inference_mode():
        call = KERNELS[name].prepare(case, Setting(CPU, 2, seed=5))
        assert checked(call, 2) <= call.tolerance


@pytest.mark.parametrize("name", KERNELS)
def test_cases_have_identities_of_their_own_and_work_to_do(name: str) -> None:
    cases = list(KERNELS[name].cases(CPU))
    assert len({case.identity for case in cases}) == len(cases)
    for case in cases:
        work = KERNELS[name].work(case)
        assert work.bytes > 0
        assert work.flops >= 0
        assert KERNELS[name].set_bytes(case) > 0


def wrong(kernel: Kernel, spoil: Any) -> Kernel:
    """The kernel with its result spoilt."""

    def prepare(case: Case, setting: Setting) -> Call:
        call = kernel.prepare(case, setting)
        return replace(call, run=lambda index: spoil(call.run(index), index))

    return replace(kernel, prepare=prepare)


SPOILT = {
    "scaled by a fifth": lambda output, index: output * 1.2,
    "zeros": lambda output, index: torch.zeros_like(output),
    "not finite": lambda output, index: output * float("nan"),
    "the same for every set of buffers": lambda output, index: output if index == 0 else torch.ones_like(output),
    "of another shape": lambda output, index: output[:-1] if output.shape[0] > 1 else output[..., :-1],
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_planted_wrong_kernel_is_caught_and_its_sample_marked(how: str) -> None:
    kernel = wrong(KERNELS["gemm"], SPOILT[how])
    case = Case("gemm", {"format": "bf16"}, {"m": 16, "n": 128, "k": 256})
    if how == "of another shape":
        with torch.inference_mode(), pytest.raises(IndexError):
            checked(kernel.prepare(case, Setting(CPU, 2)), 2)
        return
    sample = measure(kernel, case, CPU, budget=0.0)
    assert sample.problem.startswith("the result differs")
    assert sample.error > 1
    assert not sample.usable


def test_a_kernel_that_computes_one_row_wrong_is_caught_by_its_fresh_choice_of_rows() -> None:
    def spoil(output: Any, index: int) -> Any:
        output = output.clone()
        output[3] = -output[3]
        return output

    case = Case("gemm", {"format": "bf16"}, {"m": 16, "n": 128, "k": 256})
    with torch.inference_mode():
        call = wrong(KERNELS["gemm"], spoil).prepare(case, Setting(CPU, 1))
        assert checked(call, 1) > call.tolerance


def test_a_right_kernel_gives_a_usable_sample() -> None:
    case = Case("gemm", {"format": "bf16"}, {"m": 4, "n": 128, "k": 256})
    sample = measure(KERNELS["gemm"], case, CPU, budget=0.0, held_out=True)
    assert sample.usable
    assert sample.identity == sample_identity(case)
    assert sample.flops == 2 * 4 * 128 * 256
    assert 0 < sample.low <= sample.seconds <= sample.high
    assert sample.held_out


@pytest.mark.parametrize(
    ("name", "shape", "key"),
    [
        ("gemm", {"m": 3, "n": 64, "k": 128}, {"format": "fp32"}),
        ("latent_decode", {"batch": 2, "context": 32, "heads": 4}, {"kv_format": "bf16"}),
        ("decode_attention", {"batch": 2, "context": 32, "heads": 8, "kv_heads": 2},
         {"head_dim": 64, "backend": "grouped"}),
    ],
)  # fmt: skip
def test_flops_are_those_that_torch_counts(name: str, shape: dict[str, int], key: dict[str, Any]) -> None:
    case = Case(name, key, shape)
    with torch.inference_mode():
        call = KERNELS[name].prepare(case, Setting(CPU))
        with FlopCounterMode(display=False) as counter:
            call.run(0)
    assert counter.get_total_flops() == KERNELS[name].work(case).flops


def test_expert_flops_are_those_that_torch_counts_in_the_loop() -> None:
    from calibrate.operations.experts import mixture

    tokens, hidden, width, experts, top_k = 6, 32, 16, 8, 2
    x, first = torch.randn(tokens, hidden), torch.randn(experts, 2 * width, hidden)
    second = torch.randn(experts, hidden, width)
    chosen = torch.stack([torch.randperm(experts)[:top_k] for _ in range(tokens)])
    with FlopCounterMode(display=False) as counter:
        mixture(x, chosen, torch.full((tokens, top_k), 0.5), first, second)
    case = Case("experts", {}, {"tokens": tokens, "hidden": hidden, "width": width, "top_k": top_k, "experts": experts})
    assert counter.get_total_flops() == KERNELS["experts"].work(case).flops


def test_buffers_rotate_as_far_as_the_cache_and_the_memory_ask() -> None:
    kernel, device = KERNELS["gemm"], replace(CPU, cache_bytes=1 << 20)
    small = Case("gemm", {"format": "bf16"}, {"m": 1, "n": 1024, "k": 1024})
    sets = buffers_of(kernel, small, device)
    assert sets * kernel.set_bytes(small) >= 8 * device.cache_bytes
    assert buffers_of(kernel, replace(small, cache="warm"), device) == 1
    huge = Case("gemm", {"format": "bf16"}, {"m": 1, "n": 1 << 20, "k": 1 << 16})
    assert buffers_of(kernel, huge, device) == 1


def test_differences_are_measured_against_the_reference_or_its_mean_size() -> None:
    reference = torch.tensor([100.0, 1.0, 0.0], dtype=torch.float64)
    scale = float(reference.square().mean().sqrt())
    assert error_of(reference.float(), reference) == 0
    assert error_of(torch.tensor([100.0, 1.0, 1.0]), reference) == pytest.approx(1 / scale)
    assert error_of(torch.tensor([200.0, 1.0, 0.0]), reference) == pytest.approx(1.0)
    assert error_of(torch.tensor([1.0, float("inf"), 0.0]), reference) == float("inf")


# --- branches for GPUs, as far as a CPU allows ---------------------------------------------------------------------


def test_host_transfers_run_in_both_directions() -> None:
    for direction in ("to_device", "to_host"):
        case = Case("host_transfer", {"direction": direction}, {"bytes": 4096})
        call = host_transfer.prepare(case, Setting(CPU, 2))
        assert checked(call, 2) == 0
    assert host_transfer.cases(CPU) == []
    assert len(host_transfer.cases(replace(CPU, kind="cuda"))) == 10


@pytest.mark.parametrize("form", gemm_block_scaled.FORMATS)
@pytest.mark.parametrize("weight", [True, False])
def test_block_scaled_numbers_are_near_what_they_stand_for(form: str, weight: bool) -> None:
    x = torch.randn(256, 512)
    stored, scales = gemm_block_scaled.quantised(x, form, weight=weight)
    exact = gemm_block_scaled.stood_for(x, form, weight=weight)
    error = float((exact - x).abs().mean() / x.abs().mean())
    assert error < (0.12 if form == "nvfp4" else 0.04)
    bytes_of_one = 0.5 if form == "nvfp4" else 1.0
    assert stored.numel() * stored.element_size() == 256 * 512 * bytes_of_one
    group = {"fp8_block": 128, "mxfp8": 32, "nvfp4": 16}[form]
    rows = 2 if form == "fp8_block" and weight else 256
    assert scales.numel() == rows * 512 // group


def test_scales_are_laid_out_in_tiles_of_128_by_4() -> None:
    rows, columns = 256, 8
    scale = torch.arange(rows * columns).remainder(251).to(torch.uint8).view(rows, columns)
    found = gemm_block_scaled.swizzled(scale)
    for row, column in ((0, 0), (1, 0), (31, 3), (32, 0), (127, 3), (128, 4), (200, 7)):
        tile = (row // 128) * (columns // 4) + column // 4
        inside = (row % 32) * 16 + (row % 128 // 32) * 4 + column % 4
        assert found[tile * 512 + inside] == scale[row, column]


def test_what_a_device_lacks_is_said_in_words() -> None:
    cases = gemm_block_scaled.cases(CPU)
    assert all("refuses" in gemm_block_scaled.missing(CPU, case) for case in cases[:1])
    graph = Case("launch", {"mode": "graph"}, {"launches": 1})
    assert launch.missing(CPU, graph) == "a CPU has no CUDA graphs"
    assert {case.key["mode"] for case in launch.cases(replace(CPU, kind="cuda"))} == {"eager", "graph"}
    assert {case.key["format"] for case in gemm.cases(replace(CPU, kind="cuda"))} == {"bf16", "fp16", "fp32", "tf32"}


def test_tf32_is_switched_back() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    with gemm.tf32():
        assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cuda.matmul.allow_tf32 == before
