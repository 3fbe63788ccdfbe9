"""What ``plan`` answers."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class PlanParallel:
    """How the ranks of a replica share the model.

    Args:
        tensor_parallel_size: ranks that share every layer.
        pipeline_parallel_size: stages.
        data_parallel_size: groups that share the sequences of attention.
        expert_parallel: experts are divided by number over all ranks of a stage.
    """

    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    expert_parallel: bool


@dataclass(frozen=True)
class PlanFormats:
    """Number formats.

    Args:
        weights: the precision of the weights.
        model: the checkpoint, as ``--model`` takes it.
        weight_dtype: a scheme that the engine makes of it when it loads; null: as it is stored.
        kv_cache_dtype: of the cache; ``auto``: as the checkpoint says.
    """

    weights: str
    model: str
    weight_dtype: str | None
    kv_cache_dtype: str


@dataclass(frozen=True)
class PlanSettings:
    """What the engine is told beside the division."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float


@dataclass(frozen=True)
class PlanDrafts:
    """How a plan drafts."""

    speculative_tokens: int
    acceptance: float
    draft_model: str | None
    draft_model_id: str | None


@dataclass(frozen=True)
class PlanPools:
    """Replicas that only prefill, and replicas that only decode.

    Args:
        prefill_replicas: of each unit.
        decode_replicas: of each unit.
        units: equal pairs of pools, each with a router of its own.
        kv_transfer_ms: milliseconds that a prompt's cache takes to the decode pool; part of TTFT.
        prefill_utilisation: share of the time in which the prefill pool works at the load.
        prefill_launch: the command that starts one replica that prefills.
        router: the command that starts what stands before both pools.
    """

    prefill_replicas: int
    decode_replicas: int
    units: int
    kv_transfer_ms: float
    prefill_utilisation: float
    prefill_launch: str
    router: str


@dataclass(frozen=True)
class PlanRow:
    """One deployment.

    Args:
        gpu: the device.
        gpus: devices that are hired.
        gpus_per_replica: devices of one replica.
        gpus_per_node: devices of one host, at most.
        model_id: what the engine is told to load.
        drafting: null: it does not.
        pools: null: each replica does both prefill and decode.
        replicas: that run, spare ones included.
        concurrency: requests at once on each replica that takes load, or that decodes.
        ttft_ms: mean milliseconds to the first token at that load.
        tpot_ms: mean milliseconds of each further token.
        e2e_ms: mean milliseconds of a request.
        ttft_margin: share of the limit that is left; null: no limit.
        tpot_margin: likewise.
        request_capacity: requests a second that these replicas serve in time, at the bad end of the interval.
        utilisation: the load over that.
        cost_per_hour: dollars.
        cost_per_month: 730 hours.
        cost_per_1m_tokens: over input and output tokens of the load.
        price_per_gpu_hour: dollars.
        provider: null: the price was given.
        instance: null: GPUs are hired singly.
        instances: how many.
        pareto: no other plan is better in one of cost, TPOT and TTFT and as good in the rest.
        launch: the command that starts one replica, or one that decodes.
        check: commands that ask ``fit`` and ``estimate`` about one replica.
        notes: what may mislead.
    """

    gpu: str
    gpus: float
    gpus_per_replica: int
    gpus_per_node: int
    model_id: str
    parallel: PlanParallel
    engine: str
    formats: PlanFormats
    settings: PlanSettings
    drafting: PlanDrafts | None
    pools: PlanPools | None
    replicas: int
    concurrency: int
    ttft_ms: float
    ttft_ms_low: float
    ttft_ms_high: float
    tpot_ms: float
    tpot_ms_low: float
    tpot_ms_high: float
    e2e_ms: float
    ttft_margin: float | None
    tpot_margin: float | None
    request_capacity: float
    utilisation: float
    cost_per_hour: Decimal
    cost_per_month: Decimal
    cost_per_1m_tokens: Decimal
    price_per_gpu_hour: Decimal
    provider: str | None
    instance: str | None
    instances: int
    pareto: bool
    launch: str
    check: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class NearMiss:
    """An option that nearly made it: by how much it missed, in words and as a number."""

    option: str
    detail: str
    gap: float


@dataclass(frozen=True)
class Rejected:
    """Why options fell out.

    Args:
        reason: why.
        options: how many options, or devices.
        nearest: the nearest misses.
    """

    reason: str
    options: int
    nearest: tuple[NearMiss, ...]


@dataclass(frozen=True)
class PlanResult:
    """Deployments that keep the limits, the cheapest first.

    Args:
        currency: of every amount.
        plans: the best of each device.
        rejected: why the others fail.
        options: everything that could be built.
        worked_out: options whose times were worked out.
    """

    currency: str
    plans: tuple[PlanRow, ...]
    rejected: tuple[Rejected, ...]
    options: int
    worked_out: int
