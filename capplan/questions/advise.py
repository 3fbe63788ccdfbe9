"""What to change next: every item of the usual checklist, estimated on this very deployment and ranked by its gain.

A gain is a ratio, above 1 for better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from capplan.describe.model import ModelSpec
from capplan.errors import CapplanError, UsageError
from capplan.questions.advise_items import CHECKLIST
from capplan.questions.advise_trial import Deployed, Item, Metric, Offers, State, Trial
from capplan.questions.answer import Answer
from capplan.questions.cost_request import Pricing
from capplan.questions.estimate import LoadRequest, estimate_of
from capplan.questions.setting import SettingOptions, resolve_setting

if TYPE_CHECKING:
    from capplan.describe.gpu import GpuSpec

CACHED_SHARE = 0.5
"""Share of the prompts that a prefix cache is taken to find where nothing is said."""

ACCEPTANCE = 0.7
"""Chance that a drafted token is accepted where nothing is said."""


@dataclass(frozen=True)
class Advice:
    """One item.

    Args:
        item: what it is.
        category: its group in the checklist.
        claim: what introductions promise.
        state: whether it can be done, is done already, or cannot be.
        metric: what it is meant to improve.
        gain: of that metric.
        change: the flags, or the words, for the change; empty where it is in place.
        throughput_gain: of the output tokens a second (at a rate: of the highest rate that can be served).
        tpot_gain: of the time per output token.
        ttft_gain: of the time to the first token.
        memory_gain: of the tokens that the KV pool holds.
        cost_gain: of the tokens for a dollar; none where no price is known.
        remark: what was assumed, or why it cannot be done.
    """

    item: str
    category: str
    claim: str
    state: State
    metric: Metric
    gain: float | None
    change: str = ""
    throughput_gain: float | None = None
    tpot_gain: float | None = None
    ttft_gain: float | None = None
    memory_gain: float | None = None
    cost_gain: float | None = None
    remark: str = ""


@dataclass(frozen=True)
class AdviseResult:
    """The checklist for a deployment.

    Args:
        items: what can be done first, by the gain in its metric, then what is in place, then what cannot be.
        mean_ttft_ms: as it is deployed now.
        mean_tpot_ms: as it is deployed now.
        output_throughput: as it is deployed now.
    """

    items: tuple[Advice, ...]
    mean_ttft_ms: float
    mean_tpot_ms: float
    output_throughput: float


def advise(
    model: str | ModelSpec,
    gpu: str | GpuSpec | None = None,
    *,
    load: LoadRequest,
    acceptance: float = ACCEPTANCE,
    draft_model: str | None = None,
    cached: float = CACHED_SHARE,
    pricing: Pricing | None = None,
    **options: Unpack[SettingOptions],
) -> Answer[AdviseResult]:
    """The checklist of inference optimisation, each item with its predicted gain on this deployment.

    Args:
        model: a reference as for ``--model``, or a description.
        gpu: a device's name, file or description.
        load: what clients ask.
        acceptance: chance that a drafted token is accepted.
        draft_model: what would draft; None: the model's MTP layers, or four Medusa heads.
        cached: share of the input that a prefix cache would find.
        pricing: where GPUs are hired; None: where each is cheapest on demand.
        options: the deployment, as for `resolve_setting`.

    Raises:
        CapplanError: what `capplan.estimate` raises for the deployment as it is.
    """
    if not 0 < cached < 1:
        raise UsageError(f"a share lies between 0 and 1, not at {cached:g}", where="--prefix-share")
    pricing = pricing or Pricing()
    offers = Offers.of(pricing, tuple(options.get("hardware_dirs", ())))
    setting = resolve_setting(model, gpu, **options)
    answer = estimate_of(setting, load)
    here = Deployed(model, gpu, load, options, setting, answer.result, acceptance, draft_model, cached, offers)
    found = [_advice(item, here) for item in CHECKLIST]
    rank: dict[State, int] = {"possible": 0, "in place": 1, "not possible": 2}
    items = sorted(found, key=lambda advice: (rank[advice.state], -(advice.gain or 0)))
    now = answer.result
    return Answer(
        command="advise",
        inputs={**answer.inputs, "acceptance": acceptance, "cached_share": cached, **pricing.inputs},
        result=AdviseResult(tuple(items), now.mean_ttft_ms, now.mean_tpot_ms, now.output_throughput),
        assumptions=answer.assumptions,
        warnings=answer.warnings,
        sources=answer.sources,
        provenance={"items": answer.provenance["mean_tpot_ms"]},
    )


def _advice(item: Item, here: Deployed) -> Advice:
    try:
        trial = item.tried(here)
    except CapplanError as error:
        trial = Trial("not possible", remark=error.message)
    gains = _gains(trial, here.load)
    gain = trial.gain if trial.gain is not None else gains.get(f"{item.metric}_gain")
    advice = Advice(item.item, item.category, item.claim, trial.state, item.metric, gain, trial.change)
    return replace(advice, remark=trial.remark, **gains)


def _gains(trial: Trial, load: LoadRequest) -> dict[str, Any]:
    better, worse = trial.better, trial.worse
    if better is None or worse is None:
        return {}
    served = better.output_throughput / worse.output_throughput
    if load.request_rate is not None:
        served = better.saturation_rate / worse.saturation_rate
    memory = None
    if better.kv_capacity_tokens and worse.kv_capacity_tokens:
        memory = better.kv_capacity_tokens / worse.kv_capacity_tokens
    return {
        "throughput_gain": served,
        "tpot_gain": worse.mean_tpot_ms / better.mean_tpot_ms,
        "ttft_gain": worse.mean_ttft_ms / better.mean_ttft_ms,
        "memory_gain": memory,
        "cost_gain": served / trial.dearer if trial.dearer else None,
    }
