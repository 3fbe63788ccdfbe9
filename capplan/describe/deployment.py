"""How a model is served: the engine, how its ranks divide the work, number formats, and the engine's limits.

Names and defaults are vLLM's, as `vllm serve` has them today; other engines' options of another name mean the same
here (TensorRT-LLM's ``moe_expert_parallel_size`` is `Parallel.ep`, SGLang's ``--dp-size`` with attention data
parallelism is `Parallel.dp`). A limit that is None is left to the engine, which chooses it by version and device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from capplan.describe.parts import Part, Whole

Size = Annotated[int, Whole(1)]
Count = Annotated[int, Whole(0)]
Engine = Literal["vllm", "sglang", "trtllm", "transformers", "llama.cpp"]
ExpertExchange = Literal["all_gather", "all_to_all"]


@dataclass(frozen=True, kw_only=True)
class Parallel(Part):
    """How many ranks share a model, and along which axes.

    One replica has ``pp`` stages of ``tp · dp`` ranks each. Attention is divided over `tp` ranks by heads, and its
    sequences over `dp` groups; experts are divided over all ``tp · dp`` ranks of a stage: into `ep` groups by number,
    and each expert into ``tp · dp / ep`` slices by width.
    """

    tp: Size = 1
    """Tensor-parallel size (``--tensor-parallel-size``)."""
    pp: Size = 1
    """Pipeline-parallel size (``--pipeline-parallel-size``)."""
    dp: Size = 1
    """Data-parallel size of attention (``--data-parallel-size``)."""
    ep: Size = 1
    """Expert-parallel size; ``--enable-expert-parallel`` makes it ``tp · dp``."""
    cp: Size = 1
    """Ranks of a tensor-parallel group that share one KV cache by position in decode
    (``--decode-context-parallel-size``); they are among the `tp` ranks, not beside them."""
    stage_layers: tuple[Size, ...] = ()
    """Layers of each pipeline stage; empty: the engine's own choice."""
    expert_exchange: ExpertExchange = "all_gather"
    """How tokens reach experts on other data-parallel ranks: all tokens to all ranks, or each to its experts' ranks."""

    def __post_init__(self) -> None:
        if (self.tp * self.dp) % self.ep:
            raise ValueError(f"ep {self.ep} must divide tp x dp = {self.tp * self.dp}")
        if self.tp % self.cp:
            raise ValueError(f"cp {self.cp} must divide tp {self.tp}")
        if self.stage_layers and len(self.stage_layers) != self.pp:
            raise ValueError(f"stage_layers names {len(self.stage_layers)} stages, pp is {self.pp}")

    @property
    def gpus(self) -> int:
        """Ranks of one replica: ``tp · pp · dp``."""
        return self.tp * self.pp * self.dp

    @property
    def moe_tp(self) -> int:
        """Slices of one expert: ``tp · dp / ep``."""
        return self.tp * self.dp // self.ep


@dataclass(frozen=True, kw_only=True)
class Deployment(Part):
    """One replica of one model on one engine."""

    engine: Engine = "vllm"
    engine_version: str | None = None
    parallel: Parallel = field(default_factory=Parallel)
    weight_dtype: str | None = None
    """A number format or weight scheme; None: as the checkpoint stores its weights."""
    kv_cache_dtype: str = "auto"
    """``auto``: the dtype of the activations."""
    max_model_len: Size | None = None
    max_num_seqs: Size | None = None
    max_num_batched_tokens: Size | None = None
    gpu_memory_utilization: float = 0.92
    block_size: Size = 16
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    enforce_eager: bool = False
    """True: no CUDA graphs."""
    num_speculative_tokens: Count = 0
    draft_model: str | None = None
    """The model that drafts; None with `num_speculative_tokens` set: the model's own MTP layers."""

    def __post_init__(self) -> None:
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError(f"gpu_memory_utilization {self.gpu_memory_utilization} must be above 0 and at most 1")
