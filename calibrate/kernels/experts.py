"""The routed experts of a mixture: balanced random routing, three products for every chosen expert, one sum."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from calibrate.device import Device
from calibrate.kernels.kernel import TOLERANCE, Call, Case, Kernel, Setting, Tensor, Work, chosen, normal, sets_of
from calibrate.kernels.sizes import expert_shapes
from calibrate.operations.experts import exact_mixture, mixture
from capplan.timing.kernel_laws import expected_distinct_experts

CHECKED_TOKENS = 4


def cases(device: Device) -> Sequence[Case]:
    """Every shape."""
    return [Case("experts", {"format": "bf16"}, shape) for shape in expert_shapes(device)]


def distinct(case: Case) -> float:
    """Experts that the tokens are expected to touch."""
    return float(expected_distinct_experts(case.shape["tokens"], case.shape["experts"], case.shape["top_k"]))


def work(case: Case) -> Work:
    """6·T·K·H·I FLOPs; the touched experts' weights once, tokens in and out."""
    tokens, hidden, width, top_k = (case.shape[axis] for axis in ("tokens", "hidden", "width", "top_k"))
    return Work(
        6.0 * tokens * top_k * hidden * width, 6.0 * distinct(case) * hidden * width + 4.0 * tokens * hidden, "bf16"
    )


def set_bytes(case: Case) -> int:
    """All experts of one layer."""
    return 6 * case.shape["experts"] * case.shape["hidden"] * case.shape["width"]


def prepare(case: Case, setting: Setting) -> Call:
    """The experts of several layers, one batch of tokens, a routing for each layer."""
    tokens, hidden, width, top_k, experts = (
        case.shape[axis] for axis in ("tokens", "hidden", "width", "top_k", "experts")
    )
    first = sets_of(setting, lambda one: normal(one.other(1), experts, 2 * width, hidden, scale=hidden**-0.5))
    second = sets_of(setting, lambda one: normal(one.other(2), experts, hidden, width, scale=width**-0.5))
    x = normal(setting.other(0), tokens, hidden)
    routes = sets_of(setting, lambda one: route(one, tokens, experts, top_k))

    def run(index: int) -> Tensor:
        picked, weights = routes[index]
        return mixture(x, picked, weights, first[index], second[index])

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        rows = chosen(tokens, CHECKED_TOKENS)
        picked, weights = routes[index]
        exact = [exact_mixture(x, picked, weights, first[index], second[index], int(row)) for row in rows]
        return output[rows], torch.stack(exact)

    return Call(run, expected, TOLERANCE["bf16"])


def route(setting: Setting, tokens: int, experts: int, top_k: int) -> tuple[Tensor, Tensor]:
    """K different experts for each token, all equally likely, with weights that sum to one."""
    device = setting.device.torch_name
    generator = torch.Generator().manual_seed(setting.seed)
    scores = torch.rand(tokens, experts, generator=generator)
    picked = scores.topk(top_k, -1)
    return picked.indices.to(device), torch.softmax(picked.values, -1).to(device)


KERNEL = Kernel("experts", "grouped_gemm", cases, work, set_bytes, prepare)
