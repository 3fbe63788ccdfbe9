"""Blocks against a cache that is filled token by token, and groups against counting every page."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import capplan
from capplan.describe.engine import check_engine_file, engine_names, engine_rules
from capplan.describe.resolve import resolve_model
from capplan.errors import UsageError
from capplan.memory.block_groups import block_layout
from capplan.memory.cache_layers import CacheLayer, CacheRequest, cache_layers
from capplan.memory.kv_format import kv_format
from capplan.memory.paging import StepLimits, paged_context, request_blocks

VLLM = engine_rules("vllm").rules


def blocks_of(first: int, last: int, size: int) -> int:
    """Blocks that hold the tokens from `first` up to `last`, counted one by one."""
    return len({token // size for token in range(first, last)})


@given(tokens=st.integers(0, 3000), size=st.integers(1, 70), reserved=st.integers(0, 4000))
def test_blocks_hold_every_token_and_lose_less_than_one(tokens: int, size: int, reserved: int) -> None:
    pages = paged_context(tokens, size, reserved)
    assert pages.blocks == blocks_of(0, tokens, size)
    assert 0 <= pages.lost_tokens < size
    assert pages.allocated_tokens == tokens + pages.lost_tokens
    assert pages.reserved_tokens >= tokens
    assert 0 <= pages.blocks_lost_share < 1


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(1, 400),
    window=st.integers(1, 120),
    step=st.integers(1, 90),
    size=st.sampled_from([1, 4, 16, 32]),
)
def test_a_window_never_takes_more_blocks_than_are_reserved(length: int, window: int, step: int, size: int) -> None:
    """Prefill in steps: before each, blocks that no coming token sees are given back; then the step's are taken."""
    reserved = request_blocks("window", length, size, window, StepLimits(step))
    done = 0
    while done < length:
        more = min(step, length - done)
        first_seen = max(0, done - (window - 1))
        held = blocks_of(first_seen // size * size, done + more, size)
        assert held <= reserved
        done += more


@pytest.mark.parametrize(
    ("mode", "drafts", "pages"), [("none", 0, 1), ("none", 3, 4), ("align", 0, 2), ("align", 3, 5), ("all", 0, 63)]
)
def test_pages_of_a_state(mode: str, drafts: int, pages: int) -> None:
    limits = StepLimits(2048, draft_tokens=drafts, state_mode=mode)  # type: ignore[arg-type]
    assert request_blocks("state", 1000, 16, None, limits) == pages


def test_the_reservation_of_the_introduction() -> None:
    """200 tokens of Llama-2-7B in blocks of 16, against 2,048 reserved ones: 8 lost against 1,848."""
    paging = capplan.kv("llama2-7b", seq=200, block_size=16, max_model_len=2048).result.paging
    assert paging is not None
    assert (paging.blocks, paging.lost_tokens, paging.reservation_lost_tokens) == (13, 8, 1848)
    assert paging.allocated_bytes == 208 * 524288
    assert paging.reserved_bytes == 2**30


def test_a_reservation_without_blocks_is_refused() -> None:
    with pytest.raises(UsageError, match="blocks"):
        capplan.kv("llama2-7b", seq=200, max_model_len=2048)


LAYERS = st.lists(
    st.tuples(st.sampled_from(["full", "window"]), st.sampled_from([256, 512, 1024])), min_size=1, max_size=30
)


@settings(max_examples=60, deadline=None)
@given(kinds=LAYERS, padding=st.sampled_from([1.0, 1.25, 1.5]), block=st.sampled_from([16, 32]))
def test_every_layer_stands_in_one_group_and_every_page_fits(
    kinds: list[tuple[str, int]], padding: float, block: int
) -> None:
    layers = [
        CacheLayer(number, kind, size, span=128 if kind == "window" else None)  # type: ignore[arg-type]
        for number, (kind, size) in enumerate(kinds)
    ]
    limits = StepLimits(256)
    layout = block_layout(layers, VLLM, block, limits)
    placed = sorted(layer for group in layout.groups for layer in group.layers)
    assert placed == list(range(len(layers)))
    everything = range(len(layers))
    if len(layout.groups) > 1:
        widths = {len(group.layers) + group.padding for group in layout.groups}
        pages = {group.spec.page_bytes for group in layout.groups}
        assert len(widths) == len(pages) == 1
        assert layout.block_bytes(everything) == widths.pop() * pages.pop()
    else:
        assert layout.block_bytes(everything) == block * sum(size for _, size in kinds)
    for group in layout.groups:
        for layer in group.layers:
            need = Fraction(layers[layer].token_bytes) * group.spec.block_size
            if len(layout.groups) > 1:
                assert need <= group.spec.page_bytes


def test_a_page_of_a_hybrid_holds_its_state() -> None:
    """The enlarged block is the least multiple of 16 whose page holds a state."""
    spec = resolve_model("qwen3.6-27b").spec
    layers = cache_layers(spec, CacheRequest(VLLM, kv_format("bf16", "bf16")))
    state = max(layer.state_bytes for layer in layers)
    token = max(layer.token_bytes for layer in layers)
    layout = block_layout(layers, VLLM, 16, StepLimits(2048))
    assert layout.block_size * token >= state > (layout.block_size - 16) * token
    assert layout.block_size % 16 == 0


@pytest.mark.parametrize("name", engine_names())
def test_every_version_of_an_engine_has_whole_rules(name: str) -> None:
    check_engine_file(name)
    engine = engine_rules(name)
    assert engine.rules.tiers
    assert set(engine.sources) >= {"budget", "pool"} or name in ("llama.cpp", "transformers")


@pytest.mark.parametrize(
    ("text", "version"),
    [("0.6.x (V0)", "0.6.x"), ("v0.24.0", "0.24.0"), ("0.29.1rc1", "0.29.1"), ("V1 2025-01", "0.8.0"),
     ("0.8.5 V0", "0.7.1"), ("2026-05", "0.21.0"), ("0.6.5 dev", "0.6.5"), ("latest", "0.29.0"), ("0.1", "0.4.0")],
)  # fmt: skip
def test_versions_as_people_write_them(text: str, version: str) -> None:
    assert engine_rules("vllm", text).version == version


@pytest.mark.parametrize("text", ["", "newest", "x.y"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(UsageError):
        engine_rules("vllm", text)


def test_an_unknown_engine_names_the_nearest() -> None:
    with pytest.raises(UsageError) as error:
        engine_rules("vlm")
    assert "vllm" in error.value.hint


@pytest.mark.parametrize(
    ("name", "bits"), [("fp8_e4m3", 8), ("q8_0", 8.5), ("q4_0", 4.5), ("nvfp4", 4.5), ("auto", 16)]
)
def test_kv_formats(name: str, bits: float) -> None:
    assert float(kv_format(name, "bf16").key_bits) == bits
