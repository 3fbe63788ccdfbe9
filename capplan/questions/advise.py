"""What to change next: every item of the usual checklist, estimated on this very deployment and ranked by its gain.

An item that is not in place is estimated as a changed deployment beside the present one; an item that is in place
already is estimated by taking it away, so that its gain is what it gives now. A gain is a ratio, above 1 for better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

from capplan.describe.model import Attention, ModelSpec
from capplan.errors import CapplanError, UsageError
from capplan.questions.answer import Answer
from capplan.questions.drafting import DraftRequest
from capplan.questions.estimate import EstimateResult, LoadRequest, estimate_of, served_replica
from capplan.questions.setting import Setting, SettingOptions, resolve_setting
from capplan.serving.batch_run import batch_run
from capplan.timing.roofline import operator_bound
from capplan.work.step import Prefill, Step, ledger

if TYPE_CHECKING:
    from capplan.describe.gpu import GpuSpec

Metric = Literal["throughput", "tpot", "ttft", "memory"]
State = Literal["possible", "in place", "not possible"]

CACHED_SHARE = 0.5
"""Share of the prompts that a prefix cache is taken to find where nothing is said."""

ACCEPTANCE = 0.7
"""Chance that a drafted token is accepted where nothing is said."""

DRAFTED = 4
"""Tokens drafted a round."""

CHUNKS = (2048, 4096, 8192, 16384)
"""Token budgets of a step that are tried."""

UPGRADES = (
    "l40s",
    "rtx-pro-6000-server",
    "a100-sxm-80gb",
    "h100-sxm-80gb",
    "h200-sxm-141gb",
    "b200-sxm-180gb",
    "b300-sxm-288gb",
)
"""Devices with measured profiles, by bandwidth."""


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
        change: the flags that make the change; empty where it is in place.
        throughput_gain: of the output tokens a second (at a rate: of the highest rate that can be served).
        tpot_gain: of the time per output token.
        ttft_gain: of the time to the first token.
        memory_gain: of the tokens that the KV pool holds.
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


@dataclass(frozen=True)
class _Deployed:
    """A deployment and a load, and what to try on them."""

    model: str | ModelSpec
    gpu: str | GpuSpec | None
    load: LoadRequest
    options: SettingOptions
    setting: Setting
    now: EstimateResult
    acceptance: float
    draft_model: str | None
    cached: float

    def changed(self, model: str | ModelSpec | None = None, gpu: str | None = None, **options: Any) -> EstimateResult:
        """The estimate of a changed deployment under the same load."""
        merged: SettingOptions = {**self.options, **options}  # type: ignore[typeddict-item]
        return estimate_of(resolve_setting(model or self.model, gpu or self.gpu, **merged), self.load).result


@dataclass(frozen=True)
class _Item:
    """What the checklist says of one item, and how it is tried."""

    item: str
    category: str
    claim: str
    metric: Metric
    tried: Callable[[_Deployed], _Trial]


@dataclass(frozen=True)
class _Trial:
    """Better and worse of two deployments, one of which is the present one.

    Args:
        state: whether the better one is the present one.
        better: with the item; None: only `gain` is known.
        worse: without it.
        change: the flags.
        remark: what was assumed.
        gain: in the item's metric, where no estimate of both exists.
    """

    state: State
    better: EstimateResult | None = None
    worse: EstimateResult | None = None
    change: str = ""
    remark: str = ""
    gain: float | None = None


def advise(
    model: str | ModelSpec,
    gpu: str | GpuSpec | None = None,
    *,
    load: LoadRequest,
    acceptance: float = ACCEPTANCE,
    draft_model: str | None = None,
    cached: float = CACHED_SHARE,
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
        options: the deployment, as for `resolve_setting`.

    Raises:
        CapplanError: what `capplan.estimate` raises for the deployment as it is.
    """
    if not 0 < cached < 1:
        raise UsageError(f"a share lies between 0 and 1, not at {cached:g}", where="--prefix-hit-rate")
    setting = resolve_setting(model, gpu, **options)
    answer = estimate_of(setting, load)
    here = _Deployed(model, gpu, load, options, setting, answer.result, acceptance, draft_model, cached)
    found = [_advice(item, here) for item in CHECKLIST]
    rank: dict[State, int] = {"possible": 0, "in place": 1, "not possible": 2}
    items = sorted(found, key=lambda advice: (rank[advice.state], -(advice.gain or 0)))
    now = answer.result
    return Answer(
        command="advise",
        inputs={**answer.inputs, "acceptance": acceptance, "cached_share": cached},
        result=AdviseResult(tuple(items), now.mean_ttft_ms, now.mean_tpot_ms, now.output_throughput),
        assumptions=answer.assumptions,
        warnings=answer.warnings,
        sources=answer.sources,
        provenance={"items": answer.provenance["mean_tpot_ms"]},
    )


