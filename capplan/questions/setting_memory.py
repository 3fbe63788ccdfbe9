"""The memory budget of a setting: what its engine leaves for the KV cache beside the weights."""

from __future__ import annotations

from capplan.describe.engine import engine_rules
from capplan.errors import UsageError
from capplan.memory.budget import MemoryBudget, memory_budget
from capplan.questions.drafting import Drafts
from capplan.questions.fit_plan import plan_request
from capplan.questions.fit_request import FitRequest
from capplan.questions.setting import Setting
from capplan.serving.replica import EngineSettings, Replica


def setting_budget(
    setting: Setting, max_model_len: int, max_num_seqs: int | None = None, drafts: Drafts | None = None
) -> MemoryBudget:
    """The budget of a setting for requests of at most `max_model_len` tokens, beside what drafts.

    Raises:
        UsageError: a setting that its engine would refuse.
    """
    deployment, parallel = setting.deployment, setting.deployment.parallel
    request = FitRequest(
        model=setting.spec,
        gpu=setting.gpu.name,
        engine=deployment.engine,
        engine_version=deployment.engine_version,
        tensor_parallel_size=parallel.tp,
        pipeline_parallel_size=parallel.pp,
        data_parallel_size=parallel.dp,
        enable_expert_parallel=parallel.ep > 1,
        decode_context_parallel_size=parallel.cp,
        stage_layers=parallel.stage_layers,
        weight_dtype=deployment.weight_dtype,
        kv_cache_dtype=deployment.kv_cache_dtype,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        enforce_eager=deployment.enforce_eager,
        num_speculative_tokens=drafts.speculation.tokens if drafts else 0,
        draft_model=drafts.spec if drafts else None,
        medusa_heads=drafts.speculation.medusa_heads if drafts else 0,
    )
    engine = engine_rules(deployment.engine, deployment.engine_version)
    return memory_budget(plan_request(request, engine, setting.gpu, None, ()).plan)


def fitting_budget(
    setting: Setting, max_model_len: int, max_num_seqs: int | None = None, drafts: Drafts | None = None
) -> MemoryBudget:
    """`setting_budget` of a setting that fits.

    Raises:
        UsageError: it does not.
    """
    budget = setting_budget(setting, max_model_len, max_num_seqs, drafts)
    if not budget.fits:
        reasons = "; ".join(shortage.reason for shortage in budget.shortages)
        raise UsageError(
            f"{setting.spec.name} does not fit on {setting.gpus} x {setting.gpu.name}: {reasons}",
            where="--gpu",
            hint="capplan fit shows what is missing and what would fit",
        )
    return budget


def replica_with(setting: Setting, budget: MemoryBudget) -> Replica:
    """The server of a setting, with the KV pool that its budget leaves."""
    settings = EngineSettings(
        max_num_batched_tokens=setting.deployment.max_num_batched_tokens or budget.plan.max_num_batched_tokens,
        max_num_seqs=budget.plan.max_num_seqs,
    )
    tokens = float(budget.capacity.capacity_tokens)
    return Replica(setting.spec, setting.machine, setting.sharding, setting.formats, settings, tokens)
