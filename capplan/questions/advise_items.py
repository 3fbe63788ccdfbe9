"""The items of the checklist, and how each is tried on a deployment.

An item that is not in place is estimated as a changed deployment beside the present one; an item that is in place
already is estimated by taking it away, so that its gain is what it gives now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from capplan.cost.amounts import shown_usd
from capplan.describe.gpu import GpuSpec
from capplan.describe.model import Attention
from capplan.errors import CapplanError, NotFoundError
from capplan.questions.advise_trial import Deployed, Item, Trial
from capplan.questions.drafting import DraftRequest
from capplan.questions.estimate import estimate_of, served_replica
from capplan.questions.plan_request import Folders
from capplan.questions.plan_space import devices
from capplan.questions.setting import Setting, SettingOptions, resolve_setting
from capplan.serving.batch_run import batch_run
from capplan.timing.roofline import operator_bound
from capplan.work.step import Prefill, Step, ledger

DRAFTED = 4
"""Tokens drafted a round."""

FASTER = 1.05
"""Bandwidth of a larger device, at least, in those of the present one."""

CHUNKS = (2048, 4096, 8192, 16384)
"""Token budgets of a step that are tried."""


def _sixteen_bits(here: Deployed) -> Trial:
    """Weights of 16 bits beside those of 32, whose products run at the 32-bit rate; by the bound, for both."""
    deployed = here.setting.spec.dtype
    if deployed == "fp32" and here.options.get("weight_dtype") is None:
        return Trial("possible", here.changed(weight_dtype="bf16"), here.now, "--weight-dtype bf16")
    step = Step(prefill=(Prefill(1, sequences=1),))
    now, wide = (_weight_bytes(setting, step) for setting in (here.setting, _with(here, weight_dtype="fp32")))
    remark = "bytes of weights that a step reads, beside those of fp32: the gain of a step that memory binds"
    return Trial("in place", remark=remark, gain=wide / now)


def _weight_bytes(setting: Setting, step: Step) -> float:
    return float(ledger(setting.spec, step, setting.sharding, setting.formats).totals.traffic.weights)


def _with(here: Deployed, **options: Any) -> Setting:
    merged: SettingOptions = {**here.options, **options}  # type: ignore[typeddict-item]
    return resolve_setting(here.model, here.gpu, **merged)


def _flash_attention(here: Deployed) -> Trial:
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
        return Trial("not possible", remark="no layer attends by softmax")
    remark = f"bound of a prompt's attention: {1e3 * naive:.3g} ms naive, {1e3 * flash:.3g} ms flash"
    return Trial("in place", remark=remark, gain=naive / flash)


def _fewer_kv_heads(here: Deployed) -> Trial:
    """A model with a KV head for each query head beside this one; for a model that has them, one with an eighth."""
    spec = here.setting.spec
    mixers = [mixer for block in spec.blocks.values() for mixer in block.mixer]
    own = [mixer for mixer in mixers if isinstance(mixer, Attention) and mixer.cache == "own"]
    if not own:
        return Trial("not possible", remark="its cache is not one of keys and values for each head")
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
            return Trial("in place", remark="with a KV head for each query head it would not fit")
        return Trial("in place", here.now, worse, remark="beside a KV head for each query head")
    remark = "a model trained with one KV head for eight query heads; this one would have to be trained again"
    return Trial("possible", here.changed(changed), here.now, "--model of such a kind", remark)


def _kv_format(here: Deployed) -> Trial:
    if here.setting.formats.kv_name != "fp8":
        return Trial("possible", here.changed(kv_cache_dtype="fp8"), here.now, "--kv-cache-dtype fp8")
    return Trial("in place", here.now, here.changed(kv_cache_dtype="bf16"), remark="beside bf16")


def _prefix_caching(here: Deployed) -> Trial:
    load = here.load
    if load.prefix_hit_rate:
        worse = estimate_of(here.setting, replace(load, prefix_hit_rate=0.0)).result
        remark = f"{load.prefix_hit_rate:.0%} of the input found"
        return Trial("in place", here.now, worse, remark=remark)
    better = estimate_of(here.setting, replace(load, prefix_hit_rate=here.cached)).result
    return Trial("possible", better, here.now, "--enable-prefix-caching", f"{here.cached:.0%} of the input found")


def _continuous_batching(here: Deployed) -> Trial:
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
    return Trial("in place", remark=remark, gain=now.output_throughput / static)


def _four_bits(here: Deployed) -> Trial:
    name = "awq-int4-g128"
    if here.setting.inputs["weight_dtype"] in (name, "awq", "gptq"):
        worse = here.changed(weight_dtype="bf16", kv_cache_dtype=here.setting.formats.kv_name)
        return Trial("in place", here.now, worse, remark="beside bf16")
    kept = here.setting.formats.kv_name
    change = f"--weight-dtype {name} --kv-cache-dtype {kept}"
    return Trial("possible", here.changed(weight_dtype=name, kv_cache_dtype=kept), here.now, change)


def _speculation(here: Deployed) -> Trial:
    heads = 0 if here.draft_model or here.setting.spec.mtp else DRAFTED
    drafting = DraftRequest(DRAFTED, here.acceptance, here.draft_model, heads)
    better = estimate_of(here.setting, here.load, drafting).result
    who = here.draft_model or ("its MTP layers" if not heads else f"{heads} Medusa heads")
    flag = f"--draft-model {here.draft_model}" if here.draft_model else (f"--medusa-heads {heads}" if heads else "")
    change = f"--speculative-tokens {DRAFTED} {flag}".strip()
    return Trial("possible", better, here.now, change, f"{who}, {here.acceptance:.0%} of the drafts accepted")


def _tensor_parallel(here: Deployed) -> Trial:
    size = 2 * here.setting.sharding.tp
    return Trial(
        "possible",
        here.changed(tensor_parallel_size=size),
        here.now,
        f"--tensor-parallel-size {size}",
        "twice the devices: linear would be 2",
        dearer=2.0,
    )


def _cuda_graphs(here: Deployed) -> Trial:
    if here.setting.machine.cuda_graphs:
        return Trial("in place", here.now, here.changed(enforce_eager=True), remark="beside --enforce-eager")
    if here.setting.deployment.engine == "transformers":
        return Trial("not possible", remark="this engine launches every kernel from the host")
    return Trial("possible", here.changed(enforce_eager=False), here.now, "without --enforce-eager")


def _chunk_budget(here: Deployed) -> Trial:
    now = here.setting.deployment.max_num_batched_tokens
    tried = [(here.changed(max_num_batched_tokens=size), size) for size in CHUNKS if size != now]
    best, size = min(tried, key=lambda pair: pair[0].mean_ttft_ms)
    remark = f"the budget of {', '.join(map(str, CHUNKS))} with the shortest TTFT"
    return Trial("possible", best, here.now, f"--max-num-batched-tokens {size}", remark)


def _larger_gpu(here: Deployed) -> Trial:
    """The next device up: of more bandwidth and no less of the rest, and one that was measured itself."""
    present = here.setting.gpu
    folders = tuple(here.options.get("hardware_dirs", ()))
    for gpu in sorted(devices((), Folders(hardware=folders)), key=lambda gpu: gpu.memory.bandwidth):
        if not _larger(gpu, present):
            continue
        other = resolve_setting(here.model, gpu, **here.options)
        if other.machine.kernels is not None and not other.machine.kernels.carried:
            better = estimate_of(other, here.load).result
            dearer, prices = _dearer(here, gpu)
            remark = f"as many of them as of {present.name}{prices}"
            return Trial("possible", better, here.now, f"--gpu {gpu.name}", remark, dearer=dearer)
    return Trial("not possible", remark="no device with a measured profile has more bandwidth")


def _larger(gpu: GpuSpec, present: GpuSpec) -> bool:
    """Whether a device has more bandwidth than another, and no less memory and arithmetic."""
    return (
        gpu.memory.bandwidth > FASTER * present.memory.bandwidth
        and gpu.memory.label_gb >= present.memory.label_gb
        and (gpu.dense_rate("bf16") or 0) >= (present.dense_rate("bf16") or 0)
    )


def _dearer(here: Deployed, other: GpuSpec) -> tuple[float | None, str]:
    """Dollars an hour of a device for each of the present one's, and both."""
    try:
        hired = here.offers.instead(other, here.setting.gpu, here.setting.gpus)
    except NotFoundError as error:
        return None, f"; {error.message}"
    then, now = (hire.usd_per_gpu_hour for hire in hired)
    return float(then / now), f", {shown_usd(then)} a GPU-hour beside {shown_usd(now)}"


