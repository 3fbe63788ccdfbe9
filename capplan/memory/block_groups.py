"""Layers of several kinds in one pool of equal blocks, as vLLM groups them.

All layers of a group share a block table; all groups draw their blocks from one pool. For that every layer's page has
the same bytes: a smaller page gets more tokens, a state is padded, and the attention block of a hybrid is enlarged
until one page holds a state:

    b = a · ⌈state / (a · token_bytes)⌉        a: the kernels' alignment

Groups have equally many layers, the last one of a kind filled up with padding; a block costs the page times the
layers of the largest group on that rank.

Source: vLLM, vllm/v1/core/kv_cache_utils.py (get_kv_cache_groups, unify_kv_cache_spec_page_size,
_get_kv_cache_groups_uniform_page_size) and vllm/platforms/interface.py (_align_hybrid_block_size).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

from capplan.arrays import ceil_div
from capplan.describe.engine import EngineRules
from capplan.memory.cache_layers import CacheLayer
from capplan.memory.paging import PageSpec, StepLimits, page_spec

STATE_CHUNK = 256
"""Tokens of one chunk of Mamba-2's kernels, to which blocks are rounded where every block's state is kept."""


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Layers that share a block table.

    Args:
        spec: their pages.
        layers: their numbers in the model.
        padding: layers' worth of pages that hold nothing.
    """

    spec: PageSpec
    layers: tuple[int, ...]
    padding: int = 0


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """How a model's caches lie in blocks.

    Args:
        groups: the groups; a block of the pool belongs to one of them.
        layer_pages: (layer, bytes of its page) where one group holds pages of several sizes; else empty.
        block_size: tokens of an attention block.
    """

    groups: tuple[BlockGroup, ...]
    layer_pages: tuple[tuple[int, int], ...]
    block_size: int

    def request_blocks(self, length: int, limits: StepLimits) -> int:
        """Blocks of the pool that one request of `length` tokens takes, at most."""
        return sum(group.spec.blocks(length, limits) for group in self.groups)

    def block_bytes(self, stage: range) -> int:
        """Bytes of one block on the ranks that hold the layers of `stage`."""
        if self.layer_pages:
            return sum(page for layer, page in self.layer_pages if layer in stage)
        width = max((sum(layer in stage for layer in group.layers) for group in self.groups), default=0)
        return width * self.groups[0].spec.page_bytes if self.groups else 0

    @property
    def smallest_block(self) -> int:
        """The fewest tokens that a block of any group holds."""
        return min((group.spec.block_size for group in self.groups), default=self.block_size)

    @property
    def uniform(self) -> bool:
        """Whether every token of a context takes the same bytes, however long it is."""
        return len(self.groups) == 1 and self.groups[0].spec.kind == "full"


def block_layout(
    layers: Sequence[CacheLayer], rules: EngineRules, block_size: int, limits: StepLimits, *, hybrid: bool = True
) -> BlockLayout:
    """The groups of a model's layers.

    Args:
        layers: every cache.
        rules: the engine.
        block_size: tokens of a block, as asked for.
        limits: how states are kept.
        hybrid: False: windowed layers are given blocks for the whole context.
    """
    states = [layer for layer in layers if layer.kind == "state"]
    chunked = any(layer.kind == "chunk" for layer in layers)
    if not (hybrid and rules.hybrid_manager and (rules.chunked_hybrid or not chunked)):
        layers = _windows_as_full(layers, rules)
    size, state_page = hybrid_block(layers, states, rules, block_size, limits)
    alike: dict[tuple[object, ...], PageSpec] = {}
    specs: list[tuple[int, PageSpec]] = []
    for layer in layers:
        kind = (layer.kind, layer.token_bytes, layer.state_bytes, layer.span)
        if kind not in alike:
            alike[kind] = page_spec(layer, size, state_page)
        specs.append((layer.layer, alike[kind]))
    if not specs:
        return BlockLayout((), (), size)
    if one := _one_kind(specs):
        return BlockLayout((one,), _pages_by_layer(specs), size)
    return BlockLayout(_groups(_same_pages(specs), rules.group_padding), (), size)


