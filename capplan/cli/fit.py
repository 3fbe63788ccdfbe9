"""``capplan fit``: does it fit, and how many requests at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from capplan.cli.options import HardwareDir, IgnoreKey, Model, ModelsDir, Online, TensorParallel
from capplan.cli.output import answers
from capplan.describe.quantities import parse_bytes, parse_integer, parse_list, parse_tokens
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.fit import FitResult, fit
from capplan.report.views.fit import fit_chart, fit_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_ENGINE, _DEVICE, _CACHE, _MORE, _KNOWN = "Engine", "Device", "Caches", "Beside the model", "Known figures"

Text = str | None


def _option(*names: str, help: str, panel: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


@app.command("fit")
@answers(fit_view, chart=fit_chart)
def command(
    model: Model = None,
    gpu: Annotated[Text, _option("--gpu", help="Catalog name, MIG slice, YAML file or auto.", panel=_DEVICE)] = None,
    gpu_memory: Annotated[
        Text, _option("--gpu-memory", help="Device memory instead of the catalog's: 24GiB.", panel=_DEVICE)
    ] = None,
    memory_in_use: Annotated[
        str, _option("--memory-in-use", help="What other processes hold: 1.5GiB.", panel=_DEVICE)
    ] = "0",
    engine: Annotated[
        str, _option("--engine", help="vllm, sglang, trtllm, llama.cpp or transformers.", panel=_ENGINE)
    ] = "vllm",
    engine_version: Annotated[
        Text, _option("--engine-version", help="A version or a date: 0.9.1, b10840, 2026-05.", panel=_ENGINE)
    ] = None,
    tensor_parallel_size: TensorParallel = "1",
    pipeline_parallel_size: Annotated[
        str, _option("--pipeline-parallel-size", "-pp", help="Pipeline stages.", panel=_ENGINE)
    ] = "1",
    stage_layers: Annotated[
        Text, _option("--stage-layers", help="Layers of each stage: 14,13 [the engine's choice].", panel=_ENGINE)
    ] = None,
    data_parallel_size: Annotated[
        str, _option("--data-parallel-size", "-dp", help="Attention's data-parallel groups.", panel=_ENGINE)
    ] = "1",
    enable_expert_parallel: Annotated[
        bool, _option("--enable-expert-parallel", "-ep", help="Divide experts by number.", panel=_ENGINE)
    ] = False,
    decode_context_parallel_size: Annotated[
        str,
        _option("--decode-context-parallel-size", "-dcp", help="Ranks that share a cache by position.", panel=_ENGINE),
    ] = "1",
    max_model_len: Annotated[
        Text, _option("--max-model-len", help="The longest request: 32k [the model's own].", panel=_ENGINE)
    ] = None,
    max_num_seqs: Annotated[
        Text, _option("--max-num-seqs", help="Sequences at once, at most [the engine's default].", panel=_ENGINE)
    ] = None,
    max_num_batched_tokens: Annotated[
        Text,
        _option("--max-num-batched-tokens", "--ubatch-size", help="Tokens of a step, at most.", panel=_ENGINE),
    ] = None,
    gpu_memory_utilization: Annotated[
        Text,
        _option(
            "--gpu-memory-utilization",
            "--mem-fraction-static",
            "--free-gpu-memory-fraction",
            help="The engine's fraction of memory [its default].",
            panel=_ENGINE,
        ),
    ] = None,
    enforce_eager: Annotated[bool, _option("--enforce-eager", help="No CUDA graphs.", panel=_ENGINE)] = False,
    enable_chunked_prefill: Annotated[
        bool, _option("--enable-chunked-prefill", help="Split prompts (older vLLM).", panel=_ENGINE)
    ] = False,
    ctx_size: Annotated[
        Text, _option("--ctx-size", "-c", help="llama.cpp's context of all slots.", panel=_ENGINE)
    ] = None,
    parallel: Annotated[Text, _option("--parallel", "-np", help="llama.cpp's slots.", panel=_ENGINE)] = None,
    gpu_layers: Annotated[
        Text, _option("--gpu-layers", "-ngl", help="llama.cpp's layers on the device.", panel=_ENGINE)
    ] = None,
    weight_dtype: Annotated[
        Text,
        _option("--weight-dtype", help="bf16, fp8, awq-int4-g128, gguf:Q4_K_M ... [the checkpoint's].", panel=_CACHE),
    ] = None,
    kv_cache_dtype: Annotated[
        str,
        _option("--kv-cache-dtype", "--cache-type-k", "-ctk", help="auto, bf16, fp8, q8_0 ...", panel=_CACHE),
    ] = "auto",
    cache_type_v: Annotated[
        Text, _option("--cache-type-v", "-ctv", help="The dtype of values [as keys].", panel=_CACHE)
    ] = None,
    block_size: Annotated[
        Text, _option("--block-size", help="Tokens of a block [the engine's default].", panel=_CACHE)
    ] = None,
    enable_prefix_caching: Annotated[
        bool, _option("--enable-prefix-caching", help="Keep prefixes, states included.", panel=_CACHE)
    ] = False,
    no_enable_prefix_caching: Annotated[
        bool, _option("--no-enable-prefix-caching", help="Keep no prefixes.", panel=_CACHE)
    ] = False,
    prefix_caching_mode: Annotated[
        Text, _option("--prefix-caching-mode", help="How states are kept: none, align or all.", panel=_CACHE)
    ] = None,
    disable_hybrid_kv_cache_manager: Annotated[
        bool,
        _option("--disable-hybrid-kv-cache-manager", help="Give windowed layers the whole context.", panel=_CACHE),
    ] = False,
    state_dtype: Annotated[
        Text, _option("--mamba-ssm-cache-dtype", help="fp32 or bf16 for recurrent states.", panel=_CACHE)
    ] = None,
    state_slots: Annotated[
        Text, _option("--max-mamba-cache-size", help="SGLang's slots for states.", panel=_CACHE)
    ] = None,
    source_seq: Annotated[
        Text, _option("--source-seq", help="Tokens of an encoder's input that a request may have.", panel=_CACHE)
    ] = None,
    num_speculative_tokens: Annotated[
        str, _option("--num-speculative-tokens", help="Tokens drafted a step.", panel=_MORE)
    ] = "0",
    draft_model: Annotated[
        Text, _option("--draft-model", help="A model that drafts [the model's MTP layers].", panel=_MORE)
    ] = None,
    medusa_heads: Annotated[str, _option("--medusa-heads", help="Medusa heads.", panel=_MORE)] = "0",
    max_loras: Annotated[str, _option("--max-loras", help="LoRA adapters in memory.", panel=_MORE)] = "0",
    lora_rank: Annotated[str, _option("--lora-rank", "--max-lora-rank", help="Their rank.", panel=_MORE)] = "16",
    language_model_only: Annotated[
        bool, _option("--language-model-only", help="No images or sound.", panel=_MORE)
    ] = False,
    offload: Annotated[
        Text, _option("--offload", help="weights, layers or experts in host memory.", panel=_MORE)
    ] = None,
    cpu_offload_bytes: Annotated[
        Text, _option("--cpu-offload-bytes", help="Weights of each rank in host memory: 10GiB.", panel=_MORE)
    ] = None,
    host_memory: Annotated[Text, _option("--host-memory", help="Host memory for that: 1TiB.", panel=_MORE)] = None,
    available_kv_bytes: Annotated[
        Text,
        _option(
            "--available-kv-bytes", help="What the engine says is left for caches, one or one a stage.", panel=_KNOWN
        ),
    ] = None,
    kv_cache_memory_bytes: Annotated[
        Text, _option("--kv-cache-memory-bytes", help="What the engine is told to take for caches.", panel=_KNOWN)
    ] = None,
    weight_bytes: Annotated[Text, _option("--weight-bytes", help="The loaded weights of a rank.", panel=_KNOWN)] = None,
    activation_bytes: Annotated[
        Text, _option("--activation-bytes", help="The activation peak of a rank.", panel=_KNOWN)
    ] = None,
    non_torch_bytes: Annotated[
        Text, _option("--non-torch-bytes", help="A rank's memory that is not PyTorch's.", panel=_KNOWN)
    ] = None,
    cuda_graph_bytes: Annotated[Text, _option("--cuda-graph-bytes", help="A rank's CUDA graphs.", panel=_KNOWN)] = None,
    concurrency: Annotated[
        Text, _option("--concurrency", help="Requests that the longest length leaves room for [1].", panel=_ENGINE)
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 when it does not fit.")] = False,
    online: Online = False,
    models_dir: ModelsDir = [],
    hardware_dir: HardwareDir = [],
    ignore_key: IgnoreKey = [],
) -> Answer[FitResult]:
    """Whether a model fits on a device under an engine, what is left for caches, and how many requests that holds."""
    if model is None:
        raise UsageError("which model?", where="--model", hint="give --model")
    if enable_prefix_caching and no_enable_prefix_caching:
        raise UsageError("give either, not both", where="--enable-prefix-caching, --no-enable-prefix-caching")
    prefix = True if enable_prefix_caching else False if no_enable_prefix_caching else None
    return fit(
        model,
        gpu=gpu,
        gpu_memory=_bytes(gpu_memory, "--gpu-memory", "GiB"),
        memory_in_use=_bytes(memory_in_use, "--memory-in-use") or 0,
        engine=engine,
        engine_version=engine_version,
        tensor_parallel_size=_count(tensor_parallel_size, "-tp") or 1,
        pipeline_parallel_size=_count(pipeline_parallel_size, "-pp") or 1,
        stage_layers=tuple(parse_list(stage_layers, parse_integer, "--stage-layers")) if stage_layers else (),
        data_parallel_size=_count(data_parallel_size, "-dp") or 1,
        enable_expert_parallel=enable_expert_parallel,
        decode_context_parallel_size=_count(decode_context_parallel_size, "-dcp") or 1,
        max_model_len=_tokens(max_model_len, "--max-model-len"),
        max_num_seqs=_count(max_num_seqs, "--max-num-seqs"),
        max_num_batched_tokens=_tokens(max_num_batched_tokens, "--max-num-batched-tokens"),
        gpu_memory_utilization=_fraction(gpu_memory_utilization),
        enforce_eager=enforce_eager,
        enable_chunked_prefill=True if enable_chunked_prefill else None,
        ctx_size=_tokens(ctx_size, "--ctx-size"),
        slots=_count(parallel, "--parallel"),
        gpu_layers=_count(gpu_layers, "-ngl", least=0),
        weight_dtype=weight_dtype,
        kv_cache_dtype=kv_cache_dtype,
        kv_cache_dtype_v=cache_type_v,
        block_size=_tokens(block_size, "--block-size"),
        enable_prefix_caching=prefix,
        prefix_caching_mode=prefix_caching_mode,
        disable_hybrid_kv_cache_manager=disable_hybrid_kv_cache_manager,
        state_dtype=state_dtype,
        state_slots=_count(state_slots, "--max-mamba-cache-size"),
        source_seq=_tokens(source_seq, "--source-seq"),
        num_speculative_tokens=_count(num_speculative_tokens, "--num-speculative-tokens", least=0) or 0,
        draft_model=draft_model,
        medusa_heads=_count(medusa_heads, "--medusa-heads", least=0) or 0,
        max_loras=_count(max_loras, "--max-loras", least=0) or 0,
        lora_rank=_count(lora_rank, "--lora-rank") or 16,
        towers=not language_model_only,
        offload=offload,
        cpu_offload_bytes=_bytes(cpu_offload_bytes, "--cpu-offload-bytes"),
        host_memory=_bytes(host_memory, "--host-memory"),
        available_kv_bytes=_pools(available_kv_bytes),
        kv_cache_memory_bytes=_bytes(kv_cache_memory_bytes, "--kv-cache-memory-bytes"),
        weight_bytes=_bytes(weight_bytes, "--weight-bytes"),
        activation_bytes=_bytes(activation_bytes, "--activation-bytes"),
        non_torch_bytes=_bytes(non_torch_bytes, "--non-torch-bytes"),
        cuda_graph_bytes=_bytes(cuda_graph_bytes, "--cuda-graph-bytes"),
        concurrency=_count(concurrency, "--concurrency"),
        check=check,
        online=online,
        models_dirs=models_dir,
        hardware_dirs=hardware_dir,
        ignore_keys=ignore_key,
    )


def _given(parse: Callable[[str], Any], text: Text) -> Any:
    return None if text is None else parse(text)


def _count(text: Text, flag: str, *, least: int = 1) -> int | None:
    value: int | None = _given(lambda given: parse_integer(given, flag, least=least), text)
    return value


def _tokens(text: Text, flag: str) -> int | None:
    value: int | None = _given(lambda given: parse_tokens(given, flag), text)
    return value


def _bytes(text: Text, flag: str, unit: str = "B") -> int | None:
    value: int | None = _given(lambda given: parse_bytes(given, flag, unit=unit), text)
    return value


def _pools(text: Text) -> int | tuple[int, ...] | None:
    """One figure for all stages, or one a stage."""
    if text is None:
        return None
    pools = parse_list(text, lambda item, flag: parse_bytes(item, flag), "--available-kv-bytes")
    return pools[0] if len(pools) == 1 else tuple(pools)


def _fraction(text: Text) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise UsageError(f"{text[:40]!r} is not a fraction above 0 and at most 1", where="--gpu-memory-utilization")
    return value
