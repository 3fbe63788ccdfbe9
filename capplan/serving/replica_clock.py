"""How long the steps of a replica take, fast enough for a simulator: kernel times at grid nodes, linear in between.

A step's operators fall into four parts, each a function of few sizes::

    step = tokens(T) + head(S) + decoding(B, c) + prompts(n, t, p)        T = B + n·t

What every token passes through (projections, experts, norms, messages) depends on their number alone; the head on the
sequences that are sampled; attention and recurrences on each phase's own lengths. Which operators belong where is found
by comparing the ledgers of a step that decodes, and of one that prefills, as many tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

from capplan.serving.grid import Grid, Values, neighbours
from capplan.serving.replica import Replica
from capplan.timing.operator_time import operator_parts
from capplan.timing.roofline import Bound
from capplan.work.operators import Operator
from capplan.work.step import Decode, Prefill, Step, is_encoder, ledger

Key = tuple[str, str, int]

PROBE = 64
"""Tokens of the steps whose operators are compared."""

PROMPT_KINDS = ("prefill_attention", "mla_prefill")
"""What of an encoder, which has no decoding to compare with, depends on more than the number of tokens."""


class ReplicaClock:
    """Seconds of any mix of decoding and prompts on a replica.

    Args:
        replica: the model on its ranks.
        graph_sizes: decode batches that run as captured graphs, smallest first; empty: all do, as they are.
        graph_padding: whether a batch between two sizes runs as the larger one; False: without a graph.
        eager: no graphs at all: the host launches every kernel.

    Leaves out: contexts of a batch that differ much where a window caps each (the mean stands for all); with pipeline
    stages, that a chunk passes them one after the other (a round of all micro-batches is taken as one step).
    """

    def __init__(
        self, replica: Replica, *, graph_sizes: Sequence[int] = (), graph_padding: bool = True, eager: bool = False
    ) -> None:
        self.replica = replica
        self._times = replica.machine.times
        self._graph_sizes, self._graph_padding, self._eager = list(graph_sizes), graph_padding, eager
        self._stages = replica.sharding.pp
        self._shared, self._head = self._classify()
        self._tokens, self._heads = Grid(self._token_parts), Grid(self._head_parts)
        self._decoding, self._prompts = Grid(self._decoding_parts), Grid(self._prompt_parts)
        self._decode_steps: dict[tuple[int, int, bool], float] = {}

    def seconds(self, decode: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
        """Seconds of one step; see `capplan.serving.simulator.StepClock`."""
        times, stages = self._times, self._stages
        engine = times.per_sequence * (decode + len(chunks)) + times.per_step
        if not chunks:
            return self._decode(decode, context) + engine
        mixed = self._mixed(-(-decode // stages), context / stages, chunks)
        if stages > 1 and decode:
            mixed = (mixed + (stages - 1) * self._decode(decode, context)) / stages
        return mixed + engine

    def _decode(self, decode: int, context: int) -> float:
        """Kernels of a step that only decodes: at the batch's graph, between two contexts."""
        batch, graph = -(-decode // self._stages), not self._eager
        if graph and self._graph_sizes:
            place = bisect_left(self._graph_sizes, batch)
            graph = place < len(self._graph_sizes) and (self._graph_padding or self._graph_sizes[place] == batch)
            batch = self._graph_sizes[place] if graph else batch
        low, high, share = neighbours(max(1.0, context / (self._stages * batch)))
        first = self._decode_step(batch, low, graph)
        return first + share * (self._decode_step(batch, high, graph) - first) if share else first

    def _decode_step(self, batch: int, context: int, graph: bool) -> float:
        key = (batch, context, graph)
        found = self._decode_steps.get(key)
        if found is None:
            operators = self._operators(Step(decode=(Decode(batch, context),)))
            host = 0.0 if graph else self._times.host_launch * self._launches
            found = self._decode_steps[key] = max(self._kernels(self._parts(operators), prompts=False), host)
        return found

    @cached_property
    def prompt_host(self) -> float:
        """Seconds of the host over a step's prompts; see `capplan.serving.simulator.StepClock`."""
        launches = self._parts(self._operators(Step(prefill=(Prefill(PROBE),))))[1]
        return self._times.prompt_host(self.replica.spec.depth, launches)

    @cached_property
    def _launches(self) -> float:
        """Kernels that the host launches in a step that decodes."""
        operators = self._operators(Step(decode=(Decode(PROBE, 8 * PROBE),)))
        return float(sum(operator.count for operator in operators))

    def _mixed(self, decode: int, context: float, chunks: Sequence[tuple[int, int]]) -> float:
        """Kernels of a step with prompts, part by part; one attention kernel serves all n prompts.

        Where they differ, they count as n of the mean length with a prefix that keeps the query-key pairs:
        ``p = Σ t(p + t/2) / Σ t - mean(t)/2``.
        """
        new, count = sum(tokens for tokens, _ in chunks), len(chunks)
        parts = [self._tokens.at(decode + new), self._heads.at(decode + count)]
        if decode:
            parts.append(self._decoding.at(decode, max(1.0, context / decode)))
        reach = sum(tokens * (prefix + tokens / 2) for tokens, prefix in chunks) / new
        mean = new / count
        parts.append(self._prompts.at(count, mean, reach - mean / 2 + 1))
        return self._kernels([sum(column) for column in zip(*parts, strict=True)], prompts=True)

    def _kernels(self, sums: Sequence[float], *, prompts: bool) -> float:
        """``max(share · bodies + launches, bound)``."""
        bodies, launches, *bounds = sums
        return max(self._times.body_share(prompts=prompts) * bodies + launches, *bounds)

    def _operators(self, step: Step) -> tuple[Operator, ...]:
        return ledger(self.replica.spec, step, self.replica.sharding, self.replica.formats).operators

    def _parts(self, operators: Iterable[Operator]) -> Values:
        """(bodies, launches, and the least by FLOPs, by bytes, by messages and by transfers), summed."""
        bodies = launches = 0.0
        least = Bound()
        for operator in operators:
            parts = operator_parts(operator, self.replica.machine)
            bodies += float(parts.body)
            launches += float(parts.launch)
            least = least + parts.required
        return bodies, launches, float(least.compute), float(least.memory), float(least.link), float(least.host)

    def _chosen(self, step: Step, keys: frozenset[Key], *, inside: bool) -> Values:
        """The parts of a step's operators that are, or are not, among some."""
        return self._parts(one for one in self._operators(step) if (_key(one) in keys) == inside)

    def _token_parts(self, tokens: int) -> Values:
        return self._chosen(Step(prefill=(Prefill(tokens, sampled=0),)), self._shared, inside=True)

    def _head_parts(self, sequences: int) -> Values:
        return self._chosen(Step(prefill=(Prefill(1, sequences=sequences),)), self._head, inside=True)

    def _decoding_parts(self, sequences: int, context: int) -> Values:
        step = Step(decode=(Decode(sequences, context),))
        return self._chosen(step, self._shared | self._head, inside=False)

    def _prompt_parts(self, prompts: int, tokens: int, prefix_and_one: int) -> Values:
        step = Step(prefill=(Prefill(tokens, prefix_and_one - 1, prompts, sampled=0),))
        return self._chosen(step, self._shared, inside=False)

    def _classify(self) -> tuple[frozenset[Key], frozenset[Key]]:
        """(operators that depend on the number of tokens alone, those of the head)."""
        prompt = _by_key(self._operators(Step(prefill=(Prefill(PROBE, sampled=0),))))
        sampled = _by_key(self._operators(Step(prefill=(Prefill(PROBE, sampled=PROBE),))))
        if is_encoder(self.replica.spec):
            whole = frozenset(key for key in prompt if key[0] not in PROMPT_KINDS)
            return whole, frozenset(set(sampled) - set(prompt))
        decode = _by_key(self._operators(Step(decode=(Decode(PROBE, 8 * PROBE),))))
        shared = {key for key, operators in prompt.items() if decode.get(key) == operators}
        return frozenset(shared), frozenset(set(sampled) - set(prompt))


def _key(operator: Operator) -> Key:
    return operator.kind, operator.name, operator.stage


def _by_key(operators: Iterable[Operator]) -> dict[Key, Counter[Operator]]:
    found: dict[Key, Counter[Operator]] = {}
    for operator in operators:
        found.setdefault(_key(operator), Counter())[operator] += 1
    return found