def _advice(item: _Item, here: _Deployed) -> Advice:
    try:
        trial = item.tried(here)
    except CapplanError as error:
        trial = _Trial("not possible", remark=error.message)
    gains: dict[str, float | None] = dict.fromkeys(("throughput", "tpot", "ttft", "memory"))
    if trial.better is not None and trial.worse is not None:
        gains = _gains(trial.better, trial.worse, here.load)
    gain = trial.gain if trial.gain is not None else gains[item.metric]
    return Advice(
        item.item,
        item.category,
        item.claim,
        trial.state,
        item.metric,
        gain,
        trial.change,
        gains["throughput"],
        gains["tpot"],
        gains["ttft"],
        gains["memory"],
        trial.remark,
    )


def _gains(better: EstimateResult, worse: EstimateResult, load: LoadRequest) -> dict[str, float | None]:
    served = better.output_throughput / worse.output_throughput
    if load.request_rate is not None:
        served = better.saturation_rate / worse.saturation_rate
    memory = None
    if better.kv_capacity_tokens and worse.kv_capacity_tokens:
        memory = better.kv_capacity_tokens / worse.kv_capacity_tokens
    return {
        "throughput": served,
        "tpot": worse.mean_tpot_ms / better.mean_tpot_ms,
        "ttft": worse.mean_ttft_ms / better.mean_ttft_ms,
        "memory": memory,
    }


def _sixteen_bits(here: _Deployed) -> _Trial:
    """Weights of 16 bits beside those of 32, whose products run at the 32-bit rate; by the bound, for both."""
    deployed = here.setting.spec.dtype
    if deployed == "fp32" and here.options.get("weight_dtype") is None:
        return _Trial("possible", here.changed(weight_dtype="bf16"), here.now, "--weight-dtype bf16")
    step = Step(prefill=(Prefill(1, sequences=1),))
    now, wide = (_weight_bytes(setting, step) for setting in (here.setting, _with(here, weight_dtype="fp32")))
    remark = "bytes of weights that a step reads, beside those of fp32: the gain of a step that memory binds"
    return _Trial("in place", remark=remark, gain=wide / now)


def _weight_bytes(setting: Setting, step: Step) -> float:
    return float(ledger(setting.spec, step, setting.sharding, setting.formats).totals.traffic.weights)


def _with(here: _Deployed, **options: Any) -> Setting:
    merged: SettingOptions = {**here.options, **options}  # type: ignore[typeddict-item]
    return resolve_setting(here.model, here.gpu, **merged)


def _flash_attention(here: _Deployed) -> _Trial:
    """The bound of a prompt's attention with scores kept on chip beside scores written to memory and read again."""
    setting = here.setting
    step = Step(prefill=(Prefill(max(1, round(here.load.isl))),))
    kinds: tuple[Literal["naive", "flash"], ...] = ("naive", "flash")
    naive, flash = (
        sum(
            float(operator.count * operator_bound(operator, setting.gpu).seconds)
            for operator in ledger(setting.spec, step, setting.sharding, setting.formats, attention=kind).of_kind(
                "prefill_attention", "mla_prefill"
            )
        )
        for kind in kinds
    )
    if not flash:
        return _Trial("not possible", remark="no layer attends by softmax")
    remark = f"bound of a prompt's attention: {1e3 * naive:.3g} ms naive, {1e3 * flash:.3g} ms flash"
    return _Trial("in place", remark=remark, gain=naive / flash)


