"""What does speculative decoding gain: by the textbook, where compute binds, and on this hardware at each batch?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack

from capplan.errors import UnsupportedError, UsageError
from capplan.questions.answer import Answer, Explained, Provenance
from capplan.questions.drafting import DraftRequest, drafting_replica, resolve_drafts
from capplan.questions.setting import SettingOptions, resolve_setting
from capplan.serving.replica import Replica
from capplan.serving.speculation import (
    Speculation,
    SpeculativeReplica,
    compute_bound_speedup,
    expected_tokens,
    gain,
    textbook_speedup,
    turning_batch,
)

if TYPE_CHECKING:
    from capplan.describe.gpu import GpuSpec
    from capplan.describe.model import ModelSpec

BATCHES = (1, 4, 16, 64, 256)


@dataclass(frozen=True)
class AcceptanceRow:
    """One chance of acceptance, without hardware.

    Args:
        acceptance: α.
        tokens_per_round: E = Σ α^k.
        memory_bound_speedup: E / (K·c + 1): verifying costs one step, as long as the weights' traffic binds.
        compute_bound_speedup: E / (K·c + K + 1): verifying costs K + 1 steps.
    """

    acceptance: float
    tokens_per_round: float
    memory_bound_speedup: float
    compute_bound_speedup: float


@dataclass(frozen=True)
class BatchRow:
    """One batch on the hardware.

    Args:
        batch: sequences of a data-parallel group.
        step_ms: a step without drafting.
        draft_ms: drafting K tokens.
        verify_ms: the step that verifies K + 1 tokens of each sequence.
        gains: how many times faster each sequence gets its tokens, for each acceptance.
    """

    batch: int
    step_ms: float
    draft_ms: float
    verify_ms: float
    gains: tuple[float, ...]


@dataclass(frozen=True)
class SpeculateResult:
    """Gains of drafting.

    Args:
        rows: for each acceptance, without hardware.
        draft_ratio: c, time of one drafted token over one step; of the hardware at batch 1 where a model is given.
        drafts: what drafts; None without a model.
        batches: for each batch, on the hardware; empty without a model.
        turning_batches: for each acceptance, the batch from which drafting slows the server; None: not up to 8,192.
    """

    rows: tuple[AcceptanceRow, ...]
    draft_ratio: float
    drafts: str | None = None
    batches: tuple[BatchRow, ...] = ()
    turning_batches: tuple[int | None, ...] = ()


def speculate(
    model: str | ModelSpec | None = None,
    gpu: str | GpuSpec | None = None,
    *,
    acceptance: Sequence[float],
    draft_tokens: int = 4,
    draft_ratio: float | None = None,
    draft_model: str | ModelSpec | None = None,
    medusa_heads: int = 0,
    context: int = 2048,
    batch: Sequence[int] = BATCHES,
    **options: Unpack[SettingOptions],
) -> Answer[SpeculateResult]:
    """Tokens a round and gains; see `capplan.serving.speculation` for the equations.

    Args:
        model: a reference as for ``--model``, or a description; None: the textbook's figures alone.
        gpu: a device's name, file or description.
        acceptance: chances that a drafted token is accepted.
        draft_tokens: K, tokens drafted a round.
        draft_ratio: c, time of one drafted token over one step; None: 0.1, or what the hardware takes.
        draft_model: a draft model; None: Medusa heads, or the model's MTP layers.
        medusa_heads: Medusa heads; as many tokens are drafted.
        context: positions of each sequence.
        batch: sequences of a data-parallel group.
        options: the deployment, as for `resolve_setting`.

    Raises:
        CapplanError: a chance beyond 1, or something that does not exist or cannot draft.
    """
    if not acceptance:
        raise UsageError("give at least one chance", where="--acceptance")
    tokens = medusa_heads or draft_tokens
    for chance in acceptance:
        Speculation(tokens, chance)
    if draft_ratio is not None and not 0 <= draft_ratio <= 1e6:
        raise UsageError(f"must be 0 or more, not {draft_ratio:g}", where="--draft-ratio")
    inputs = {"acceptance": list(acceptance), "draft_tokens": tokens, "draft_ratio": draft_ratio}
    if model is None:
        ratio = 0.1 if draft_ratio is None else draft_ratio
        result = SpeculateResult(_rows(acceptance, tokens, ratio), ratio)
        exact: dict[str, Provenance] = dict.fromkeys(("rows",), "exact")
        notes = ("a drafted token takes 0.1 of a step",) if draft_ratio is None else ()
        explanation = tuple(_explain(acceptance[0], tokens, ratio))
        return Answer("speculate", inputs, result, explanation, assumptions=notes, provenance=exact)
    setting = resolve_setting(model, gpu, **options)
    if not setting.corrected:
        raise UnsupportedError(
            f"no measured profile stands for {setting.gpu.name}: what a round costs cannot be told",
            where="--gpu",
            hint="without --model the textbook's figures are given",
        )
    drafts = resolve_drafts(setting, DraftRequest(draft_tokens, acceptance[0], draft_model, medusa_heads))
    replica = Replica(setting.spec, setting.machine, setting.sharding, setting.formats)
    servers = [
        drafting_replica(replica, replace(drafts, speculation=replace(drafts.speculation, acceptance=chance)))
        for chance in acceptance
    ]
    times = setting.machine.times
    one = servers[0].drafting(1, context).seconds(times) / servers[0].speculation.tokens
    ratio = draft_ratio if draft_ratio is not None else one / replica.decode_step(1, context).seconds(times)
    result = SpeculateResult(
        _rows(acceptance, tokens, ratio),
        ratio,
        drafts.name,
        tuple(_batch(servers, size, context) for size in batch),
        tuple(turning_batch(server, context, 1 << 13) for server in servers),
    )
    return Answer(
        command="speculate",
        inputs={**setting.inputs, **inputs, "context": context, "draft": drafts.name},
        result=result,
        explanation=tuple(_explain(acceptance[0], tokens, ratio)),
        assumptions=(*setting.assumptions, *drafts.notes),
        warnings=setting.warnings,
        sources=tuple(dict.fromkeys((*setting.sources, *drafts.sources))),
        provenance={"batches": "fitted", "turning_batches": "fitted"},
    )


def _rows(acceptance: Sequence[float], tokens: int, ratio: float) -> tuple[AcceptanceRow, ...]:
    return tuple(
        AcceptanceRow(
            chance,
            expected_tokens(chance, tokens),
            textbook_speedup(chance, tokens, ratio),
            compute_bound_speedup(chance, tokens, ratio),
        )
        for chance in acceptance
    )


def _batch(servers: Sequence[SpeculativeReplica], batch: int, context: int) -> BatchRow:
    first = servers[0]
    times, tokens = first.machine.times, first.speculation.tokens
    drafting = first.drafting(batch, context)
    return BatchRow(
        batch,
        1e3 * first.decode_step(batch, context).seconds(times),
        1e3 * drafting.seconds(times),
        1e3 * first.verification(batch, context, tokens).seconds(times),
        tuple(gain(server, batch, context) for server in servers),
    )


def _explain(chance: float, tokens: int, ratio: float) -> list[Explained]:
    given = expected_tokens(chance, tokens)
    powers = " + ".join(f"{chance:g}^{power}" for power in range(min(tokens, 6) + 1))
    return [
        Explained("tokens a round", "E = Σ_{k=0..K} α^k", powers, given, "tokens"),
        Explained(
            "while memory binds",
            "E / (K·c + 1)",
            f"{given:.4g} / ({tokens}·{ratio:.3g} + 1)",
            textbook_speedup(chance, tokens, ratio),
            "",
        ),
        Explained(
            "once compute binds",
            "E / (K·c + K + 1)",
            f"{given:.4g} / ({tokens}·{ratio:.3g} + {tokens + 1})",
            compute_bound_speedup(chance, tokens, ratio),
            "",
        ),
    ]
