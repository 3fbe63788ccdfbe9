"""The figures of two introductions to LLM inference, on their own inputs; see docs/textbook-figures.md.

Sources: "Inference stages, KV cache, memory" and "The complete guide to LLM inference optimisation" (both Japanese,
kept as plain text by the project's maintainers). Where one simplifies or errs, both figures stand here.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

import capplan

GIB = 1024**3


def test_query_key_pairs_of_six_plus_two_positions() -> None:
    pairs = capplan.attention_pairs(prompt=6, new=2).result
    assert pairs.cached_pairs == 21 + 7 + 8 == 36
    assert pairs.recomputed_pairs == 21 + 28 + 36 == 85


@pytest.mark.parametrize(("n", "m"), [(1, 0), (6, 2), (17, 5), (100, 40)])
def test_the_closed_form_for_pairs(n: int, m: int) -> None:
    """m·n + m(m+1)/2 pairs are added, which a count one by one confirms."""
    pairs = capplan.attention_pairs(prompt=n, new=m).result
    assert pairs.cached_pairs - pairs.prompt_pairs == m * n + m * (m + 1) // 2
    assert pairs.cached_pairs == sum(1 for query in range(n + m) for key in range(query + 1))


@pytest.mark.parametrize(("bits", "total", "gib"), [(4, 17_500_000_000, "16.30"), (16, 70_000_000_000, "65.19")])
def test_bare_weights_of_35_billion_parameters(bits: int, total: int, gib: str) -> None:
    result = capplan.weights(params=35_000_000_000, bits=Fraction(bits)).result
    assert result.weight_bytes == total
    assert f"{result.weight_bytes / GIB:.2f}" == gib


@pytest.mark.parametrize(("kv_heads", "seq", "gib"), [(8, 8192, 1), (8, 65536, 8), (32, 8192, 4), (32, 65536, 32)])
def test_kv_cache_of_32_layers(kv_heads: int, seq: int, gib: int) -> None:
    result = capplan.kv(layers=32, kv_heads=kv_heads, head_dim=128, seq=seq).result
    assert result.total_bytes == gib * GIB


@pytest.mark.parametrize(
    ("model", "per_token", "gigabytes"),
    [("llama2-7b", 524_288, "2.15"), ("llama2-70b", 327_680, "1.34"), ("mistral-7b-v0.1", 131_072, "0.54")],
)
def test_kv_cache_of_three_models_at_4096_tokens(model: str, per_token: int, gigabytes: str) -> None:
    result = capplan.kv(model, seq=4096).result
    assert result.kv_bytes == per_token * 4096
    assert f"{result.kv_bytes / 1e9:.2f}" == gigabytes


def test_bytes_per_token_do_not_grow_with_the_batch() -> None:
    """The guide's ``per_token_bytes`` divides by the length alone, so that it holds for a batch of 1 only."""
    one, four = (capplan.kv("llama2-7b", seq=4096, batch=batch).result for batch in (1, 4))
    assert one.bytes_per_token == four.bytes_per_token == 524_288
    assert four.kv_bytes // 4096 == 4 * 524_288  # what the guide's function would print


def test_kv_cache_of_llama2_7b_at_2048_tokens() -> None:
    result = capplan.kv("llama2-7b", seq=2048).result
    assert f"{result.kv_bytes / 1e6:.2f}" == "1073.74"


def test_weights_of_llama2_7b_are_more_than_twelve_squares_a_layer() -> None:
    """The guide takes 4H² + 8H² a layer; a SwiGLU of 11,008 columns has 3·H·11008, and tables and norms come on top."""
    hidden, layers, columns, vocabulary = 4096, 32, 11008, 32000
    guide = 12 * hidden**2 * layers * 2
    assert f"{guide / 1e9:.2f}" == "12.88"
    result = capplan.weights("llama2-7b").result
    ffn = (3 * hidden * columns - 8 * hidden**2) * layers
    tables, norms = 2 * vocabulary * hidden, (2 * layers + 1) * hidden
    assert result.weight_bytes == guide + 2 * (ffn + tables + norms) == 13_476_831_232


def test_gqa_shrinks_the_cache_four_to_eight_times() -> None:
    """The guide's "4-8x" against the models that it names, each beside itself with one KV head a query head."""
    ratios = {}
    for model, layers, heads in (("llama2-70b", 80, 64), ("mistral-7b-v0.1", 32, 32)):
        grouped = capplan.kv(model, seq=4096).result.kv_bytes
        ratios[model] = capplan.kv(layers=layers, kv_heads=heads, head_dim=128, seq=4096).result.kv_bytes / grouped
    assert ratios == {"llama2-70b": 8, "mistral-7b-v0.1": 4}


def test_mla_caches_the_rotary_key_beside_the_latent() -> None:
    """The guide's docstring says kv_lora_rank = 512 a token; its own code caches 512 + 64, and so do the models."""
    answer = capplan.kv("deepseek-v2", seq=1)
    layers = sum(group.layers for group in answer.result.groups)
    assert answer.result.bytes_per_token == layers * (512 + 64) * 2
    assert answer.result.bytes_per_token != layers * 512 * 2
