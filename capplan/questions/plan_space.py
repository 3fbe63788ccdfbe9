"""Everything that could be built of some devices, formats and engines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from capplan.describe.catalog import list_entries
from capplan.describe.gpu import GpuSpec
from capplan.describe.gpu_catalog import load_gpu, read_gpu
from capplan.planner.rejections import Rejections
from capplan.planner.space import Traits, shapes
from capplan.questions.drafting import DraftRequest
from capplan.questions.plan_formats import FormatChoice
from capplan.questions.plan_option import Option
from capplan.questions.plan_request import Folders
from capplan.questions.pools import PoolsChoice


@dataclass(frozen=True)
class Space:
    """What a search or a sweep may choose from.

    Args:
        gpus: devices.
        formats: formats of the weights.
        engines: engines.
        kv_formats: formats of the cache.
        budgets: tokens of a step.
        max_nodes: hosts of one replica, at most.
        drafting: ways to draft; None: not at all.
        pools: ways to keep prefill and decode apart; None: not at all.
    """

    gpus: tuple[GpuSpec, ...]
    formats: tuple[FormatChoice, ...]
    engines: tuple[str, ...]
    kv_formats: tuple[str, ...]
    budgets: tuple[int, ...]
    max_nodes: int
    drafting: tuple[DraftRequest | None, ...] = (None,)
    pools: tuple[PoolsChoice | None, ...] = (None,)


def devices(names: tuple[str, ...], folders: Folders) -> tuple[GpuSpec, ...]:
    """The devices of these names, or every one of the catalog.

    Raises:
        NotFoundError: one that is not there.
    """
    if names:
        return tuple(load_gpu(name, folders.hardware) for name in dict.fromkeys(names))
    return tuple(read_gpu(path) for path in list_entries("hardware", folders.hardware))


def space_options(space: Space, rejections: Rejections) -> Iterator[Option]:
    """Every option, device by device; formats without units of a device's are rejected once."""
    for gpu in space.gpus:
        most = space.max_nodes * (gpu.gpus_per_node or 1)
        caches = [kv for kv in space.kv_formats if not kv.startswith("fp8") or gpu.dense_rate("fp8") is not None]
        for form in space.formats:
            if not form.runs_on(gpu):
                rejections.add(f"no units for {form.label}", gpu.name)
                continue
            for shape in shapes(Traits.of(form.spec), gpu, most):
                ways = product(space.engines, caches, space.budgets, space.drafting, space.pools)
                for engine, kv, budget, draft, pools in ways:
                    yield Option(gpu, engine, form, kv, shape, budget, draft, pools)


def unlaunchable(option: Option) -> str:
    """Why the engine cannot be told the option, or an empty text.

    TensorRT-LLM runs on NVIDIA's GPUs, and makes attention data-parallel wholly or not at all. Of a checkpoint's
    weights vLLM and SGLang can make fp8 ones when they load it; any other scheme wants a checkpoint of its own. Medusa
    heads want one in any case.
    """
    shape, scheme, draft = option.shape, option.format.weight_dtype, option.draft
    if draft is not None:
        reason = _undraftable(option, draft)
        if reason:
            return reason
    if option.engine == "trtllm" and option.gpu.vendor != "NVIDIA":
        return "trtllm runs on NVIDIA's GPUs alone"
    if option.engine == "trtllm" and shape.dp > 1 and shape.tp > 1:
        return "attention is data-parallel wholly or not at all in trtllm"
    if scheme is not None and not (scheme == "fp8" and option.engine in ("vllm", "sglang")):
        return f"{option.engine} does not make {scheme} weights when it loads"
    return ""


def _undraftable(option: Option, draft: DraftRequest) -> str:
    """Why the engine cannot draft so; engines refuse to draft across pipeline stages, or fail at it."""
    if option.pools is not None:
        return "no drafts where prefill and decode are apart"
    if option.shape.pp > 1:
        return "no drafts across pipeline stages"
    if draft.draft_model is None and option.format.spec.mtp is None:
        return "no MTP layers to draft with"
    if draft.draft_model is not None and option.engine == "trtllm":
        return "no draft models are started in trtllm"
    return ""