def _more_replicas(here: Deployed) -> Trial:
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
    share = f"--concurrency {half.concurrency:g}" if half.concurrency else f"--request-rate {half.request_rate:g}"
    remark = f"twice the devices; each answers half of the load ({share})"
    return Trial("possible", both, here.now, "a second replica", remark, dearer=2.0)


CHECKLIST: tuple[Item, ...] = (
    Item("16-bit weights", "baseline", "2x less memory, faster", "memory", _sixteen_bits),
    Item("flash attention", "baseline", "2-4x faster attention", "ttft", _flash_attention),
    Item("GQA or MQA model", "KV cache", "4-8x smaller cache", "memory", _fewer_kv_heads),
    Item("8-bit KV cache", "KV cache", "2x smaller cache", "memory", _kv_format),
    Item("prefix caching", "KV cache", "prompts' caches used again", "ttft", _prefix_caching),
    Item("continuous batching", "batching", "2-5x throughput", "throughput", _continuous_batching),
    Item("chunk budget", "batching", "", "ttft", _chunk_budget),
    Item("4-bit weights (AWQ)", "model", "4x less memory, 1.5-2x faster", "tpot", _four_bits),
    Item("speculative decoding", "model", "2-3x faster", "tpot", _speculation),
    Item("tensor parallel", "hardware", "linear scaling", "throughput", _tensor_parallel),
    Item("CUDA graphs", "hardware", "no launch overhead", "tpot", _cuda_graphs),
    Item("larger GPU", "hardware", "", "throughput", _larger_gpu),
    Item("more replicas", "hardware", "", "throughput", _more_replicas),
)
