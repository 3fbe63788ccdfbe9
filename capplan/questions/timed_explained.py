"""The working of a step: its bound from three sums, and every operator by its law with the numbers in it."""

from __future__ import annotations

from capplan.questions.answer import Explained
from capplan.questions.setting import Setting
from capplan.questions.timed import StepFigures, detail_of, in_step
from capplan.timing.operator_time import OperatorTime
from capplan.timing.step_time import StepTime


def explain_step(figures: StepFigures, setting: Setting, time: StepTime | None) -> list[Explained]:
    """The bound from its three sums, and every operator by its law with the numbers in it."""
    gpu = setting.gpu
    moved = figures.weight_bytes + figures.kv_bytes + figures.state_bytes
    lines = [
        Explained(
            "memory",
            "Σ (weights + KV + state) / BW",
            f"({_plain(figures.weight_bytes)} + {_plain(figures.kv_bytes)} + {_plain(figures.state_bytes)})"
            f" / {gpu.memory.bandwidth:.4g} = {_plain(moved)} / {gpu.memory.bandwidth:.4g}",
            figures.memory_seconds,
            "s",
        ),
        Explained("compute", "Σ FLOPs / P", f"{_plain(figures.flops)} FLOPs", figures.compute_seconds, "s"),
        Explained("messages", "Σ bytes · f / link", f"{_plain(figures.message_bytes)} B", figures.link_seconds, "s"),
        Explained("bound", "max of the above (of each stage)", figures.limit, figures.bound_seconds, "s"),
    ]
    if time is None:
        return lines
    lines += [explain_operator(part, time) for part in time.operators]
    lines += [Explained(term.name, "", "", term.seconds, "s", term.source) for term in figures.terms]
    assert figures.seconds is not None
    lines.append(Explained("step", "Σ operators + Σ terms", "", figures.seconds, "s"))
    return lines


def explain_operator(part: OperatorTime, time: StepTime) -> Explained:
    """One operator: its calls, its launches, and the terms of its law."""
    share = "" if time.kernel_share == 1 else f"{time.kernel_share:g} · "
    launch, body = _each(part.launch, part), _each(part.body, part)
    formula = f"calls · (launch + {share}body)"
    numbers = f"{_plain(part.operator.count)} · ({_micro(launch)} + {share}{_micro(body)})"
    detail = detail_of(part.operator)
    name = f"{part.operator.name} ({detail})" if detail else part.operator.name
    return Explained(name, formula, numbers + _law(part), float(in_step(part, time)), "s", _whose(part))


def _law(part: OperatorTime) -> str:
    """The terms of one call as its law joins them."""
    if part.estimate is None:
        return ""
    time = part.estimate.time
    serial = [f"{name} {_micro(value)}" for name, value in time.serial.items() if value]
    names = [f"{name} {_micro(value)}" for name, value in time.overlapping.items()]
    if len(names) > 1:
        if time.exponent == float("inf"):
            serial.append(f"max({', '.join(names)})")
        else:
            powers = " + ".join(f"({name})^{time.exponent:.3g}" for name in names)
            serial.append(f"[{powers}]^(1/{time.exponent:.3g})")
    else:
        serial += names
    raised = "; raised to its bound" if float(time.total) * part.operator.count < float(part.bound) else ""
    return f"; alone {' + '.join(serial)}{raised}"


def _whose(part: OperatorTime) -> str:
    """Which measured kernel the constants are of."""
    if part.estimate is None:
        return "assumed: no such kernel was measured"
    key = part.estimate.fit.key
    notes = f" ({'; '.join(part.notes)})" if part.notes else ""
    return f"{key.engine} {key.version} {key.kernel} {key.format}".strip() + notes


def _each(seconds: object, part: OperatorTime) -> float:
    return float(seconds) / part.operator.count if part.operator.count else 0.0  # type: ignore[arg-type]


def _micro(seconds: object) -> str:
    return f"{float(seconds) * 1e6:.4g} µs"  # type: ignore[arg-type]


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
