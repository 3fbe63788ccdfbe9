"""Kernels over rows of activations: norms, rotary embedding, activation functions, cache writes, tables, sampling.

Their bytes are counted as the ledger of a step counts them, so that what is fitted here is what is asked there. What
they read was written by the kernel before, so that in a small step the cache still has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

from calibrate.device import Device
from calibrate.kernels.kernel import (
    CHECKED_ROWS,
    TOLERANCE,
    Call,
    Case,
    Kernel,
    Setting,
    Tensor,
    Work,
    chosen,
    normal,
    sets_of,
)
from calibrate.kernels.sizes import row_shapes, vocabulary_shapes
from calibrate.operations import rows as operations
from calibrate.operations.rows import EPSILON

HEAD_DIM = 128
LOGIT_BYTES = 4
EXPERTS, TOP_K = 64, 8

Prepare = Callable[[Case, Setting], Call]
Bytes = Callable[[int, int], float]


def _kernel(name: str, bytes_of: Bytes, prepare: Prepare, shapes: Callable[[Device], list[dict[str, int]]]) -> Kernel:
    def cases(device: Device) -> Sequence[Case]:
        return [Case(name, {}, shape, cache="warm") for shape in shapes(device)]

    def moved(case: Case) -> float:
        return bytes_of(case.shape["rows"], case.shape["width"])

    return Kernel(
        name,
        "rows",
        cases,
        lambda case: Work(0.0, moved(case)),
        lambda case: max(1, int(moved(case))),
        prepare,
        natural="warm",
    )


def _some_rows(output: Tensor, exact: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Some rows of an output, as computed and by a function of their numbers."""
    rows = chosen(output.shape[0], CHECKED_ROWS)
    return output[rows], exact(rows)


def prepare_norm(case: Case, setting: Setting) -> Call:
    """The sum of residual and branch, and its RMS norm."""
    rows, width = case.shape["rows"], case.shape["width"]
    x = sets_of(setting, lambda one: normal(one, rows, width))
    branch = sets_of(setting, lambda one: normal(one.other(1), rows, width))
    weight = normal(setting.other(2), width)

    def run(index: int) -> Tensor:
        return operations.norm_with_residual(x[index], branch[index], weight)[1]

    def exact(index: int, some: Tensor) -> Tensor:
        total = (x[index][some] + branch[index][some]).double()
        return total * torch.rsqrt(total.square().mean(-1, keepdim=True) + EPSILON) * weight.double()

    return Call(run, lambda i, output: _some_rows(output, lambda some: exact(i, some)), TOLERANCE["bf16"])