def hybrid_block(
    layers: Sequence[CacheLayer],
    states: Sequence[CacheLayer],
    rules: EngineRules,
    block_size: int,
    limits: StepLimits,
) -> tuple[int, int | None]:
    """(tokens of an attention block, bytes of a state's page) of a model that may hold states.

    Where the state of every block is kept, the block is also a whole number of the kernels' chunks.
    """
    attention = [layer for layer in layers if layer.kind != "state" and layer.attention]
    if not states or not attention:
        return block_size, None
    state = max(layer.state_bytes for layer in states)
    token = Fraction(max(layer.token_bytes for layer in attention))
    latent = all(layer.value_bytes == 0 for layer in attention)
    alignment = max(rules.latent_state_alignment if latent else rules.state_alignment, block_size)
    if limits.state_mode == "all":
        alignment = lcm(STATE_CHUNK, alignment)
    tokens = ceil_div(state, token)
    size = max(block_size, alignment * ceil_div(tokens, alignment))
    page = token * size
    return size, -(-page.numerator // page.denominator)


def _windows_as_full(layers: Sequence[CacheLayer], rules: EngineRules) -> list[CacheLayer]:
    """Windows and chunks as full attention, unless all layers have the same window and the engine heeds that."""
    kept = [layer for layer in layers if layer.kind in ("full", "window", "chunk")]
    alike = len({(layer.kind, layer.span) for layer in kept}) == 1
    if alike and rules.bounded_windows:
        return list(layers)
    return [replace(layer, kind="full", span=None) if layer.kind in ("window", "chunk") else layer for layer in layers]


_Spec = tuple[int, PageSpec]


def _one_kind(specs: Sequence[_Spec]) -> BlockGroup | None:
    """A single group, where all layers need the same number of places: pages may differ in bytes then."""
    first = specs[0][1]
    if any((spec.kind, spec.span, spec.block_size) != (first.kind, first.span, first.block_size) for _, spec in specs):
        return None
    page = sum(spec.page_bytes for _, spec in specs)
    used = sum(spec.used_bytes for _, spec in specs)
    spec = PageSpec(first.kind, first.block_size, page, used, first.span)
    return BlockGroup(spec, tuple(layer for layer, _ in specs))


def _pages_by_layer(specs: Sequence[_Spec]) -> tuple[tuple[int, int], ...]:
    return tuple((layer, spec.page_bytes) for layer, spec in specs)


def _same_pages(specs: Sequence[_Spec]) -> list[_Spec]:
    """Every page with the bytes of the largest: more tokens where it divides, else padding."""
    largest = max(spec.page_bytes for _, spec in specs)
    return [(layer, _enlarged(spec, largest)) for layer, spec in specs]


def _enlarged(spec: PageSpec, page: int) -> PageSpec:
    if spec.page_bytes == page:
        return spec
    if spec.kind == "state" or page % spec.page_bytes:
        return replace(spec, page_bytes=page)
    ratio = page // spec.page_bytes
    return replace(spec, block_size=spec.block_size * ratio, page_bytes=page, used_bytes=spec.used_bytes * ratio)


def _groups(specs: Sequence[_Spec], padding: float) -> tuple[BlockGroup, ...]:
    """Groups of equal size: that of the rarest kind, or of the commonest where it is not much more.

    A kind's layers are dealt out in turn, so that each pipeline stage holds about as many of every group.
    """
    kinds: dict[PageSpec, list[int]] = {}
    for layer, spec in specs:
        kinds.setdefault(spec, []).append(layer)
    fewest = min(len(layers) for layers in kinds.values())
    most = max(len(layers) for layers in kinds.values())
    size = most if most < fewest * padding else fewest
    return tuple(
        BlockGroup(spec, tuple(layers[first::count]), size - len(layers[first::count]))
        for spec, layers in kinds.items()
        for count in (ceil_div(len(layers), size),)
        for first in range(count)
    )
