"""Everything that a memory budget depends on, resolved: what the user said, and what the engine chooses itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from capplan.describe.deployment import Parallel
from capplan.describe.engine import Engine, StateMode, Tier
from capplan.describe.gguf import GgufFile
from capplan.describe.gguf_mix import GgufMix
from capplan.describe.model import LatentAttention, ModelSpec
from capplan.describe.quantisation import QuantisationPlan
from capplan.errors import UsageError
from capplan.memory.cache_layers import CacheLayer, CacheRequest, cache_layers
from capplan.memory.kv_format import KvFormat
from capplan.memory.offload import Offload
from capplan.memory.paging import StepLimits

_GIB = 2**30
WeightPlan = QuantisationPlan | GgufMix | GgufFile
"""A plan by module, a mix of llama.cpp's, or the tensors of a file."""


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator as the engine sees it.

    Args:
        bytes: its memory as CUDA reports it; None: not known, and not needed when the pool is given.
        basis: where the figure comes from.
        architecture: the architecture's name, which decides some block sizes.
        in_use: what other processes hold.
    """

    bytes: int | None
    basis: str = ""
    architecture: str = "other"
    in_use: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """Figures that the user gives instead of letting them be worked out, in bytes a rank.

    Args:
        pools: the bytes for caches, one figure for all stages or one a stage; exact.
        pool_is_setting: the engine was told the pool, which must fit in the device's memory.
        weights: the weights as loaded.
        activations: the activation peak.
        runtime: memory that is not PyTorch's, collectives included.
        graphs: CUDA graphs.
    """

    pools: tuple[int, ...] = ()
    pool_is_setting: bool = False
    weights: int | None = None
    activations: int | None = None
    runtime: int | None = None
    graphs: int | None = None


@dataclass(frozen=True, slots=True)
class Extras:
    """What is loaded beside the model.

    Args:
        adapters: slots for LoRA adapters.
        adapter_rank: their rank.
        draft: a model that drafts.
        draft_plan: how its weights are stored.
        medusa_heads: Medusa heads.
        encoder_tokens: tokens' worth of images or sound that the towers encode at once; None: as many as a step takes.
        towers: False: the model runs without its towers' inputs.
    """

    adapters: int = 0
    adapter_rank: int = 16
    draft: ModelSpec | None = None
    draft_plan: QuantisationPlan | None = None
    medusa_heads: int = 0
    encoder_tokens: int | None = None
    towers: bool = True


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """One replica on one engine, with every choice made.

    Args:
        spec: the model.
        engine: the engine at its version.
        device: one of the devices.
        parallel: how ranks divide the work.
        weights: how the weights are stored.
        kv: how keys and values are stored.
        utilization: the fraction of device memory that the engine takes.
        max_model_len: the longest request.
        max_num_seqs: the most sequences at once.
        max_num_batched_tokens: the most tokens of a step.
        block_size: tokens of a block.
        hybrid: the hybrid cache manager is on.
        prefix_caching: prefixes are kept.
        state_mode: how states are kept for them.
        eager: no CUDA graphs.
        draft_tokens: tokens drafted a step.
        state_dtype: the dtype of recurrent states, where the user says it.
        state_slots: slots for states, where the user says it.
        source_tokens: tokens of an encoder's input.
        known: figures that the user gives.
        extras: adapters, drafts, encoders.
        offload: what lies in host memory.
        host_memory: bytes of host memory for all ranks together; None: enough.
        decoding: sequences of a usual step, for what an offload moves; None: as many as may run.
    """

    spec: ModelSpec
    engine: Engine
    device: Device
    parallel: Parallel
    weights: WeightPlan
    kv: KvFormat
    utilization: Fraction
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    hybrid: bool = True
    prefix_caching: bool = True
    state_mode: StateMode = "none"
    eager: bool = False
    draft_tokens: int = 0
    state_dtype: str | None = None
    state_slots: int | None = None
    source_tokens: int | None = None
    known: Known = field(default_factory=Known)
    extras: Extras = field(default_factory=Extras)
    offload: Offload | None = None
    host_memory: int | None = None
    decoding: int | None = None

    @property
    def limits(self) -> StepLimits:
        """What the engine lets run at once."""
        rules = self.engine.rules
        return StepLimits(
            self.max_num_batched_tokens,
            max(rules.in_flight_batches, self.parallel.pp if rules.in_flight_batches > 1 else 1),
            self.draft_tokens,
            self.state_mode,
            self.parallel.cp,
        )

    @property
    def activation_dtype(self) -> str:
        """The dtype of activations: that of the published weights, 16 bits at least."""
        return "bf16" if self.spec.dtype == "fp8" else self.spec.dtype


def plan_layers(plan: ServingPlan) -> tuple[CacheLayer, ...]:
    """Every cache that the plan's layers keep, with those of a draft model behind them."""
    rules = plan.engine.rules
    request = CacheRequest(
        rules=rules,
        kv=plan.kv,
        tp=plan.parallel.tp,
        model_dtype=plan.activation_dtype,
        state_dtype=plan.state_dtype,
        draft_tokens=plan.draft_tokens,
        source_tokens=_source_tokens(plan),
    )
    layers = cache_layers(plan.spec, request)
    if plan.extras.draft is None:
        return layers
    first = max((layer.layer for layer in layers), default=-1) + 1
    drafting = cache_layers(plan.extras.draft, replace(request, draft_tokens=0))
    return (*layers, *(replace(layer, layer=layer.layer + first) for layer in drafting))


