"""How each public report is asked of capplan: its settings, those that stand only in its prose included.

Every entry takes nothing and returns the report's fields under its own keys. No number here is an answer: what is
given is what the report gives (a pool, a number of blocks or tokens, a length), and the rest is computed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import capplan
from capplan.describe.huggingface import parse_json, read_config
from capplan.describe.model import Attention, Block, Embedding, ModelSpec
from capplan.describe.resolve import resolve_model
from capplan.questions.fit import FitResult
from capplan.questions.kv import uniform_model

DATA = Path(__file__).parents[1] / "data"
GIB, MIB = 2**30, 2**20
ROWS: dict[str, dict[str, Any]] = {
    row["id"]: row for row in map(json.loads, (DATA / "engine_cases.jsonl").read_text(encoding="utf-8").splitlines())
}
Fields = dict[str, float]
CASES: dict[str, Callable[[], Fields]] = {}


def case(name: str) -> Callable[[Callable[[], Fields]], Callable[[], Fields]]:
    def add(ask: Callable[[], Fields]) -> Callable[[], Fields]:
        CASES[name] = ask
        return ask

    return add


def gib(size: float) -> int:
    return int(size * GIB)


def fit(model: Any, **settings: Any) -> FitResult:
    return capplan.fit(model, **settings).result


def blocks(model: Any, count: int, **settings: Any) -> FitResult:
    """A pool of so many blocks, where a report gives blocks (or tokens) instead of bytes."""
    size = fit(model, available_kv_bytes=gib(1000), **settings)
    one = {part.kind: part for part in size.cache}
    assert one
    block_bytes = (size.budget.terms[-1].bytes // size.kv_blocks) if size.kv_blocks else 0
    return fit(model, available_kv_bytes=count * block_bytes, **settings)


def kv_bytes(model: Any, seq: int, dtype: str = "bf16", **more: Any) -> int:
    return capplan.kv(model, seq=seq, kv_cache_dtype=dtype, **more).result.total_bytes


def sliding_model(name: str, full: tuple[int, int, int], sliding: tuple[int, int, int], window: int) -> ModelSpec:
    """A model of which only the caches are known: (layers, KV heads, head dim) of full and of windowed layers."""

    def block(kv_heads: int, dim: int, span: int | None) -> Block:
        return Block(mixer=Attention(heads=kv_heads, kv_heads=kv_heads, head_dim=dim, window=span))

    return ModelSpec(
        name=name,
        hidden_size=256,
        blocks={"full": block(*full[1:], None), "sliding": block(*sliding[1:], window)},
        layers=f"{full[0]}*full + {sliding[0]}*sliding",
        embedding=Embedding(vocab_size=256),
    )


def part(result: FitResult, kind: str) -> Any:
    return next(group for group in result.cache if group.kind == kind)


def part_bytes(result: FitResult, kind: str) -> int:
    group = part(result, kind)
    return int(group.key_bytes + group.value_bytes + group.state_bytes)


def weights(model: Any, **settings: Any) -> float:
    """GiB of a rank's weights; the pool does not matter."""
    return fit(model, available_kv_bytes=gib(1), **settings).weight_bytes_per_rank / GIB


# vLLM, one kind of layer


@case("D01")
def _() -> Fields:
    found = blocks("llama3.1-8b", 1952, engine_version="0.6.x (V0)", max_model_len=20000)
    return {
        "weights_gib": found.weight_bytes_per_rank / GIB,
        "concurrency_x": found.max_concurrency,
        "kv_gib": found.kv_pool_bytes_per_rank / GIB,
    }


@case("D05")
def _() -> Fields:
    settings = {"engine_version": "V1 2025-01", "max_model_len": 2048, "weight_dtype": "int8-channel"}
    found = blocks("llama3.1-70b", 1381, **settings)
    return {"weights_gib": found.weight_bytes_per_rank / GIB, "concurrency_x": found.max_concurrency}


@case("D06")
def _() -> Fields:
    model = "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B"
    return {"weights_gib_per_gpu": weights(model, engine_version="0.7.x", tensor_parallel_size=2)}


