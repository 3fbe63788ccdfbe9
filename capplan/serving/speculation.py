"""Speculative decoding: how many tokens a round gives, what it costs on the hardware, and at which batch it turns.

A round drafts K tokens and verifies them, with one more, in one step of the model. With α the chance that a drafted
token is accepted, each independent of the others, a round gives::

    E = Σ_{k=0..K} α^k = (1 - α^(K+1)) / (1 - α)          tokens
    gain = E · S(B) / (D(B) + V(B))

S is a step of plain decode at batch B, V the step that verifies K + 1 tokens of each sequence, D the drafting: K steps
of a draft model or of the model's own MTP layers, or one pass of Medusa heads. While the weights' traffic binds, V is
near S and drafting pays; where compute binds, V is near (K + 1)·S, more than the E tokens that come of it.

Source: Leviathan et al., Fast Inference from Transformers via Speculative Decoding (arXiv:2211.17192), equation 1 and
theorem 3.8; Medusa: arXiv:2401.10774.

Leaves out: that chances depend on each other and on the position; trees of drafts (only chains); the second token that
a draft model reads after a round accepted to its end; sampling of the drafts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from capplan.errors import UsageError
from capplan.serving.replica import Replica, StepParts
from capplan.timing.step_sums import step_sums
from capplan.work.ledger import Ledger
from capplan.work.medusa import medusa_ledger
from capplan.work.step import Decode, Step, draft_ledger

MOST_DRAFTED = 64


@dataclass(frozen=True)
class Speculation:
    """How a server drafts.

    Args:
        tokens: K, tokens drafted a round.
        acceptance: α, the chance that a drafted token is accepted when those before it were.
        draft: the draft model on its ranks; None: Medusa heads, or else the model's own MTP layers.
        medusa_heads: heads that draft one token each, K of them.
    """

    tokens: int
    acceptance: float
    draft: Replica | None = None
    medusa_heads: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.tokens <= MOST_DRAFTED:
            raise UsageError(f"must be 1 to {MOST_DRAFTED}, not {self.tokens}", where="--speculative-tokens")
        if not 0 <= self.acceptance <= 1:
            raise UsageError(f"a chance lies between 0 and 1, not at {self.acceptance:g}", where="--acceptance")
        if self.medusa_heads and self.medusa_heads != self.tokens:
            raise UsageError(
                f"{self.medusa_heads} heads draft {self.medusa_heads} tokens, not {self.tokens}", where="--medusa-heads"
            )

    @property
    def per_round(self) -> float:
        """E, tokens a round gives."""
        return expected_tokens(self.acceptance, self.tokens)


def expected_tokens(acceptance: float, tokens: int) -> float:
    """``E = Σ_{k=0..K} α^k``: the accepted drafts, and the one that the model itself adds."""
    return float(sum(acceptance**k for k in range(tokens + 1)))


def textbook_speedup(acceptance: float, tokens: int, draft_ratio: float) -> float:
    """``E / (K·c + 1)``: c is a draft step's time over the model's; verifying K + 1 tokens is taken to cost one step.

    That holds only while the weights' traffic binds; see `compute_bound_speedup` for the other end.
    """
    return expected_tokens(acceptance, tokens) / (tokens * draft_ratio + 1)


def compute_bound_speedup(acceptance: float, tokens: int, draft_ratio: float) -> float:
    """``E / (K·c + K + 1)``: where compute binds, each verified token costs as much as a decoded one. At most 1."""
    return expected_tokens(acceptance, tokens) / (tokens * draft_ratio + tokens + 1)


@dataclass(frozen=True)
class SpeculativeReplica(Replica):
    """A replica that drafts and verifies: its decode step is what one output token of each sequence takes.

    Args:
        speculation: how it drafts.
    """

    speculation: Speculation = field(default_factory=lambda: Speculation(1, 0.0))
    _drafts: dict[tuple[int, int], StepParts] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, replica: Replica, speculation: Speculation) -> SpeculativeReplica:
        """A replica with speculation.

        Raises:
            UsageError: nothing that could draft.
        """
        if speculation.draft is None and not speculation.medusa_heads and replica.spec.mtp is None:
            raise UsageError(
                f"{replica.spec.name} has no MTP layers to draft with",
                where="--speculative-tokens",
                hint="name a --draft-model, or give --medusa-heads",
            )
        return cls(
            replica.spec,
            replica.machine,
            replica.sharding,
            replica.formats,
            replica.settings,
            replica.kv_tokens,
            replica.summed_by,
            speculation=speculation,
        )

    def decode(self, sequences: int, context: int) -> StepParts:
        """``(D + V) / E``: the share of a round that falls on one output token."""
        return self.round(sequences, context) * (1 / self.speculation.per_round)

    def round(self, sequences: int, context: int) -> StepParts:
        """Drafting and verification of one round."""
        drafting = self.drafting(sequences, context)
        return drafting + self.verification(sequences, context, self.speculation.tokens)

    def verification(self, sequences: int, context: int, tokens: int) -> StepParts:
        """The step that runs `tokens` drafts of each sequence and the token before them."""
        return self.step(Step(decode=(Decode(sequences, context + tokens, tokens + 1),)), sequences)

    def drafting(self, sequences: int, context: int) -> StepParts:
        """Steps of the draft model or of MTP layers one after the other, or one pass of all Medusa heads."""
        own, key = self.speculation, (sequences, context)
        if key not in self._drafts:
            if own.draft is not None:
                parts = own.draft.decode(sequences, context + own.tokens // 2) * own.tokens
            elif own.medusa_heads:
                heads = medusa_ledger(self.spec, own.medusa_heads, sequences, self.sharding, self.formats)
                parts = replace(self._parts(heads, sequences), sequences=0.0, steps=0.0)
            else:
                step = Step(decode=(Decode(sequences, context + own.tokens // 2),))
                passes = draft_ledger(self.spec, step, self.sharding, self.formats)
                parts = self._parts(passes, sequences) * own.tokens
            self._drafts[key] = parts
        return self._drafts[key]

    def prefill(self, tokens: int, sequences: int = 1) -> StepParts:
        """The model's prefill; a draft model reads the prompt as well."""
        parts = super().prefill(tokens, sequences)
        draft = self.speculation.draft
        return parts if draft is None else parts + draft.prefill(tokens, sequences)

    def _parts(self, work: Ledger, sequences: int) -> StepParts:
        return StepParts.of(step_sums(work.operators, self.machine), sequences, prompts=work.prompt_layers > 0)


def gain(replica: SpeculativeReplica, sequences: int, context: int) -> float:
    """``E · S / (D + V)``: how many times faster a sequence gets its tokens than without drafting."""
    times = replica.machine.times
    plain = replica.decode_step(sequences, context).seconds(times)
    return plain / replica.decode(sequences, context).seconds(times)


def turning_batch(replica: SpeculativeReplica, context: int, most: int = 1 << 14) -> int | None:
    """The smallest batch, to an eighth of a doubling, from which drafting no longer pays; None: it does up to `most`.

    A mixture of experts may lose at small batches, whose drafted tokens touch more experts, and gain at larger ones:
    what is sought is the batch after the last that gains.
    """
    sizes = sorted({round(2 ** (eighths / 8)) for eighths in range(8 * (most.bit_length() - 1) + 1)})
    gains = [place for place in range(0, len(sizes), 4) if gain(replica, sizes[place], context) > 1]
    if not gains:
        return sizes[0]
    low, high = gains[-1], gains[-1] + 4
    if high >= len(sizes):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if gain(replica, sizes[middle], context) > 1 else (low, middle)
    return sizes[high]