def prepare_rotary(case: Case, setting: Setting) -> Call:
    """Rotary embedding of heads of 128."""
    rows, width = case.shape["rows"], case.shape["width"]
    heads = sets_of(setting, lambda one: normal(one, rows, width // HEAD_DIM, HEAD_DIM))
    cosine, sine = operations.rotary_table(rows, HEAD_DIM, setting.device.torch_name, torch.bfloat16)

    def run(index: int) -> Tensor:
        return operations.rotate(heads[index], cosine, sine)

    def exact(index: int, some: Tensor) -> Tensor:
        first, second = heads[index][some].double().chunk(2, -1)
        c, s = (part[some, None, : HEAD_DIM // 2].double() for part in (cosine, sine))
        return torch.cat((first * c - second * s, second * c + first * s), -1)

    return Call(run, lambda i, output: _some_rows(output, lambda some: exact(i, some)), TOLERANCE["bf16"])


def prepare_activation(case: Case, setting: Setting) -> Call:
    """silu(gate)·up."""
    rows, width = case.shape["rows"], case.shape["width"]
    inner = sets_of(setting, lambda one: normal(one, rows, 2 * width))

    def run(index: int) -> Tensor:
        return operations.gated_activation(inner[index])

    def exact(index: int, some: Tensor) -> Tensor:
        gate, up = inner[index][some].double().chunk(2, -1)
        return gate / (1 + torch.exp(-gate)) * up

    return Call(run, lambda i, output: _some_rows(output, lambda some: exact(i, some)), TOLERANCE["bf16"])


def prepare_cache_write(case: Case, setting: Setting) -> Call:
    """New entries copied into a cache of twice as many positions."""
    rows, width = case.shape["rows"], case.shape["width"]
    caches = sets_of(setting, lambda one: normal(one, 2 * rows, width))
    entries = normal(setting.other(1), rows, width)

    def run(index: int) -> Tensor:
        return caches[index][rows:].copy_(entries)

    def reset() -> None:
        for cache in caches:
            cache.fill_(torch.nan)

    return Call(
        run, lambda i, output: _some_rows(output, lambda some: entries[some].double()), TOLERANCE["bf16"], reset
    )


def prepare_embedding(case: Case, setting: Setting) -> Call:
    """Random rows of a table of 32,000."""
    rows, width = case.shape["rows"], case.shape["width"]
    table = normal(setting, 32_000, width)
    tokens = sets_of(setting, lambda one: torch.randint(0, 32_000, (rows,)).to(setting.device.torch_name))

    def run(index: int) -> Tensor:
        return functional.embedding(tokens[index], table)

    def exact(index: int, some: Tensor) -> Tensor:
        return torch.stack([table[int(token)].double() for token in tokens[index][some]])

    return Call(run, lambda i, output: _some_rows(output, lambda some: exact(i, some)), TOLERANCE["bf16"])


def prepare_sampling(case: Case, setting: Setting) -> Call:
    """One token a row from its logits."""
    rows, width = case.shape["rows"], case.shape["width"]
    logits = sets_of(setting, lambda one: normal(one, rows, width))
    uniform = torch.rand(rows, width, device=setting.device.torch_name).clamp(1e-6, 1 - 1e-6)
    noise = -torch.log(-torch.log(uniform))

    def run(index: int) -> Tensor:
        return operations.sample(logits[index], noise)

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        score = torch.log_softmax(logits[index].double(), -1) + noise.double()
        found = score.gather(-1, output[:, None])[:, 0]
        return found, score.amax(-1)

    return Call(run, expected, TOLERANCE["fp32"])


def prepare_top_k(case: Case, setting: Setting) -> Call:
    """The choice of 8 experts of 64 (or of as many as the width says)."""
    rows, width = case.shape["rows"], case.shape["width"]
    logits = sets_of(setting, lambda one: normal(one, rows, width))

    def run(index: int) -> Tensor:
        return operations.choose_experts(logits[index], TOP_K)[1]

    def exact(index: int, some: Tensor) -> Tensor:
        probable = torch.softmax(logits[index][some].double(), -1).sort(-1, descending=True).values[:, :TOP_K]
        return probable / probable.sum(-1, keepdim=True)

    return Call(run, lambda i, output: _some_rows(output, lambda some: exact(i, some)), TOLERANCE["bf16"])


def _router_shapes(device: Device) -> list[dict[str, int]]:
    return [{"rows": shape["rows"], "width": EXPERTS} for shape in row_shapes(device) if shape["width"] == 1024]


KERNELS = (
    _kernel("norm", lambda rows, width: 8.0 * rows * width + 2 * width, prepare_norm, row_shapes),
    _kernel("rotary_embedding", lambda rows, width: 4.0 * rows * width, prepare_rotary, row_shapes),
    _kernel("activation", lambda rows, width: 6.0 * rows * width, prepare_activation, row_shapes),
    _kernel("cache_write", lambda rows, width: 4.0 * rows * width, prepare_cache_write, row_shapes),
    _kernel("embedding", lambda rows, width: 4.0 * rows * width, prepare_embedding, row_shapes),
    _kernel(
        "sampling", lambda rows, width: (2.0 + 2 * LOGIT_BYTES) * rows * width, prepare_sampling, vocabulary_shapes
    ),
    _kernel("top_k", lambda rows, width: 2.0 * rows * width, prepare_top_k, _router_shapes),
)
