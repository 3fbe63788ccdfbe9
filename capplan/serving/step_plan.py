"""What one step of a server does: sequences that decode, prompts or pieces of them, and who gave way."""

from __future__ import annotations

from dataclasses import dataclass, field

from capplan.serving.sequences import ServedSequence


@dataclass(slots=True)
class PromptChunk:
    """Tokens of one prompt in one step.

    Args:
        sequence: whose.
        tokens: how many are computed.
        prefix: positions that are cached already.
        last: whether the prompt is complete with it.
    """

    sequence: ServedSequence
    tokens: int
    prefix: int
    last: bool


@dataclass(slots=True)
class StepPlan:
    """What one step does.

    Args:
        decode: sequences that decode.
        context: their positions in the cache after the step, all together.
        chunks: prompts, or pieces of them.
        moved_blocks: blocks that move between host and device with it.
        preempted: sequences that gave way to it.
    """

    decode: int = 0
    context: int = 0
    chunks: list[PromptChunk] = field(default_factory=list)
    moved_blocks: int = 0
    preempted: list[ServedSequence] = field(default_factory=list)
