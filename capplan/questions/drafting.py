"""What a question about speculative decoding names (a draft model, Medusa heads, MTP layers), looked up and placed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from capplan.describe.model import ModelSpec
from capplan.errors import UsageError
from capplan.questions.setting import Setting, resolve_setting
from capplan.serving.replica import Replica
from capplan.serving.speculation import Speculation, SpeculativeReplica
from capplan.work.sharding import Sharding


@dataclass(frozen=True)
class DraftRequest:
    """How a server drafts.

    Args:
        speculative_tokens: tokens drafted a round; 0: as many as there are Medusa heads.
        acceptance: the chance that a drafted token is accepted when those before it were.
        draft_model: a model's reference, or its description; None: Medusa heads, or the model's own MTP layers.
        medusa_heads: heads that draft one token each.
    """

    speculative_tokens: int
    acceptance: float
    draft_model: str | ModelSpec | None = None
    medusa_heads: int = 0

    def __post_init__(self) -> None:
        if self.draft_model is not None and self.medusa_heads:
            raise UsageError("a draft model or Medusa heads draft, not both", where="--medusa-heads")

    @property
    def tokens(self) -> int:
        """Tokens drafted a round."""
        return self.speculative_tokens or self.medusa_heads


@dataclass(frozen=True)
class Drafts:
    """A draft request, looked up.

    Args:
        speculation: the request with the draft model on its ranks.
        spec: the draft model; None: heads or layers of the model itself.
        sources: where the draft's figures came from.
        notes: what was taken for granted.
    """

    speculation: Speculation
    spec: ModelSpec | None
    sources: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """What drafts, in words."""
        if self.spec is not None:
            return self.spec.name
        heads = self.speculation.medusa_heads
        return f"{heads} Medusa heads" if heads else "MTP layers"


def resolve_drafts(setting: Setting, request: DraftRequest) -> Drafts:
    """Look up what drafts; a draft model stands on the ranks of one tensor-parallel group, under the same engine.

    Raises:
        CapplanError: something that does not exist, or that cannot draft for this model.
    """
    draft: Replica | None = None
    sources: tuple[str, ...] = ()
    if request.draft_model is not None:
        parallel = setting.deployment.parallel
        other = resolve_setting(
            request.draft_model,
            setting.gpu,
            engine=setting.deployment.engine,
            tensor_parallel_size=parallel.tp,
            max_num_batched_tokens=setting.deployment.max_num_batched_tokens or 8192,
        )
        own, its = setting.spec.embedding.vocab_size, other.spec.embedding.vocab_size
        if min(own, its) < 0.9 * max(own, its):
            raise UsageError(
                f"{other.spec.name} has {its:,} tokens and {setting.spec.name} {own:,}: they don't share a vocabulary",
                where="--draft-model",
                hint="take a small model of the same family",
            )
        draft = Replica(other.spec, setting.machine, Sharding(tp=parallel.tp), other.formats)
        sources = other.sources
    speculation = Speculation(request.tokens, request.acceptance, draft, request.medusa_heads)
    notes = ("every drafted token has the same chance, whatever its place and the others'",)
    return Drafts(speculation, draft.spec if draft else None, sources, notes)


def drafting_replica(replica: Replica, drafts: Drafts) -> SpeculativeReplica:
    """A replica that drafts.

    Raises:
        UsageError: nothing that could draft.
    """
    speculation = drafts.speculation
    if speculation.draft is not None:
        speculation = replace(speculation, draft=replace(speculation.draft, settings=replica.settings))
    return SpeculativeReplica.of(replica, speculation)