def _fewer_kv_heads(here: _Deployed) -> _Trial:
    """A model with a KV head for each query head beside this one; for a model that has them, one with an eighth."""
    spec = here.setting.spec
    mixers = [mixer for block in spec.blocks.values() for mixer in block.mixer]
    own = [mixer for mixer in mixers if isinstance(mixer, Attention) and mixer.cache == "own"]
    if not own:
        return _Trial("not possible", remark="its cache is not one of keys and values for each head")
    shared = any(mixer.kv_heads < mixer.heads for mixer in own)

    def other(mixer: Any) -> Any:
        if not isinstance(mixer, Attention):
            return mixer
        heads = mixer.heads if shared else max(1, mixer.heads // 8)
        return replace(mixer, kv_heads=heads)

    blocks = {name: replace(block, mixer=tuple(map(other, block.mixer))) for name, block in spec.blocks.items()}
    changed = replace(spec, name=f"{spec.name}-{'mha' if shared else 'gqa'}", blocks=blocks)
    if shared:
        try:
            worse = here.changed(changed)
        except CapplanError:
            return _Trial("in place", remark="with a KV head for each query head it would not fit")
        return _Trial("in place", here.now, worse, remark="beside a KV head for each query head")
    remark = "a model trained with one KV head for eight query heads; this one would have to be trained again"
    return _Trial("possible", here.changed(changed), here.now, "--model of such a kind", remark)


def _kv_format(here: _Deployed) -> _Trial:
    if here.setting.formats.kv_name != "fp8":
        return _Trial("possible", here.changed(kv_cache_dtype="fp8"), here.now, "--kv-cache-dtype fp8")
    return _Trial("in place", here.now, here.changed(kv_cache_dtype="bf16"), remark="beside bf16")


def _prefix_caching(here: _Deployed) -> _Trial:
    load = here.load
    if load.prefix_hit_rate:
        worse = estimate_of(here.setting, replace(load, prefix_hit_rate=0.0)).result
        remark = f"{load.prefix_hit_rate:.0%} of the input found"
        return _Trial("in place", here.now, worse, remark=remark)
    better = estimate_of(here.setting, replace(load, prefix_hit_rate=here.cached)).result
    return _Trial("possible", better, here.now, "--enable-prefix-caching", f"{here.cached:.0%} of the input found")


def _continuous_batching(here: _Deployed) -> _Trial:
    """Static batches of as many requests: all wait for the longest, of outputs spread evenly up to twice the mean."""
    load, now = here.load, here.now
    replica, _, _ = served_replica(here.setting, load)
    groups = here.setting.sharding.dp
    batch = max(1, round(now.admitted_batch / groups))
    longest = max(1, round(load.osl * 2 * batch / (batch + 1)))
    run = batch_run(replica, batch, round(load.isl), longest)
    static = groups * run.request_rate * load.osl
    remark = (
        f"beside static batches of {batch} that wait for their longest output, {longest} of {load.osl:g} on average"
    )
    return _Trial("in place", remark=remark, gain=now.output_throughput / static)


def _four_bits(here: _Deployed) -> _Trial:
    name = "awq-int4-g128"
    if here.setting.inputs["weight_dtype"] in (name, "awq", "gptq"):
        return _Trial("in place", here.now, here.changed(weight_dtype="bf16"), remark="beside bf16")
    return _Trial("possible", here.changed(weight_dtype=name), here.now, f"--weight-dtype {name}")


def _speculation(here: _Deployed) -> _Trial:
    heads = 0 if here.draft_model or here.setting.spec.mtp else DRAFTED
    drafting = DraftRequest(DRAFTED, here.acceptance, here.draft_model, heads)
    better = estimate_of(here.setting, here.load, drafting).result
    who = here.draft_model or ("its MTP layers" if not heads else f"{heads} Medusa heads")
    flag = f"--draft-model {here.draft_model}" if here.draft_model else (f"--medusa-heads {heads}" if heads else "")
    change = f"--speculative-tokens {DRAFTED} {flag}".strip()
    return _Trial("possible", better, here.now, change, f"{who}, {here.acceptance:.0%} of the drafts accepted")


def _tensor_parallel(here: _Deployed) -> _Trial:
    size = 2 * here.setting.sharding.tp
    return _Trial(
        "possible",
        here.changed(tensor_parallel_size=size),
        here.now,
        f"--tensor-parallel-size {size}",
        "twice the devices: linear would be 2",
    )


def _cuda_graphs(here: _Deployed) -> _Trial:
    if here.setting.machine.cuda_graphs:
        return _Trial("in place", here.now, here.changed(enforce_eager=True), remark="beside --enforce-eager")
    if here.setting.deployment.engine == "transformers":
        return _Trial("not possible", remark="this engine launches every kernel from the host")
    return _Trial("possible", here.changed(enforce_eager=False), here.now, "without --enforce-eager")


def _chunk_budget(here: _Deployed) -> _Trial:
    now = here.setting.deployment.max_num_batched_tokens
    tried = [(here.changed(max_num_batched_tokens=size), size) for size in CHUNKS if size != now]
    best, size = min(tried, key=lambda pair: pair[0].mean_ttft_ms)
    remark = f"the budget of {', '.join(map(str, CHUNKS))} with the shortest TTFT"
    return _Trial("possible", best, here.now, f"--max-num-batched-tokens {size}", remark)


def _larger_gpu(here: _Deployed) -> _Trial:
    present = here.setting.gpu
    for name in UPGRADES:
        other = resolve_setting(here.model, name, **here.options)
        if other.gpu.memory.bandwidth > 1.05 * present.memory.bandwidth:
            better = estimate_of(other, here.load).result
            return _Trial("possible", better, here.now, f"--gpu {name}", f"as many of them as of {present.name}")
    return _Trial("not possible", remark="no device with a measured profile has more bandwidth")


def _more_replicas(here: _Deployed) -> _Trial:
    """Two replicas share the clients, or the requests, evenly."""
    load = here.load
    half = replace(
        load,
        concurrency=load.concurrency / 2 if load.concurrency else None,
        request_rate=load.request_rate / 2 if load.request_rate else None,
    )
    one = estimate_of(here.setting, half).result
    both = replace(
        one,
        output_throughput=2 * one.output_throughput,
        saturation_rate=2 * one.saturation_rate,
        kv_capacity_tokens=2 * one.kv_capacity_tokens if one.kv_capacity_tokens else None,
    )
    return _Trial("possible", both, here.now, "--replicas 2", "twice the devices, half of the load on each")


CHECKLIST: tuple[_Item, ...] = (
    _Item("16-bit weights", "baseline", "2x less memory, faster", "memory", _sixteen_bits),
    _Item("flash attention", "baseline", "2-4x faster attention", "ttft", _flash_attention),
    _Item("GQA or MQA model", "KV cache", "4-8x smaller cache", "memory", _fewer_kv_heads),
    _Item("8-bit KV cache", "KV cache", "2x smaller cache", "memory", _kv_format),
    _Item("prefix caching", "KV cache", "prompts' caches used again", "ttft", _prefix_caching),
    _Item("continuous batching", "batching", "2-5x throughput", "throughput", _continuous_batching),
    _Item("chunk budget", "batching", "", "ttft", _chunk_budget),
    _Item("4-bit weights (AWQ)", "model", "4x less memory, 1.5-2x faster", "tpot", _four_bits),
    _Item("speculative decoding", "model", "2-3x faster", "tpot", _speculation),
    _Item("tensor parallel", "hardware", "linear scaling", "throughput", _tensor_parallel),
    _Item("CUDA graphs", "hardware", "no launch overhead", "tpot", _cuda_graphs),
    _Item("larger GPU", "hardware", "", "throughput", _larger_gpu),
    _Item("more replicas", "hardware", "", "throughput", _more_replicas),
)


def items() -> Iterator[str]:
    """The names of the checklist's items."""
    return (item.item for item in CHECKLIST)
