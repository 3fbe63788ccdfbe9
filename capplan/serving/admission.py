"""What must be free before a waiting request may run: an engine's admission rule over the pool of blocks.

    chunk          blocks for its next chunk ≤ free
    prompt         blocks for its whole prompt ≤ free - watermark
    whole          blocks of all running requests and of this one at their ends ≤ all blocks
    output_share   tokens of its prompt and output + s · Σ_running remaining outputs < free tokens

`s` falls step by step while all goes well and jumps up when a request had to be retracted.

Source: vLLM, vllm/v1/core/kv_cache_manager.py (allocate_slots); TensorRT-LLM, capacityScheduler.cpp
(GUARANTEED_NO_EVICT); SGLang, schedule_policy.py (PrefillAdder) and new_token_ratio_tracker.py.
"""

from __future__ import annotations

from collections.abc import Collection

from capplan.describe.batching import Admission, OutputShare
from capplan.serving.sequence_blocks import SequenceBlocks
from capplan.serving.sequences import DecodingSet, ServedSequence


class ExpectedOutputs:
    """The share of running requests' remaining outputs that admission expects them to write.

    Args:
        rule: how the share moves.
    """

    def __init__(self, rule: OutputShare) -> None:
        self.rule = rule
        self.share = rule.first

    def decay(self) -> None:
        """One decode step without trouble: the share falls, to ``first · least`` at the end."""
        least = self.rule.first * self.rule.least
        self.share = max(least, self.share - (self.rule.first - least) / self.rule.steps)

    def retracted(self, running: Collection[ServedSequence], decoding: DecodingSet) -> None:
        """A request had to be retracted: ``(outputs + headroom · B) / outputs allowed`` of those that still run."""
        allowed = sum(sequence.request.osl for sequence in running)
        if allowed:
            outputs = sum(decoding.outputs(sequence) for sequence in running)
            self.share = min(1.0, (outputs + self.rule.headroom * len(running)) / allowed)

    def tokens(self, running: Collection[ServedSequence], decoding: DecodingSet) -> float:
        """``s · Σ min(remaining output, clip)``."""
        clip, outputs = self.rule.clip, decoding.outputs
        return self.share * sum(min(sequence.request.osl - outputs(sequence), clip) for sequence in running)


def has_room(
    rule: Admission,
    sequence: ServedSequence,
    blocks: SequenceBlocks,
    *,
    positions: int,
    found: int,
    free: int,
    expected: float = 0.0,
    clip: int = 0,
) -> bool:
    """Whether the pool has room for a waiting request.

    Args:
        rule: the engine's.
        sequence: the request.
        blocks: the pool.
        positions: positions in the cache after its first chunk.
        found: cached blocks that it can use.
        free: free blocks, without the watermark and without those of `found`.
        expected: tokens that running requests are expected to write.
        clip: tokens of its own output that count at most.
    """
    if rule == "chunk":
        return blocks.need(positions) - found <= free
    if rule == "prompt":
        return blocks.need(sequence.target) - found <= free
    if rule == "whole":
        return blocks.promised + blocks.most(sequence) - found <= free
    own = sequence.target + min(sequence.request.osl - sequence.generated, clip)
    return expected + own < (free + found) * blocks.cache.block_size
