"""What the notes of a measured table say of a run: flags of the server's command, and a few words that tables use.

Flags are those of vLLM and SGLang (``--tp-size=8 --dp-size=8 --enable-dp-attention``), however they are written; words
are such as ``TP=4``, ``tep8`` (tensor and expert parallel), ``dep8`` (data and expert parallel), ``static batching``,
``layer split``, ``PD-disaggregated``, ``500 requests``, ``SUSPECT``. A note that says nothing of this is a remark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_COUNT = r"[ =]?(\d{1,7})\b"

_NUMBERS: tuple[tuple[str, str], ...] = (
    ("tp", r"--(?:tp-size|tp|tensor-parallel-size)[ =](\d{1,4})\b"),
    ("tp", r"(?:^|\s)-tp[ =](\d{1,4})\b"),
    ("tp", r"\bworld size (\d{1,4})\b"),
    ("tp", rf"\bTP{_COUNT}"),
    ("tp", rf"\bte?p{_COUNT}"),
    ("dp", r"--(?:dp-size|dp|data-parallel-size)[ =](\d{1,4})\b"),
    ("dp", rf"\bdep{_COUNT}"),
    ("ep", r"--(?:ep-size|ep|expert-parallel-size)[ =](\d{1,4})\b"),
    ("ep", rf"\b[td]ep{_COUNT}"),
    ("max_num_batched_tokens", r"(?:--)?max[-_]num[-_]batched[-_]tokens[ =](\d{1,7})\b"),
    ("max_num_batched_tokens", r"--chunked-prefill-size[ =](\d{1,7})\b"),
    ("max_num_batched_tokens", r"\bn_ubatch=(\d{1,7})\b"),
    ("max_num_batched_tokens", r"\bmicro-batch (\d{1,7})\b"),
    ("max_num_seqs", r"(?:--)?max[-_]num[-_]seqs[ =](\d{1,7})\b"),
    ("max_num_seqs", r"--max-running-requests[ =](\d{1,7})\b"),
    ("depth", r"\bdepth (?:\([^()]{1,40}\)=)?(\d{1,7})\b"),
    ("waves", r"\bnum_prompts = (\d{1,5}) x concurrency\b"),
    ("prompts", r"\b(\d{1,7}) (?:prompts|requests)\b"),
    ("request_rate", r"/ Rate (\d{1,6})\b"),
    ("request_rate", r"\b(\d{1,6}) ?RPS\b"),
    ("draft_tokens", r"--speculative-num-steps[ =](\d{1,3})\b"),
    ("draft_tokens", r"\"num_speculative_tokens\": ?(\d{1,3})\b"),
)
"""Numbers, each with the field that it is; the first pattern of a field that is found counts."""

_WORDS: tuple[tuple[str, str], ...] = (
    ("static", r"\bstatic batch(?:ing)?\b|\bfirst-token latency\b|\bbatch 1[,;]|\bllama-(?:batched-)?bench\b"),
    ("layer_split", r"\b(?:GPUs|multi-GPU) = layer split\b"),
    ("disaggregated", r"\bPD-disaggregated\b"),
    ("dp_attention", r"--enable-dp-attention\b"),
    ("expert_parallel", r"--enable-expert-parallel\b|--moe-a2a-backend[ =]deepep\b|--enable-deepep-moe\b"),
    ("speculative", r"--speculative-|\bspeculative decoding\b|\bEAGLE\b"),
    ("fp8_cache", r"--kv-cache-dtype[ =]fp8"),
    ("suspect", r"\bSUSPECT\b|\bPAGE INCONSISTENT\b"),
)
"""What a note says or not."""

_READ_NUMBERS = tuple((name, re.compile(pattern)) for name, pattern in _NUMBERS)
_READ_WORDS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _WORDS)


@dataclass(frozen=True)
class NoteFacts:
    """What a note says; None or False where it says nothing.

    Args:
        tp: tensor-parallel size, over all ranks.
        dp: data-parallel size.
        ep: expert-parallel size.
        max_num_batched_tokens: tokens of a step.
        max_num_seqs: sequences at once.
        depth: positions that are cached before.
        waves: requests of each client.
        prompts: requests in all.
        request_rate: requests a second at which they came, whatever the concurrency that this made.
        draft_tokens: drafted in a round of speculation.
        static: whether the batch starts and ends together.
        layer_split: whether several devices hold layers one after the other.
        disaggregated: whether prefill and decode ran on devices of their own.
        dp_attention: whether `dp` divides attention alone.
        expert_parallel: whether experts are divided by number.
        speculative: whether tokens were drafted.
        fp8_cache: whether the KV cache is in fp8.
        suspect: whether the note says that the figure cannot be right.
    """

    tp: int | None = None
    dp: int | None = None
    ep: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    depth: int = 0
    waves: int | None = None
    prompts: int | None = None
    request_rate: int | None = None
    draft_tokens: int | None = None
    static: bool = False
    layer_split: bool = False
    disaggregated: bool = False
    dp_attention: bool = False
    expert_parallel: bool = False
    speculative: bool = False
    fp8_cache: bool = False
    suspect: bool = False


@lru_cache(maxsize=1024)
def read_notes(notes: str) -> NoteFacts:
    """The facts in a note."""
    facts: dict[str, int | bool] = {}
    for name, pattern in _READ_NUMBERS:
        found = pattern.search(notes)
        if found is not None and int(found[1]) > 0:
            facts.setdefault(name, int(found[1]))
    for name, pattern in _READ_WORDS:
        if pattern.search(notes):
            facts[name] = True
    return NoteFacts(**facts)  # type: ignore[arg-type]
