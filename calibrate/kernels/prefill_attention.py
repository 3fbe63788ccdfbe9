"""Causal attention of prompts, by every backend of SDPA: MHA, GQA and MQA."""

from __future__ import annotations

from collections.abc import Sequence

from calibrate.device import Device
from calibrate.kernels.kernel import (
    CHECKED_ROWS,
    TOLERANCE,
    Call,
    Case,
    Kernel,
    Key,
    Setting,
    Tensor,
    Work,
    chosen,
    normal,
    sets_of,
)
from calibrate.kernels.sizes import prefill_shapes
from calibrate.operations.attention import BACKENDS, causal_attention, causal_mask, exact_attention

STACKS_BACKEND = "sdpa"
"""What the stacks run: torch's own choice."""


def cases(device: Device) -> Sequence[Case]:
    """Every shape by torch's choice, and one of each head count by each backend that could be chosen."""
    shapes = prefill_shapes(device)
    few = [shape for shape in shapes if shape["batch"] == 1 and shape["tokens"] in (128, 1024)]
    found = [_case(shape, STACKS_BACKEND) for shape in shapes]
    return found + [_case(shape, backend) for backend in BACKENDS for shape in few]


def _case(shape: dict[str, int], backend: str) -> Case:
    sizes = dict(shape)
    dim = sizes.pop("head_dim")
    key: Key = {"format": "bf16", "kv_format": "bf16", "head_dim": dim, "window": "full", "backend": backend}
    return Case("prefill_attention", key, sizes)


def missing(device: Device, case: Case) -> str:
    """Why a backend does not run: asked of torch with a small problem."""
    backend = str(case.key["backend"])
    if backend == STACKS_BACKEND:
        return ""
    small = Case(case.kernel, case.key, {**case.shape, "batch": 1, "tokens": 128})
    try:
        prepare(small, Setting(device)).run(0)
        device.synchronise()
    except RuntimeError as error:
        return f"torch's {backend} attention refuses: {str(error).splitlines()[0][:100]}"
    return ""


def sizes_of(case: Case) -> tuple[int, int, int, int, int]:
    """(batch, tokens, heads, KV heads, head dim)."""
    shape = case.shape
    return shape["batch"], shape["tokens"], shape["heads"], shape["kv_heads"], int(case.key["head_dim"])


def work(case: Case) -> Work:
    """4·b·h·D·pairs FLOPs; queries and results, keys and values once."""
    batch, tokens, heads, kv_heads, dim = sizes_of(case)
    pairs = tokens * (tokens + 1) / 2
    moved = 4.0 * batch * tokens * dim * (heads + kv_heads)
    return Work(4.0 * batch * heads * dim * pairs, moved, "bf16")


def set_bytes(case: Case) -> int:
    """Queries, keys and values."""
    batch, tokens, heads, kv_heads, dim = sizes_of(case)
    return 2 * batch * tokens * dim * (heads + 2 * kv_heads)


def prepare(case: Case, setting: Setting) -> Call:
    """Several prompts."""
    batch, tokens, heads, kv_heads, dim = sizes_of(case)
    window, backend = case.shape.get("window", 0), str(case.key["backend"])
    queries = sets_of(setting, lambda one: normal(one, batch, heads, tokens, dim))
    keys = sets_of(setting, lambda one: normal(one.other(1), batch, kv_heads, tokens, dim))
    values = sets_of(setting, lambda one: normal(one.other(2), batch, kv_heads, tokens, dim))

    def run(index: int) -> Tensor:
        return causal_attention(queries[index], keys[index], values[index], window=window, backend=backend)

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        return part_of_attention(output, queries[index], keys[index], values[index], window)

    return Call(run, expected, TOLERANCE["bf16"])


def part_of_attention(output: Tensor, q: Tensor, k: Tensor, v: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Some queries of one random head, as computed and by the definition."""
    batch, heads, tokens, _ = q.shape
    sequence, head = int(chosen(batch, 1)), int(chosen(heads, 1))
    group = head // (heads // k.shape[1])
    rows = chosen(tokens, CHECKED_ROWS)
    seen = causal_mask(tokens, k.shape[2], window, str(q.device))[rows]
    reference = exact_attention(q[sequence, head, rows], k[sequence, group], v[sequence, group], seen)
    return output[sequence, head, rows], reference


KERNEL = Kernel("prefill_attention", "prefill_attention", cases, work, set_bytes, prepare, missing)