@case("D07")
def _() -> Fields:
    found = fit("qwen3-32b", available_kv_bytes=gib(1.25), engine_version="V1 2025-06", max_model_len=40960)
    return {"needed_gib": found.kv_request_bytes / GIB}


@case("D09")
def _() -> Fields:
    found = fit(
        "Qwen/Qwen2.5-32B-Instruct", weight_dtype="awq-int4-g128", available_kv_bytes=gib(0.58),
        engine_version="2026-08", max_model_len=4096,
    )  # fmt: skip
    return {
        "needed_gib": found.kv_request_bytes / GIB,
        "weights_gib": found.weight_bytes_per_rank / GIB,
        "est_max_len": found.longest_model_len,
    }


@case("D10")
def _() -> Fields:
    settings = {"engine_version": "0.29.1rc1", "tensor_parallel_size": 2, "max_model_len": 196608}
    short = fit("minimax-m2.7", available_kv_bytes=gib(23.25 - 0.75), **settings)
    longer = blocks("minimax-m2.7", 240816 // 16, **settings)
    return {
        "needed_gib": short.kv_request_bytes / GIB,
        "est_max_len": short.longest_model_len,
        "concurrency_x": longer.max_concurrency,
    }


@case("D11")
def _() -> Fields:
    settings = {"engine_version": "0.10.x", "kv_cache_dtype": "fp8"}
    first = fit("qwen3-30b-a3b", available_kv_bytes=gib(10.55), max_model_len=100000, **settings)
    printed = blocks("qwen3-30b-a3b", 230528 // 16, max_model_len=100000, **settings)
    second = fit("qwen3-30b-a3b", available_kv_bytes=gib(5.59), max_model_len=221000, **settings)
    return {
        "tokens": first.kv_tokens,
        "concurrency_x": printed.max_concurrency,
        "needed_gib": second.kv_request_bytes / GIB,
        "est_max_len": second.longest_model_len,
    }


@case("D13")
def _() -> Fields:
    model = uniform_model(1, 1, 128)
    found = blocks(model, 2042016 // 16, engine_version="V1 2025-02", max_model_len=2048)
    return {"tokens": found.kv_tokens, "concurrency_x": found.max_concurrency}


@case("D15")
def _() -> Fields:
    model = "mistralai/Mistral-Small-3.2-24B-Instruct-2506"
    found = blocks(model, 1444, engine_version="0.11.0", max_model_len=16000, block_size=128)
    return {
        "tokens": found.kv_tokens,
        "concurrency_x": found.max_concurrency,
        "weights_gib": found.weight_bytes_per_rank / GIB,
    }


@case("D16")
def _() -> Fields:
    found = fit("qwen2.5-1.5b", available_kv_bytes=gib(0.2), max_model_len=8192, engine_version="0.11")
    return {
        "kv_gib_of_25008": kv_bytes("qwen2.5-1.5b", 25008) / GIB,
        "needed_gib_8192": found.kv_request_bytes / GIB,
        "est_max_len_in_0.2": found.longest_model_len,
    }


@case("D17")
def _() -> Fields:
    found = capplan.kv("Qwen/Qwen3-Coder-30B-A3B-Instruct", seq=262144, batch=2).result
    return {"pool_gib": found.total_bytes / GIB, "tokens": 2 * found.total_bytes // 2 // found.bytes_per_token}


@case("D27")
def _() -> Fields:
    given = {"gpu_memory": gib(79.22), "engine_version": "0.6.5 dev", "max_model_len": 8192}
    one = fit(
        "meta-llama/Meta-Llama-3-8B", gpu_memory_utilization=0.9, non_torch_bytes=gib(1.79),
        activation_bytes=gib(1.26), **given,
    )  # fmt: skip
    two = fit("meta-llama/Meta-Llama-3-8B", tensor_parallel_size=2, **given)
    return {
        "available_kv_gib_tp1": one.kv_pool_bytes_per_rank / GIB,
        "weights_tp1": one.weight_bytes_per_rank / GIB,
        "weights_tp2": two.weight_bytes_per_rank / GIB,
    }


@case("M03")
def _() -> Fields:
    latents = 14 * 1152
    found = fit(
        "deepseek-v2-lite", engine_version="0.9.x", tensor_parallel_size=2, pipeline_parallel_size=2,
        max_model_len=1024, available_kv_bytes=(807792 * latents, gib(11.33)),
    )  # fmt: skip
    return {"tokens": found.kv_tokens, "concurrency_x": found.max_concurrency}


@case("X01")
def _() -> Fields:
    layer = 2048  # what 4.3 GiB over 280,880 tokens and 8 layers come to
    found = fit(
        uniform_model(64, 4, 128), engine_version="0.10.x", pipeline_parallel_size=2, stage_layers=(56, 8),
        max_model_len=4096, available_kv_bytes=327680 * 8 * layer,
    )  # fmt: skip
    return {
        "tokens": found.kv_tokens,
        "wasted_gib": (found.ranks[1].pool_bytes - found.kv_tokens * 8 * layer) / GIB,
    }


@case("X05")
def _() -> Fields:
    found = blocks("google/gemma-4-31B-it", 7584 // 16, engine_version="0.9.1", max_model_len=128)
    return {"tokens": found.kv_tokens, "conc": found.max_concurrency}


# vLLM, several kinds of layers


@case("S06")
def _() -> Fields:
    settings = {"max_model_len": 16384, "max_num_batched_tokens": 8192}
    pool = round(134.1865 * 16384 / 16)
    return {
        "old_x": blocks("starcoder2-3b", pool, engine_version="0.9.1", **settings).max_concurrency,
        "right_x": blocks("starcoder2-3b", pool, engine_version="0.9.2", **settings).max_concurrency,
    }


@case("S09")
def _() -> Fields:
    found = fit(
        "google/gemma-4-31B-it", available_kv_bytes=gib(24.54), engine_version="0.15", max_model_len=32768,
        max_num_batched_tokens=8192,
    )  # fmt: skip
    block_bytes = found.budget.terms[-1].bytes // found.kv_blocks
    return {"vllm_tokens": found.kv_tokens, "vllm_bytes_per_token": block_bytes * len(found.cache) // 16}


@case("S10")
def _() -> Fields:
    off = fit(
        "gpt-oss-20b", available_kv_bytes=gib(20), max_model_len=8192, engine_version="0.11",
        disable_hybrid_kv_cache_manager=True,
    )  # fmt: skip
    return {
        "window_gib": kv_bytes("gpt-oss-20b", 8192, batch=32) / GIB,
        "full_gib": 32 * off.kv_request_bytes / GIB,
    }


@case("S20")
def _() -> Fields:
    found = fit(
        "meta-llama/Llama-4-Scout-17B-16E-Instruct", engine_version="0.8.3", tensor_parallel_size=8,
        max_model_len=1048576, available_kv_bytes=gib(30),
    )  # fmt: skip
    return {"needed_gib": found.kv_request_bytes / GIB}


@case("H12")
def _() -> Fields:
    found = fit(
        "qwen3.6-35b-a3b", available_kv_bytes=gib(5.98), engine_version="0.24.0", kv_cache_dtype="fp8",
        max_model_len=131072, prefix_caching_mode="align",
    )  # fmt: skip
    return {"tokens": found.kv_tokens, "concurrency_x": found.max_concurrency, "block": found.kv_block_size}


@case("H13")
def _() -> Fields:
    found = fit(
        "qwen3.6-27b", available_kv_bytes=gib(4.99), engine_version="2026-08", kv_cache_dtype="fp8_e4m3",
        tensor_parallel_size=2, max_model_len=131072,
    )  # fmt: skip
    return {"tokens": found.kv_tokens, "concurrency_x": found.max_concurrency, "block": found.kv_block_size}


@case("H15")
def _() -> Fields:
    found = blocks(
        "qwen3-next-80b-a3b-instruct", 339, engine_version="0.11", kv_cache_dtype="fp8", max_model_len=215040
    )
    return {"printed_tokens": found.kv_tokens, "concurrency_x": found.max_concurrency}


@case("H17")
def _() -> Fields:
    settings = {"available_kv_bytes": gib(8.82), "engine_version": "0.27", "max_model_len": 131072}
    found = fit("qwen3.6-27b", max_num_seqs=256, **settings)
    assert not found.fits
    assert found.kv_blocks == ROWS["H17"]["measured"]["mamba_blocks"]
    assert fit("qwen3.6-27b", max_num_seqs=16, **settings).fits
    return {"concurrency_x": found.max_concurrency}


@case("H19")
def _() -> Fields:
    plain = weights("qwen3.5-122b-a10b", engine_version="2026-04")
    drafting = weights("qwen3.5-122b-a10b", engine_version="2026-04", num_speculative_tokens=1)
    return {"weights_mtp_minus_plain_gib": drafting - plain}


@case("H21")
def _() -> Fields:
    found = blocks(
        "qwen3.6-27b", 424, engine_version="2026-06", kv_cache_dtype="fp8_e5m2", tensor_parallel_size=2,
        max_model_len=262144, num_speculative_tokens=3, enable_prefix_caching=True,
    )  # fmt: skip
    assert found.kv_tokens == ROWS["H21"]["measured"]["tokens"]
    return {"concurrency_x": found.max_concurrency}


@case("E02")
def _() -> Fields:
    found = fit(
        "openai/whisper-large-v3", available_kv_bytes=gib(16.9), engine_version="2026-05", max_model_len=448,
        max_num_batched_tokens=2048,
    )  # fmt: skip
    return {
        "tokens": found.kv_tokens,
        "concurrency_x": found.max_concurrency,
        "weights_gib": found.weight_bytes_per_rank / GIB,
    }


@case("M12")
def _() -> Fields:
    settings = {"available_kv_bytes": gib(50), "engine_version": "0.25.0", "kv_cache_dtype": "fp8"}
    one = fit("deepseek-v4-flash", tensor_parallel_size=8, max_model_len=65536, **settings)
    eight = fit("deepseek-v4-flash", data_parallel_size=8, max_model_len=65536, **settings)
    return {"dp8_vs_tp8_kv": eight.replica_concurrency / one.replica_concurrency}


# SGLang


def sglang(model: Any, tokens: int, **settings: Any) -> FitResult:
    """A pool with room for so many tokens, as SGLang prints them, and for the states that were asked for."""
    settings = {"engine": "sglang", "max_model_len": 4096} | settings
    one = fit(model, available_kv_bytes=gib(100), **settings)
    size = sum(
        (group.key_bytes + group.value_bytes) // (group.places + 1) * tokens
        if group.kind != "state"
        else group.state_bytes // (group.places + 1) * group.places
        for group in one.cache
    )
    return fit(model, available_kv_bytes=size, **settings)


def halves(found: FitResult) -> Fields:
    full = part(found, "full")
    return {"K_gib": full.key_bytes / GIB, "V_gib": full.value_bytes / GIB}


@case("D12")
def _() -> Fields:
    return halves(sglang("Qwen/Qwen3-235B-A22B", 367404, tensor_parallel_size=4))


@case("D18")
def _() -> Fields:
    return {"pool_gib": part_bytes(sglang("Qwen/Qwen3-Coder-30B-A3B-Instruct", 163840), "full") / GIB}


@case("D19")
def _() -> Fields:
    tokens = round(1.4225 * GIB / 32768)  # the report prints the bytes only
    found = sglang("qwen2.5-32b", tokens, tensor_parallel_size=4)
    return halves(found) | {"weights_gib_per_gpu": found.weight_bytes_per_rank / GIB}


@case("D20")
def _() -> Fields:
    return halves(sglang("openai-community/gpt2", round(4.2654 * GIB / 18432), kv_cache_dtype="fp16"))


def recurrent_gib(found: FitResult) -> float:
    state = part(found, "state")
    return float(state.state_bytes - state.convolution_bytes) / GIB


@case("H08")
def _() -> Fields:
    tokens = round(19.9804 * GIB / 8192)  # the report prints the bytes only
    found = sglang("nemotron-nano-9b-v2", tokens, engine_version="2026-09", max_model_len=16384, state_slots=48)
    return halves(found) | {"ssm_gib": recurrent_gib(found)}


@case("H09")
def _() -> Fields:
    settings = {"num_speculative_tokens": 3, "state_slots": 43, "state_dtype": "bf16", "engine_version": "0.5.17"}
    found = sglang("qwen3.6-27b", round(5.2188 * GIB / 32768), **settings)
    draft = part(found, "draft full").key_bytes / GIB
    return halves(found) | {"draft_K_gib": draft, "ssm_gib": recurrent_gib(found)}


# TensorRT-LLM


@case("D21")
def _() -> Fields:
    found = fit(
        "meta-llama/Llama-2-7b-hf", engine="trtllm", engine_version="0.8", kv_cache_dtype="fp16",
        available_kv_bytes=gib(64.75), max_model_len=4096,
    )  # fmt: skip
    pool = found.budget.terms[-1].bytes
    return {"bytes_per_token": pool / found.kv_tokens, "alloc_bytes": pool}


@case("D22")
def _() -> Fields:
    found = fit(
        uniform_model(32, 8, 128), engine="trtllm", engine_version="2025-02", available_kv_bytes=gib(26.92),
        max_model_len=131072, block_size=64,
    )  # fmt: skip
    return {"alloc_gib": found.budget.terms[-1].bytes / GIB}


@case("D23")
def _() -> Fields:
    found = blocks("llama3.1-8b", 8219, engine="trtllm", kv_cache_dtype="fp8", block_size=32, max_model_len=4096)
    return {"alloc_gib": found.budget.terms[-1].bytes / GIB, "tokens": found.kv_tokens}


@case("D24")
def _() -> Fields:
    return {
        "gib_0.5B_190656": kv_bytes("qwen2.5-0.5b", 190656) / GIB,
        "gib_1.5B_273792": kv_bytes("qwen2.5-1.5b", 273792) / GIB,
    }


@case("D26")
def _() -> Fields:
    found = fit(
        uniform_model(28, 32, 128), engine="trtllm", engine_version="0.12.0.dev", kv_cache_dtype="fp8",
        available_kv_bytes=gib(0.99 * 63.625), max_model_len=4096,
    )  # fmt: skip
    return {"alloc_gib": found.budget.terms[-1].bytes / GIB, "tokens": found.kv_tokens}


@case("S19")
def _() -> Fields:
    found = blocks("gpt-oss-120b", 8224 // 32, engine="trtllm", engine_version="2025-12", max_model_len=8192)
    return {"alloc_gib": found.budget.terms[-1].bytes / GIB}


@case("C05")
def _() -> Fields:
    def sequences(fraction: float) -> int:
        settings = {"gpu": "gb300", "weight_dtype": "fp8", "max_model_len": 4096}
        return fit("qwen3-32b", engine="trtllm", gpu_memory_utilization=fraction, **settings).kv_pool_bytes_per_rank

    return {"ratio_0.9_over_0.8": sequences(0.9) / sequences(0.8)}


# llama.cpp


def llama_cpp(model: Any, context: int, **settings: Any) -> FitResult:
    settings = {"weight_dtype": "bf16", "kv_cache_dtype": "fp16"} | settings
    return fit(model, engine="llama.cpp", available_kv_bytes=gib(500), ctx_size=context, **settings)


@case("G05")
def _() -> Fields:
    return {"kv_mib": kv_bytes("mistral-small-instruct-2409", 49152, "q8_0") / MIB}


@case("G08")
def _() -> Fields:
    return {"kv_mib": kv_bytes("qwen2.5-1.5b", 4096, "fp32") / MIB}


@case("M02")
def _() -> Fields:
    model = "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct"
    full = part(llama_cpp(model, 8 * 2048, slots=8, engine_version="b4000"), "full")
    return {
        "K_mib": full.key_bytes / MIB,
        "V_mib": full.value_bytes / MIB,
        "total_mib": (full.key_bytes + full.value_bytes) / MIB,
    }


def windows(model: Any, context: int, **settings: Any) -> Fields:
    found = llama_cpp(model, context, **settings)
    return {"full_mib": part_bytes(found, "full") / MIB, "swa_mib": part_bytes(found, "window") / MIB}


@case("S01")
def _() -> Fields:
    return windows("google/gemma-3-4b-it", 131072)


@case("S02")
def _() -> Fields:
    model = sliding_model("gemma-4-12b", (8, 1, 512), (40, 8, 256), 1024)
    return windows(model, 262144, kv_cache_dtype="q8_0", engine_version="b10840")


@case("S03")
def _() -> Fields:
    return windows(sliding_model("gemma-4-e4b", (4, 2, 512), (20, 2, 256), 512), 32768)


@case("S12")
def _() -> Fields:
    found = {length: llama_cpp("gemma-4-26b-a4b", length * 1024) for length in (32, 128)}
    return {f"right_gb_{length}k": result.kv_request_bytes / 1e9 for length, result in found.items()}


@case("H01")
def _() -> Fields:
    found = llama_cpp("qwen3.6-27b", 262144, slots=4)
    return {"kv_mib": part_bytes(found, "full") / MIB, "rs_mib": part_bytes(found, "state") / MIB}


@case("H05")
def _() -> Fields:
    found = llama_cpp("qwen3.5-35b-a3b", 200704)
    return {"kv_mib": part_bytes(found, "full") / MIB, "rs_mib": part_bytes(found, "state") / MIB}


# Weights


@case("W03")
def _() -> Fields:
    spec = resolve_model("meta-llama/Llama-3.1-405B").spec
    kept = [f"model.layers.{layer}.self_attn" for layer in range(spec.depth)] + ["lm_head"]
    kept += [f"model.layers.{layer}.mlp" for layer in (0, spec.depth - 1)]
    config = {"quant_method": "fbgemm_fp8", "modules_to_not_convert": kept, "activation_scale_ub": 1200.0}
    return {"gib_per_gpu": weights(replace(spec, quantisation=config), engine_version="0.5.3", tensor_parallel_size=8)}


@case("W05")
def _() -> Fields:
    return {"gib": weights("qwen3-0.6b", engine_version="0.11.0")}


@case("W06")
def _() -> Fields:
    settings = {"engine_version": "0.11.0", "weight_dtype": "fp8-channel"}
    model = "meta-llama/Llama-3.3-70B-Instruct"
    return {
        "gib_tp1": weights(model, **settings),
        "gib_tp2": weights(model, tensor_parallel_size=2, **settings),
    }


def mxfp4(model: str, *versions: str) -> list[float]:
    raw = capplan.weights(model, weight_dtype="mxfp4").result.weight_bytes / GIB
    return [raw, *(weights(model, weight_dtype="mxfp4", engine_version=version) for version in versions)]


@case("W07")
def _() -> Fields:
    raw, newer, older = mxfp4("gpt-oss-120b", "0.11", "0.10")
    return {"raw_gib": raw, "vllm_0.11_gib": newer, "vllm_0.10_gib": older}


@case("W08")
def _() -> Fields:
    raw, loaded = mxfp4("gpt-oss-20b", "0.11")
    return {"raw_gib": raw, "vllm_gib": loaded}


def gguf(model: str, mix: str) -> Fields:
    found = capplan.weights(model, weight_dtype=f"gguf:{mix}").result
    return {"gib": found.weight_bytes / GIB, "gb": found.weight_bytes / 1e9, "bpw": found.bits_per_weight}


@case("W09")
def _() -> Fields:
    return gguf("gpt-oss-120b", "MXFP4_MOE")


@case("W10-Q8_0")
def _() -> Fields:
    return gguf("meta-llama/Meta-Llama-3-70B", "Q8_0")


@case("W10-Q6_K")
def _() -> Fields:
    return gguf("meta-llama/Meta-Llama-3-70B", "Q6_K")


@case("W11")
def _() -> Fields:
    return gguf("meta-llama/Llama-3.1-70B-Instruct", "Q4_K_M")


@case("V01")
def _() -> Fields:
    return {
        "weights_gib_per_gpu": weights("Qwen/Qwen2.5-VL-72B-Instruct", engine_version="0.8.3", tensor_parallel_size=4)
    }


# What planners got wrong


@case("M05")
def _() -> Fields:
    return {"gib_10000": kv_bytes("deepseek-v3", 10000) / GIB}


@case("S15")
def _() -> Fields:
    path = DATA / "model_truth" / "configs" / "google--gemma-3n-E2B-it(text).json"
    config = parse_json(path.read_text(encoding="utf-8"), path.name)
    layers = 35
    config |= {
        "num_hidden_layers": layers,
        "num_kv_shared_layers": 15,
        "intermediate_size": [16384] * layers,
        "activation_sparsity_pattern": [0.95] * 10 + [0.0] * (layers - 10),
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * (layers // 5),
    }
    spec = read_config(config, where=path.name, name="gemma-3n-e4b")
    groups = capplan.kv(spec, seq=1024).result.groups
    return {"kv_layers": sum(group.layers for group in groups if group.kv_bytes)}


@case("B01")
def _() -> Fields:
    return {"right_ratio": capplan.kv("qwen3-4b", seq=1).result.bytes_per_token / (2 * 36 * 8 * 80 * 2)}


@case("B03")
def _() -> Fields:
    return {"right_gib": kv_bytes("deepseek-v3.1", 163840) / GIB}


@case("B05")
def _() -> Fields:
    return {"right_gib": kv_bytes("kimi-k2.5", 262144) / GIB}


@case("B11")
def _() -> Fields:
    stored = capplan.weights("qwen3-32b", weight_dtype="gguf:Q6_K").result.weight_bytes
    return {"actual_gib": (stored + kv_bytes("qwen3-32b", 32768)) / GIB}


@case("B12")
def _() -> Fields:
    return {"needed_gib_bf16_total": kv_bytes("llama3.1-70b", 131072) / GIB}


@case("B13")
def _() -> Fields:
    groups = capplan.kv("nemotron-3-super-120b-a12b-bf16", seq=1024).result.groups
    return {"attn_layers": sum(group.layers for group in groups if group.kv_bytes)}


@case("B19")
def _() -> Fields:
    right = kv_bytes("llama3.1-405b", 128000) / GIB
    return {"right_gb_128k": right, "published_gb": 2 * right}


@case("B20")
def _() -> Fields:
    return {"right_bytes": capplan.kv("qwen2.5-7b", seq=3072).result.bytes_per_token}


@case("B22")
def _() -> Fields:
    return {"right_f32_gib": kv_bytes("llama3.2-3b", 131072, "fp32") / GIB}


NOT_REPRODUCED: dict[str, str] = {
    "D29": "measured only: blocks without the memory that was left",
    "M07": "measured only: the memory that was left is not told",
    "M08": "measured only: the report's own rate is what it calls wrong",
    "M10": "measured only: a fork's layout (nvfp4_ds_mla)",
    "M11": "measured only: a plugin's bytes a token",
    "S17": "measured only: vLLM-Metal, the budget is not told",
    "H20": "measured only: a model whose sizes are not published here",
    "X03": "measured only: a rule, held by the invariants",
    "X04": "measured only: a rule, held by the invariants",
    "X06": "measured only: another engine's ring buffers",
    "W10-Q4_K_M": "no prediction; the same mix of the sister model is W11",
    "W10-Q2_K": "no prediction",
    "W15": "measured only: a mix made by hand",
    "B09": "measured only: an encoder's compute buffer",
    "B10": "measured only: an encoder's compute buffer",
    "B24": "a time, not memory",
    "B25": "a time, not memory",
    "B26": "no measured figure",
    "B27": "measured only: an engine's bug",
    "B28": "no measured figure",
    "B30": "measured only: another program's bug",
    "C04": "rough: the memory beside the cache was guessed; its exact part is tested apart",
}
"""Reports without a figure that could be reproduced, and why."""

NOT_PREDICTED: dict[tuple[str, str], str] = {
    ("V01", "kv_gib"): "the prediction is the measured figure itself",
    ("W11", "gb"): "the file's header, with its vocabulary, is in it: 8 MB beside tensors of 42.51 GB",
}
"""Single fields of reports that are otherwise reproduced, for which the same holds."""
