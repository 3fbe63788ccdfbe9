"""The kinds of pool that engines have: blocks in groups, slots for tokens, cells for whole contexts, growing tensors.

Source: vLLM, vllm/v1/core/kv_cache_utils.py; SGLang, python/sglang/srt/model_executor/model_runner.py and
mem_cache/memory_pool.py; TensorRT-LLM, kvCacheManager.cpp; llama.cpp, src/llama-kv-cache*.cpp and
llama-memory-recurrent.cpp; transformers, cache_utils.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from fractions import Fraction

from capplan.arrays import ceil_div
from capplan.memory.block_groups import BlockGroup, BlockLayout, block_layout
from capplan.memory.cache_layers import CacheLayer
from capplan.memory.pool import Capacity, PoolKind, PoolPart, PoolRequest, binding, stage_of

UNLIMITED = Fraction(10**9)
"""The concurrency of a model that keeps nothing."""


def open_pool(request: PoolRequest) -> PoolKind:
    """The pool of the request's engine."""
    return _KINDS[request.rules.pool](request)


def _floor(value: Fraction) -> int:
    return value.numerator // value.denominator


class BlockPool:
    """vLLM's and TensorRT-LLM's blocks: ``min over ranks of ⌊pool / bytes of a block⌋``, which all groups share.

    TensorRT-LLM divides the pool among windows by their share, and has one window unless told. States that don't lie in
    blocks are counted with the budget, not here.
    """

    def __init__(self, request: PoolRequest) -> None:
        self.request = request
        in_blocks = request.rules.hybrid_manager
        layers = [layer for layer in request.layers if in_blocks or layer.kind != "state"]
        self.layout: BlockLayout = block_layout(
            layers, request.rules, request.block_size, request.limits, hybrid=request.hybrid
        )
        self.stages = _with_drafts(request)
        self.sizes = sizes = [self.layout.block_bytes(stage) for stage in self.stages]
        units = tuple(max(0, pool) // size if size else None for pool, size in zip(request.pools, sizes, strict=True))
        self.binding_stage, self.blocks = binding(units)
        self.block_bytes = sizes[self.binding_stage]

    def concurrency(self, length: int) -> Fraction:
        """``blocks / blocks of a request``; older versions: tokens of the pool over the length."""
        if not self.layout.groups:
            return UNLIMITED
        if self.request.rules.concurrency_by_blocks:
            return Fraction(self.blocks, max(1, self.layout.request_blocks(length, self.request.limits)))
        return Fraction(self._tokens(), max(1, length))

    def shortfall(self, length: int, sequences: int) -> int:
        """``sequences · blocks · bytes of a block - pool`` on the worst rank."""
        need = sequences * self.layout.request_blocks(length, self.request.limits)
        lacking = (need * size - pool for size, pool in zip(self.sizes, self.request.pools, strict=True))
        return max(0, *lacking)

    def _tokens(self) -> int:
        return self.blocks * self.layout.smallest_block * self.request.limits.context_ranks

    def _printed(self, concurrency: Fraction) -> int:
        printed, layout = self.request.rules.printed_tokens, self.layout
        if printed == "concurrency":
            return _floor(concurrency * self.request.max_model_len)
        if printed == "blocks_over_groups":
            each = self.blocks // max(1, len(layout.groups))
            return each * layout.smallest_block * self.request.limits.context_ranks
        return self._tokens()

    def capacity(self) -> Capacity:
        """Blocks, tokens and concurrency at the longest length."""
        length = self.request.max_model_len
        concurrency = self.concurrency(length)
        need = self.layout.request_blocks(length, self.request.limits)
        if not self.layout.groups:
            return _empty(self.request)
        whole = Fraction(self.blocks, max(1, need)) * length
        return Capacity(
            block_size=self.layout.block_size,
            blocks=self.blocks,
            block_bytes=self.block_bytes,
            pool_bytes=self.blocks * self.block_bytes,
            binding_stage=self.binding_stage,
            printed_tokens=self._printed(concurrency),
            capacity_tokens=self._tokens() if self.layout.uniform else _floor(whole),
            concurrency=concurrency,
            request_blocks=need,
            request_bytes=need * self.block_bytes,
            state_slots=None,
            parts=tuple(self._part(group) for group in self.layout.groups),
        )

    def _part(self, group: BlockGroup) -> PoolPart:
        """One group, as if all blocks of the pool were its own: which one a block belongs to is decided as it runs."""
        spec, here = group.spec, self.stages[self.binding_stage]
        layers = sum(layer in here for layer in group.layers)
        state = spec.kind == "state"
        size = self.blocks * self.block_bytes
        need = spec.blocks(self.request.max_model_len, self.request.limits)
        return PoolPart(
            name=spec.kind,
            layers=layers,
            block_size=spec.block_size,
            places=self.blocks if state else self.blocks * spec.block_size,
            key_bytes=0 if state else size,
            state_bytes=size if state else 0,
            request_blocks=need,
        )


def _with_drafts(request: PoolRequest) -> tuple[range, ...]:
    """The stages, with the drafting layers behind the model's own at the last one."""
    stages = request.stages
    last = max((layer.layer for layer in request.layers), default=0) + 1
    return (*stages[:-1], range(stages[-1].start, max(last, stages[-1].stop)))


def _empty(request: PoolRequest) -> Capacity:
    tokens = request.max_model_len
    return Capacity(request.block_size, 0, 0, 0, 0, 0, tokens, UNLIMITED, 0, 0, None, ())


def _by_stage(request: PoolRequest, kinds: tuple[str, ...]) -> list[list[CacheLayer]]:
    """The caches of these kinds on each stage."""
    found: list[list[CacheLayer]] = [[] for _ in request.stages]
    for layer in request.layers:
        if layer.kind in kinds:
            found[stage_of(layer.layer, request.stages)].append(layer)
    return found


def _sum(values: Iterable[int | Fraction]) -> Fraction:
    return sum((Fraction(value) for value in values), Fraction(0))


def _up(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


class TokenPool:
    """SGLang's slots, one a token: full and windowed layers have slots in a fixed ratio, states slots of their own.

    state slots = ⌊pool · r / (1 + r) / state⌋
    tokens      = ⌊(pool - states) / (full + ratio · windowed bytes a token)⌋, down to a whole page
    """

    def __init__(self, request: PoolRequest) -> None:
        rules = request.rules
        self.ratio = (
            Fraction(str(rules.window_pool_ratio)) if rules.window_pool_ratio and request.hybrid else Fraction(1)
        )
        full, windows = _by_stage(request, ("full", "cross")), _by_stage(request, ("window", "chunk"))
        states = _by_stage(request, ("state",))
        self.mixed = any(full) and any(windows)
        self.state_bytes = [sum(layer.state_bytes for layer in stage) for stage in states]
        self._stages = list(zip(full, windows, states, strict=True))
        self._cells = [
            _sum(layer.token_bytes for layer in whole)
            + (self.ratio if self.mixed else 1) * _sum(layer.token_bytes for layer in windowed)
            for whole, windowed, _ in self._stages
        ]
        self._fill(request)

    def _fill(self, request: PoolRequest) -> None:
        """What the pools of the request hold of its layers."""
        self.request, page = request, request.block_size
        self.slots = self._slots()
        units: list[int | None] = []
        for pool, state, cell in zip(request.pools, self.state_bytes, self._cells, strict=True):
            left = pool - (self.slots or 0) * state
            units.append(_floor(max(0, left) / cell) if cell else None)
        self.binding_stage, tokens = binding(tuple(units))
        self.tokens = tokens // page * page
        self.window_tokens = _floor(self.tokens * self.ratio) // page * page if self.mixed else self.tokens
        self.full, self.windows, self.states = self._stages[self.binding_stage]

    def _slots(self) -> int | None:
        """Sequences whose states fit, on the rank that holds fewest; None without states."""
        if not any(self.state_bytes):
            return None
        if self.request.state_slots is not None:
            return self.request.state_slots
        share = Fraction(str(self.request.rules.state_memory_ratio))
        pools = zip(self.request.pools, self.state_bytes, strict=True)
        return min(_floor(max(0, pool) * share / (1 + share) / size) for pool, size in pools if size)

    @property
    def sequences(self) -> int | None:
        """Requests whose states fit at once: prefix caching needs several slots for each."""
        if self.slots is None:
            return None
        return self.slots // (self.request.rules.state_slots_per_request if self.request.prefix_caching else 1)

    def concurrency(self, length: int) -> Fraction:
        """``tokens / length``, and no more than windows and states allow."""
        if not self.full and not self.windows:
            return Fraction(self.sequences) if self.sequences is not None else UNLIMITED
        found = [Fraction(self.tokens, max(1, length))] if self.full or not self.windows else []
        spans = [layer.span or length for layer in self.windows]
        if spans:
            found.append(Fraction(self.window_tokens, max(1, min(length, max(spans)))))
        if self.sequences is not None:
            found.append(Fraction(self.sequences))
        return min(found)

    def shortfall(self, length: int, sequences: int) -> int:
        """The least that every rank needs more, found by halving: slots, pages and states are whole."""
        low, high = 0, 1 << 20
        while self._with(high).concurrency(length) < sequences and high < 1 << 60:
            low, high = high, 2 * high
        if self.concurrency(length) >= sequences:
            return 0
        while low + 1 < high:
            middle = (low + high) // 2
            enough = self._with(middle).concurrency(length) >= sequences
            low, high = (low, middle) if enough else (middle, high)
        return high

    def _with(self, more: int) -> TokenPool:
        """The same layers over pools that have so many bytes more."""
        other = copy(self)
        other._fill(replace(self.request, pools=tuple(pool + more for pool in self.request.pools)))
        return other

    def capacity(self) -> Capacity:
        """Slots, tokens and concurrency at the longest length; a page and a state slot beside them take padding."""
        request, page = self.request, self.request.block_size
        length = request.max_model_len
        parts = self._parts()
        state_size = sum(layer.state_bytes for layer in self.states)
        token_bytes = _sum(layer.token_bytes for layer in (*self.full, *self.windows))
        one = _sum(min(length, layer.span or length) * Fraction(layer.token_bytes) for layer in self.windows)
        one += length * _sum(layer.token_bytes for layer in self.full)
        return Capacity(
            block_size=page,
            blocks=self.tokens // page,
            block_bytes=_up(token_bytes * page),
            pool_bytes=sum(part.bytes for part in parts),
            binding_stage=self.binding_stage,
            printed_tokens=self.tokens,
            capacity_tokens=self.tokens,
            concurrency=self.concurrency(length),
            request_blocks=int(ceil_div(length, page)),
            request_bytes=_up(one) + state_size,
            state_slots=self.slots,
            parts=tuple(parts),
        )

    def _parts(self) -> list[PoolPart]:
        """Full, windowed and drafting layers, each with a page to spare, and the states with a slot to spare."""
        page, own = self.request.block_size, self.request.stages[-1].stop
        kinds: dict[tuple[str, int], list[CacheLayer]] = {}
        for name, kept, places in (("full", self.full, self.tokens), ("window", self.windows, self.window_tokens)):
            for layer in kept:
                prefix = "draft " if layer.layer >= own else ""
                suffix = "" if layer.attention else " index"
                kinds.setdefault((f"{prefix}{name}{suffix}", places), []).append(layer)
        parts = []
        for (name, places), layers in kinds.items():
            values = _sum(layer.value_bytes for layer in layers)
            keys = _sum(layer.token_bytes for layer in layers) - values
            sizes = (_up(keys * (places + page)), _up(values * (places + page)))
            parts.append(PoolPart(name, len(layers), page, places, *sizes))
        if self.slots is not None:
            stored = self.slots + self.request.rules.state_slots_extra
            sizes = (
                stored * sum(layer.state_bytes for layer in self.states),
                stored * sum(layer.convolution_bytes for layer in self.states),
            )
            parts.append(PoolPart("state", len(self.states), 1, self.slots, 0, 0, *sizes))
        return parts


class CellPool:
    """llama.cpp's cells: the whole context of every slot is there from the start, in tensors a layer.

    A slot has ``pad(S, m)`` cells of full layers and ``pad(min(S, W + U), w)`` of windowed ones (U: tokens of one
    micro-batch), and its states; transformers' growing tensors are the same with no padding and U = 0.
    """

    def __init__(self, request: PoolRequest) -> None:
        self.request = request
        self.kept = list(request.layers)
        if not (request.hybrid and request.rules.hybrid_manager):
            self.kept = [
                replace(layer, kind="full", span=None) if layer.kind in ("window", "chunk") else layer
                for layer in self.kept
            ]
        self.grows = request.rules.pool == "dynamic"

    def cells(self, layer: CacheLayer, length: int) -> int:
        """Cells of one slot in one layer."""
        rules = self.request.rules
        if layer.kind == "cross":
            return layer.span or 0
        whole = int(ceil_div(length, rules.context_multiple)) * rules.context_multiple
        if layer.kind == "full":
            return whole
        more = 0 if self.grows else self.request.limits.batched_tokens
        kept = min(whole, (layer.span or 0) + more)
        return int(ceil_div(kept, rules.window_multiple)) * rules.window_multiple

    def need(self, length: int) -> tuple[int, ...]:
        """Bytes of one slot on one rank of each stage."""
        sums = [Fraction(0) for _ in self.request.stages]
        for layer in self.kept:
            stage = stage_of(layer.layer, self.request.stages)
            sums[stage] += layer.state_bytes + self.cells(layer, length) * Fraction(layer.token_bytes)
        return tuple(_up(value) for value in sums)

    def _binding(self, length: int) -> tuple[int, Fraction]:
        ratios = [
            (Fraction(max(0, pool), size), stage)
            for stage, (pool, size) in enumerate(zip(self.request.pools, self.need(length), strict=True))
            if size
        ]
        ratio, stage = min(ratios, default=(UNLIMITED, 0))
        return stage, ratio

    def concurrency(self, length: int) -> Fraction:
        """``pool / bytes of one slot``."""
        return self._binding(length)[1]

    def shortfall(self, length: int, sequences: int) -> int:
        """``sequences · bytes of one slot - pool`` on the worst rank."""
        lacking = (sequences * size - pool for size, pool in zip(self.need(length), self.request.pools, strict=True))
        return max(0, *lacking)

    def capacity(self) -> Capacity:
        """What the slots that were asked for take, and how many would fit."""
        request = self.request
        length, slots = request.max_model_len, request.max_num_seqs
        stage, concurrency = self._binding(length)
        parts = [part for kind in ("full", "window", "chunk", "cross", "state") if (part := self._part(kind, stage))]
        need = self.need(length)[stage]
        states = any(layer.kind == "state" for layer in self.kept)
        return Capacity(
            block_size=1,
            blocks=max((part.places for part in parts if part.name == "full"), default=0),
            block_bytes=0,
            pool_bytes=need * slots,
            binding_stage=stage,
            printed_tokens=slots * length,
            capacity_tokens=_floor(concurrency * length),
            concurrency=concurrency,
            request_blocks=length,
            request_bytes=need,
            state_slots=slots if states else None,
            parts=tuple(parts),
        )

    def _part(self, kind: str, stage: int) -> PoolPart | None:
        request = self.request
        layers = [layer for layer in self.kept if layer.kind == kind and stage_of(layer.layer, request.stages) == stage]
        if not layers:
            return None
        slots = request.max_num_seqs
        if kind == "state":
            states = slots * sum(layer.state_bytes for layer in layers)
            columns = slots * sum(layer.convolution_bytes for layer in layers)
            return PoolPart(kind, len(layers), 1, slots, 0, 0, states, columns)
        cells = [(layer, slots * self.cells(layer, request.max_model_len)) for layer in layers]
        values = _sum(count * Fraction(layer.value_bytes) for layer, count in cells)
        total = _sum(count * Fraction(layer.token_bytes) for layer, count in cells)
        return PoolPart(kind, len(layers), 1, max(count for _, count in cells), _up(total - values), _up(values))


_KINDS: dict[str, Callable[[PoolRequest], PoolKind]] = {
    "groups": BlockPool,
    "window_shares": BlockPool,
    "tokens": TokenPool,
    "cells": CellPool,
    "dynamic": CellPool,
}