def _source_tokens(plan: ServingPlan) -> int | None:
    """Room for the encoder's output: what the user says, or as much as vLLM encodes in a step."""
    if plan.source_tokens is not None:
        return plan.source_tokens
    if plan.engine.rules.pool == "groups":
        return plan.max_num_batched_tokens
    return plan.max_model_len if plan.spec.encoder else None


def step_tier(engine: Engine, device: Device) -> Tier:
    """The engine's defaults for a device of this size."""
    size = device.bytes if device.bytes is not None else 0
    fitting = [tier for tier in engine.rules.tiers if size >= tier.least_gib * _GIB]
    return fitting[0] if fitting else engine.rules.tiers[-1]


def default_batched_tokens(engine: Engine, device: Device, max_model_len: int, *, chunked: bool | None = None) -> int:
    """Tokens of a step where the user says nothing.

    Older versions of vLLM take whole prompts, unless chunked prefill is on, which it is by itself for long contexts.
    """
    rules = engine.rules
    tier = step_tier(engine, device).max_num_batched_tokens
    if not rules.prefill_whole_prompts:
        return tier
    above = rules.chunked_prefill_above
    on = chunked if chunked is not None else above is not None and max_model_len > above
    return rules.chunked_prefill_tokens if on else max(max_model_len, tier)


def default_block_size(spec: ModelSpec, engine: Engine, device: Device) -> int:
    """Tokens of a block where the user says nothing: MLA's kernels want larger ones on newer devices."""
    rules = engine.rules
    latent = any(isinstance(mixer, LatentAttention) for block in spec.blocks.values() for mixer in block.mixer)
    if latent and rules.latent_block_size and device.architecture in rules.latent_block_architectures:
        return rules.latent_block_size
    return rules.block_size


def default_utilization(
    engine: Engine, device: Device, batched_tokens: int, parallel: Parallel, drafts: bool
) -> Fraction:
    """The fraction where the user says nothing.

    SGLang sets memory aside for a step and rounds: ``round((M - reserve) / M, 3)`` in MiB, with
    ``reserve = 512 + 1.5·T + 2·graph batch + 1024·tp·pp/8``, 10 GiB at least on devices above 60 GiB, 2 GiB more when
    it speculates.

    Source: SGLang, python/sglang/srt/server_args.py.
    """
    if engine.rules.utilization is not None:
        return Fraction(str(engine.rules.utilization))
    if engine.rules.budget == "whole" or device.bytes is None:
        return Fraction(1)
    mib = Fraction(device.bytes, 2**20)
    small = parallel.tp < 4
    graph_batch = next(
        (few if small else many for least, few, many in _GRAPH_BATCHES if mib >= least * 1024), _GRAPH_BATCHES[-1][1]
    )
    reserve = 512 + Fraction(3, 2) * max(batched_tokens, 2048) + 2 * graph_batch
    reserve += Fraction(1024 * parallel.tp * parallel.pp, 8)
    if mib > 60 * 1024:
        reserve = max(reserve, Fraction(10 * 1024))
    reserve += 2048 if drafts else 0
    return max(Fraction(1, 1000), Fraction(round((mib - reserve) / mib * 1000), 1000))


_GRAPH_BATCHES = ((160, 512, 512), (60, 256, 512), (35, 32, 160), (20, 24, 80), (0, 8, 8))
"""(device GiB at least, largest batch of CUDA graphs with fewer than 4 ranks, with more), as SGLang chooses."""


def default_state_mode(engine: Engine, prefix_caching: bool | None, mode: str | None) -> StateMode:
    """How states are kept: as the user says, or as the engine does when prefix caching is on for hybrids.

    Raises:
        UsageError: a mode that this version does not have.
    """
    modes = engine.rules.state_modes
    if mode is not None:
        if mode != "none" and mode not in modes:
            raise UsageError(
                f"{engine.title} {engine.version} cannot cache states in mode {mode!r}",
                where="--prefix-caching-mode",
                hint=f"it has {', '.join(('none', *modes))}",
            )
        return "align" if mode == "align" else "all" if mode == "all" else "none"
    wanted = engine.rules.state_prefix_caching if prefix_caching is None else prefix_caching
    return modes[0] if wanted and modes else "none"
