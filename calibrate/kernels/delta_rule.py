"""The gated delta rule on float32 states: one token a sequence, or a prompt."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from calibrate.device import Device
from calibrate.kernels.kernel import TOLERANCE, Call, Case, Kernel, Setting, Tensor, Work, chosen, normal, sets_of
from calibrate.kernels.sizes import recurrence_shapes
from calibrate.operations.recurrence import delta_prompt, delta_step

FLOPS_PER_ELEMENT = 7
"""Decay 1, prediction 2, update 2, read-out 2, for each element of the state."""


def cases(device: Device) -> Sequence[Case]:
    """Every shape."""
    return [Case("delta_rule", {}, shape) for shape in recurrence_shapes(device)]


def sizes_of(case: Case) -> tuple[int, int, int, int, int]:
    """(batch, tokens, heads, key dim, value dim)."""
    batch, tokens, heads, key, value = (
        case.shape[axis] for axis in ("batch", "tokens", "heads", "key_dim", "value_dim")
    )
    return batch, tokens, heads, key, value


def work(case: Case) -> Work:
    """7·Dk·Dv FLOPs a token and head; the states read and written, inputs and outputs once."""
    batch, tokens, heads, key, value = sizes_of(case)
    state = 8.0 * batch * heads * key * value
    rows = 4.0 * batch * tokens * heads * (key + value)
    return Work(float(FLOPS_PER_ELEMENT) * batch * tokens * heads * key * value, state + rows, "bf16")


def set_bytes(case: Case) -> int:
    """The states of one layer."""
    batch, _, heads, key, value = sizes_of(case)
    return 4 * batch * heads * key * value


def prepare(case: Case, setting: Setting) -> Call:
    """The states of several layers, one input; a run changes its state, and a reset brings it back."""
    batch, tokens, heads, key, value = sizes_of(case)
    states = sets_of(setting, lambda one: normal(one.other(5), batch, heads, key, value, format="fp32", scale=0.1))
    shape = (batch, heads) if tokens == 1 else (batch, heads, tokens)
    q = normal(setting.other(0), *shape, key, scale=key**-0.5)
    k = functional.normalize(normal(setting.other(1), *shape, key, format="fp32"), dim=-1).bfloat16()
    v = normal(setting.other(2), *shape, value)
    log_decay = -0.1 * torch.rand(*shape, device=setting.device.torch_name)
    beta = torch.rand(*shape, device=setting.device.torch_name)
    operation = delta_step if tokens == 1 else delta_prompt
    originals = [state.clone() for state in states]

    def run(index: int) -> Tensor:
        return operation(states[index], q, k, v, log_decay, beta)

    def reset() -> None:
        for state, original in zip(states, originals, strict=True):
            state.copy_(original)

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        """One head of one sequence, position by position."""
        sequence, head = int(chosen(batch, 1)), int(chosen(heads, 1))
        inputs = (part[sequence, head].reshape(tokens, -1) for part in (q, k, v, log_decay, beta))
        reference = exact_delta(originals[index][sequence, head], *inputs)
        return output[sequence, head].reshape(tokens, -1), reference

    return Call(run, expected, TOLERANCE["bf16"], reset)


def exact_delta(state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    """The recurrence of one head position by position in float64; inputs (s, ·)."""
    now, outputs = state.double(), []
    for place in range(q.shape[0]):
        now = now * log_decay[place].double().exp()
        key, query = k[place].double(), q[place].double()
        update = beta[place].double() * (v[place].double() - now.T @ key)
        now = now + torch.outer(key, update)
        outputs.append(now.T @ query)
    return torch.stack(outputs)


KERNEL = Kernel("delta_rule", "recurrence", cases, work, set_bytes, prepare)
