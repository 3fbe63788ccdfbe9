"""One iteration of an engine's scheduler: who is admitted, which prompts are computed, who gives way.

Three policies. ``decode_first``: every step decodes all running sequences, and what is left of the token budget goes
to prompts, in chunks where that is allowed. ``prefill_first``: while a waiting prompt can be admitted, steps compute
prompts alone; else they decode. ``static``: a batch is admitted when nothing runs, and ends with its longest member.

Source: vLLM, vllm/v1/core/sched/scheduler.py and vllm/core/scheduler.py; SGLang, python/sglang/srt/managers/
schedule_policy.py and scheduler.py; TensorRT-LLM, docs/source/features/paged-attention-ifb-scheduler.md; Yu et al.,
Orca (OSDI 2022); Agrawal et al., Sarathi-Serve (arXiv:2403.02310).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from capplan.describe.batching import Admission, OutputShare, Policy, Preemption, Victim
from capplan.serving.admission import ExpectedOutputs, has_room
from capplan.serving.sequence_blocks import SequenceBlocks
from capplan.serving.sequences import CacheModel, DecodingSet, ServedSequence
from capplan.serving.step_plan import PromptChunk, StepPlan


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """The scheduler's settings; see `capplan.describe.batching.BatchingRules` for what each means.

    Args:
        policy: how prompts and decoding share steps.
        step_tokens: tokens of a step, at most.
        max_num_seqs: sequences that run at once, at most.
        max_model_len: tokens of a request, at most; None: no limit but the pool.
        chunked_prefill: whether a prompt may be divided over steps.
        admission: what must be free for a waiting request.
        watermark_blocks: blocks that admission leaves free.
        output_share: the share of outputs that admission expects, for ``output_share``.
        preemption: what happens to a sequence that must give way.
        victim: which one that is.
        batch_wait_steps: steps for which prompts are held back.
        batch_wait_tokens: tokens of a step that end the wait.
        pad_prompts: whether prompts of a batch are padded to the longest.
        prefix_caching: whether cached prefixes are looked up.
    """

    policy: Policy = "decode_first"
    step_tokens: int = 8192
    max_num_seqs: int = 1024
    max_model_len: int | None = None
    chunked_prefill: bool = True
    admission: Admission = "prompt"
    watermark_blocks: int = 0
    output_share: OutputShare | None = None
    preemption: Preemption = "recompute"
    victim: Victim = "newest"
    batch_wait_steps: int = 0
    batch_wait_tokens: int = 0
    pad_prompts: bool = False
    prefix_caching: bool = False


class Scheduler:
    """The state of one engine's scheduler over one pool of blocks.

    Args:
        config: its settings.
        cache: the pool.
    """

    def __init__(self, config: SchedulerConfig, cache: CacheModel) -> None:
        self.config = config
        self.waiting: deque[ServedSequence] = deque()
        self.swapped: deque[ServedSequence] = deque()
        self.running: dict[ServedSequence, None] = {}
        """Admitted sequences, in the order of admission."""
        self.partial: list[ServedSequence] = []
        """Those of them whose prompts are not complete."""
        self.leaving: dict[ServedSequence, None] = {}
        """Sequences that have their last token and hold their places and blocks still."""
        self.decoding = DecodingSet(cache.block_size)
        self.blocks = SequenceBlocks(cache, prefix_caching=config.prefix_caching)
        self.preemptions = 0
        self.recomputed_tokens = 0
        self._most_running = min(config.max_num_seqs, cache.max_sequences or config.max_num_seqs)
        self._expected = ExpectedOutputs(config.output_share) if config.output_share else None
        self._full = False
        self._waited = 0
        self._moved_blocks = 0
        self._preempted: list[ServedSequence] = []
        self._batch_done: list[ServedSequence] = []

    @property
    def padding(self) -> int:
        """Sequences of a static batch that decode on though they have their last token."""
        return len(self._batch_done)

    def fits(self, sequence: ServedSequence) -> bool:
        """Whether the server can ever finish a request: by its length, its cache, and its prompt in a step."""
        request, limit = sequence.request, self.config.max_model_len
        if limit is not None and request.isl + request.osl > limit:
            return False
        if self.blocks.most(sequence) > self.blocks.cache.blocks - self.config.watermark_blocks:
            return False
        divided = self.config.chunked_prefill or self.config.policy == "static"
        return divided or sequence.prompt <= self.config.step_tokens

    def plan(self) -> StepPlan | None:
        """The next step; None: there is nothing to do."""
        config, plan = self.config, StepPlan()
        if config.policy == "static":
            if not self.running:
                self._admit_batch(plan)
        elif config.policy == "decode_first":
            gave_way = self._grow()
            self._prompts(plan, config.step_tokens - self.decoding.count, admit=not gave_way)
        else:
            self._prompts(plan, config.step_tokens, admit=True)
        if config.policy == "decode_first" or not plan.chunks:
            if config.policy != "decode_first":
                self._grow()
            plan.decode = self.decoding.count
            plan.context = self.decoding.context + self.decoding.count
        plan.moved_blocks, self._moved_blocks = self._moved_blocks, 0
        plan.preempted, self._preempted = self._preempted, []
        return plan if plan.decode or plan.chunks else None

    def complete(self, plan: StepPlan) -> tuple[list[ServedSequence], list[ServedSequence]]:
        """Book what a step has done: (sequences whose prompts are complete, sequences that have their last token).

        A sequence in both lists had but one token left. Those with their last token decode no more, but in a static
        batch, and hold their places and blocks until they are `release`d.
        """
        static, ended = self.config.policy == "static", list[ServedSequence]()
        if plan.decode:
            ended += self.decoding.advance()
            if self._expected:
                self._expected.decay()
        prompted = []
        for chunk in plan.chunks:
            sequence = chunk.sequence
            sequence.computed += chunk.tokens
            if chunk.last:
                self.partial.remove(sequence)
                sequence.generated += 1
                prompted.append(sequence)
                over = sequence.generated == sequence.request.osl
                if over:
                    ended.append(sequence)
                if not over or static:
                    self.decoding.join(sequence)
        if not static:
            for sequence in ended:
                if sequence.joined >= 0:
                    self.decoding.leave(sequence)
                del self.running[sequence]
                self.leaving[sequence] = None
        return prompted, ended

    def release(self, ended: Iterable[ServedSequence]) -> None:
        """Give back the places and blocks of sequences that have ended; those of a static batch all at its end."""
        if self.config.policy == "static":
            self._batch_done += ended
            if len(self._batch_done) < len(self.running):
                return
            ended, self._batch_done = self._batch_done, []
        for sequence in ended:
            if sequence in self.leaving:
                del self.leaving[sequence]
            else:
                self.decoding.leave(sequence)
                del self.running[sequence]
            self._drop(sequence)

    @property
    def _places(self) -> int:
        """Places that are taken."""
        return len(self.running) + len(self.leaving)

    def _drop(self, sequence: ServedSequence) -> None:
        """Give a sequence's blocks back; somebody else may be admitted now."""
        self.blocks.drop(sequence)
        self._full = False

    # Decoding: blocks for the next position, and who gives way when there are none.

    def _grow(self) -> bool:
        """Give every decoding sequence the block that it begins next; whether others had to give way for that."""
        wanted = self._wanted()
        before = self.preemptions
        while sum(more for _, more in wanted) > self.blocks.free:
            self._preempt(self._victim())
            wanted = self._wanted()
        for sequence, more in wanted:
            self.blocks.take(sequence, more)
        if self._expected and self.preemptions > before:
            self._expected.retracted(self.running, self.decoding)
        return self.preemptions > before

    def _wanted(self) -> list[tuple[ServedSequence, int]]:
        """The sequences that need blocks for the next decode step, and how many."""
        decoding, missing = self.decoding, self.blocks.missing
        found = [(sequence, missing(sequence, decoding.position(sequence))) for sequence in decoding.growing()]
        return [pair for pair in found if pair[1]]

    def _victim(self) -> ServedSequence:
        if self.config.victim == "newest":
            return next(reversed(self.running))
        outputs = self.decoding.outputs
        candidates = [sequence for sequence in self.running if sequence.joined >= 0] or list(self.running)
        return min(candidates, key=lambda sequence: (outputs(sequence), -sequence.request.isl))

    def _preempt(self, sequence: ServedSequence) -> None:
        """Take a running sequence's blocks away: it waits again, to be computed anew or brought back from the host."""
        decoded = sequence.joined >= 0
        if decoded:
            self.decoding.leave(sequence)
        else:
            self.partial.remove(sequence)
        held = len(sequence.table)
        self.blocks.register_all(sequence)
        del self.running[sequence]
        self._drop(sequence)
        self._preempted.append(sequence)
        self.preemptions += 1
        sequence.preemptions += 1
        if decoded and self.config.preemption == "swap":
            sequence.swapped = True
            self._moved_blocks += held
            self.swapped.append(sequence)
            return
        self.recomputed_tokens += sequence.computed
        sequence.computed = 0
        if self.config.victim == "newest":
            self.waiting.appendleft(sequence)
        else:
            self.waiting.append(sequence)

    # Prompts: those under way, those swapped out, those that wait.

    def _prompts(self, plan: StepPlan, budget: int, *, admit: bool) -> None:
        """Fill a step with prompts."""
        for sequence in list(self.partial):
            if budget <= 0:
                return
            if sequence in self.running:
                budget -= self._go_on(plan, sequence, budget)
        if not admit or self._full:
            return
        while self.swapped and self._bring_back(self.swapped[0]):
            budget -= 1
        if self.swapped or not self.waiting or self._held_back(budget):
            return
        while self.waiting and budget > 0:
            taken = self._admit(plan, self.waiting[0], budget)
            if not taken:
                return
            budget -= taken

    def _go_on(self, plan: StepPlan, sequence: ServedSequence, budget: int) -> int:
        """The next chunk of a prompt that is under way; where blocks are short for it, others give way, or itself."""
        tokens = min(sequence.target - sequence.computed, budget)
        positions = sequence.computed + tokens
        while self.blocks.missing(sequence, positions) > self.blocks.free:
            victim = self._victim()
            self._preempt(victim)
            plan.chunks = [chunk for chunk in plan.chunks if chunk.sequence is not victim]
            if victim is sequence:
                self._full = self.config.policy == "prefill_first" and self._places > 0
                return 0
        self.blocks.extend(sequence, positions)
        return self._add(plan, sequence, tokens)

    def _add(self, plan: StepPlan, sequence: ServedSequence, tokens: int) -> int:
        """Add a chunk to the step; its full blocks can be found from now on, within the same step, too."""
        positions = sequence.computed + tokens
        plan.chunks.append(PromptChunk(sequence, tokens, sequence.computed, positions == sequence.target))
        self.blocks.register_prefix(sequence, positions)
        return tokens

    def _admit(self, plan: StepPlan, sequence: ServedSequence, budget: int) -> int:
        """Admit the first waiting request if it may be; returns the tokens that it takes of the step, or 0."""
        if self._places >= self._most_running:
            self._full = True
            return 0
        found = self.blocks.find(sequence)
        cached = len(found) * self.blocks.cache.block_size
        new = sequence.target - cached
        tokens = min(new, budget)
        if tokens < new and not self.config.chunked_prefill:
            if plan.chunks or sequence.target <= self.config.step_tokens:
                return 0
            tokens = new  # what was computed once and lost may be longer than a step: it runs alone
        if not self._room(sequence, found, cached + tokens):
            self._full = self._places > 0
            return 0
        self.waiting.popleft()
        self._start(sequence, found)
        self.blocks.extend(sequence, cached + tokens)
        return self._add(plan, sequence, tokens)

    def _room(self, sequence: ServedSequence, found: Iterable[int], positions: int) -> bool:
        """Whether the engine's rule lets a request in; a lone one needs no more than its own blocks."""
        config, cached = self.config, list(found)
        free = self.blocks.free - self.blocks.idle(cached)
        rule: Admission = config.admission
        if not self._places:
            rule = "prompt" if rule == "output_share" else rule
        else:
            free -= config.watermark_blocks
        expected = self._expected.tokens(self.running, self.decoding) if self._expected else 0.0
        clip = self._expected.rule.clip if self._expected else 0
        return has_room(
            rule,
            sequence,
            self.blocks,
            positions=positions,
            found=len(cached),
            free=free,
            expected=expected,
            clip=clip,
        )

    def _start(self, sequence: ServedSequence, found: Iterable[int]) -> None:
        """Make a waiting request a running one, on the cached blocks that were found for it."""
        self.blocks.start(sequence, list(found))
        if not sequence.preemptions:
            sequence.cached = sequence.computed
        self.running[sequence] = None
        self.partial.append(sequence)

    def _held_back(self, budget: int) -> bool:
        """Whether waiting prompts are held back for company: too few tokens, and not for too long."""
        config = self.config
        if not config.batch_wait_steps or not self.decoding.count:
            return False
        tokens = self.decoding.count
        for sequence in self.waiting:
            tokens += sequence.target
            if tokens >= config.batch_wait_tokens or tokens >= budget:
                break
        if tokens < config.batch_wait_tokens and self._waited < config.batch_wait_steps:
            self._waited += 1
            return True
        self._waited = 0
        return False

    def _bring_back(self, sequence: ServedSequence) -> bool:
        """Move a sequence's cache from the host into free blocks, so that it decodes on; whether there were any."""
        need = self.blocks.need(sequence.computed + 1)
        if need > self.blocks.free or self._places >= self._most_running:
            self._full = self._places > 0
            return False
        self.swapped.popleft()
        self.running[sequence] = None
        self.blocks.resume(sequence)
        self._moved_blocks += need
        sequence.swapped = False
        self.decoding.join(sequence)
        return True

    def _admit_batch(self, plan: StepPlan) -> None:
        """A static batch: as many waiting requests as fit when all are as long as the longest."""
        batch: list[ServedSequence] = []
        longest = outputs = 0
        for sequence in self.waiting:
            prompt, output = max(longest, sequence.request.isl), max(outputs, sequence.request.osl)
            each = self.blocks.need(prompt + output - 1)
            if len(batch) == self._most_running or (batch and each * (len(batch) + 1) > self.blocks.cache.blocks):
                break
            batch.append(sequence)
            longest, outputs = prompt, output
        for sequence in batch:
            self.waiting.popleft()
            if self.config.pad_prompts:
                sequence.prompt = longest
            self._start(sequence, ())
            self.blocks.extend(sequence, sequence.prompt)
            self._add(plan, sequence, sequence.prompt)
