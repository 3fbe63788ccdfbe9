"""``capplan import-log``: an engine's start-up log beside capplan's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.options import HardwareDir, IgnoreKey, Model, ModelsDir, Online
from capplan.cli.output import answers
from capplan.describe.quantities import parse_bytes, parse_integer, parse_tokens
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.import_log import LogComparison, import_log
from capplan.report.views.import_log import import_log_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_LOG, _SETTING = "The log", "What the log doesn't say, or says wrongly"

Text = str | None


def _option(*names: str, help: str, panel: str = _SETTING) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


@app.command("import-log")
@answers(import_log_view)
def command(
    file: Annotated[Path, typer.Argument(help="The log, from the engine's start until it is ready or has given up.")],
    model: Model = None,
    gpu: Annotated[Text, _option("--gpu", help="Catalog name, MIG slice, YAML file or auto.")] = None,
    gpu_memory: Annotated[Text, _option("--gpu-memory", help="Device memory: 24GiB [as the log prints].")] = None,
    memory_in_use: Annotated[Text, _option("--memory-in-use", help="What other processes hold: 1.5GiB.")] = None,
    engine: Annotated[Text, _option("--engine", help="vllm, sglang, trtllm or llama.cpp.", panel=_LOG)] = None,
    start: Annotated[Text, _option("--start", help="Which start, when the log holds several.", panel=_LOG)] = None,
    engine_version: Annotated[Text, _option("--engine-version", help="A version or a date: 0.9.1, b10840.")] = None,
    tensor_parallel_size: Annotated[Text, _option("--tensor-parallel-size", "-tp", help="Ranks a layer.")] = None,
    pipeline_parallel_size: Annotated[Text, _option("--pipeline-parallel-size", "-pp", help="Stages.")] = None,
    data_parallel_size: Annotated[Text, _option("--data-parallel-size", "-dp", help="Groups of attention.")] = None,
    enable_expert_parallel: Annotated[
        bool, _option("--enable-expert-parallel", "-ep", help="Experts are divided by number.")
    ] = False,
    max_model_len: Annotated[Text, _option("--max-model-len", help="The longest request: 32k.")] = None,
    max_num_seqs: Annotated[Text, _option("--max-num-seqs", help="Sequences at once, at most.")] = None,
    max_num_batched_tokens: Annotated[
        Text, _option("--max-num-batched-tokens", "--ubatch-size", help="Tokens of a step, at most.")
    ] = None,
    gpu_memory_utilization: Annotated[
        Text, _option("--gpu-memory-utilization", "--mem-fraction-static", help="The engine's fraction of memory.")
    ] = None,
    enforce_eager: Annotated[bool, _option("--enforce-eager", help="No CUDA graphs.")] = False,
    ctx_size: Annotated[Text, _option("--ctx-size", "-c", help="llama.cpp's context of all slots.")] = None,
    parallel: Annotated[Text, _option("--parallel", "-np", help="llama.cpp's slots.")] = None,
    gpu_layers: Annotated[Text, _option("--gpu-layers", "-ngl", help="llama.cpp's layers on the device.")] = None,
    weight_dtype: Annotated[
        Text, _option("--weight-dtype", help="fp8, awq-int4-g128, gguf:Q4_K_M ... [the checkpoint's].")
    ] = None,
    kv_cache_dtype: Annotated[
        Text, _option("--kv-cache-dtype", "--cache-type-k", "-ctk", help="auto, bf16, fp8, q8_0 ...")
    ] = None,
    cache_type_v: Annotated[Text, _option("--cache-type-v", "-ctv", help="The dtype of values [as keys].")] = None,
    block_size: Annotated[Text, _option("--block-size", help="Tokens of a block.")] = None,
    prefix_caching_mode: Annotated[
        Text, _option("--prefix-caching-mode", help="How states are kept: none, align or all.")
    ] = None,
    num_speculative_tokens: Annotated[Text, _option("--num-speculative-tokens", help="Tokens drafted a step.")] = None,
    draft_model: Annotated[Text, _option("--draft-model", help="A model that drafts.")] = None,
    online: Online = False,
    models_dir: ModelsDir = [],
    hardware_dir: HardwareDir = [],
    ignore_key: IgnoreKey = [],
) -> Answer[LogComparison]:
    """The figures of an engine's start-up log beside capplan's for the same settings, line by line.

    Reads logs of vLLM, SGLang, TensorRT-LLM and llama.cpp. Flags override what the log says.
    """
    return import_log(
        file,
        model=model,
        gpu=gpu,
        engine=engine,
        start=_count(start, "--start"),
        gpu_memory=_bytes(gpu_memory, "--gpu-memory", "GiB"),
        memory_in_use=_bytes(memory_in_use, "--memory-in-use"),
        engine_version=engine_version,
        tensor_parallel_size=_count(tensor_parallel_size, "-tp"),
        pipeline_parallel_size=_count(pipeline_parallel_size, "-pp"),
        data_parallel_size=_count(data_parallel_size, "-dp"),
        enable_expert_parallel=True if enable_expert_parallel else None,
        max_model_len=_tokens(max_model_len, "--max-model-len"),
        max_num_seqs=_count(max_num_seqs, "--max-num-seqs"),
        max_num_batched_tokens=_tokens(max_num_batched_tokens, "--max-num-batched-tokens"),
        gpu_memory_utilization=_fraction(gpu_memory_utilization),
        enforce_eager=True if enforce_eager else None,
        ctx_size=_tokens(ctx_size, "--ctx-size"),
        slots=_count(parallel, "--parallel"),
        gpu_layers=_count(gpu_layers, "-ngl", least=0),
        weight_dtype=weight_dtype,
        kv_cache_dtype=kv_cache_dtype,
        kv_cache_dtype_v=cache_type_v,
        block_size=_tokens(block_size, "--block-size"),
        prefix_caching_mode=prefix_caching_mode,
        num_speculative_tokens=_count(num_speculative_tokens, "--num-speculative-tokens", least=0),
        draft_model=draft_model,
        online=online,
        models_dirs=models_dir,
        hardware_dirs=hardware_dir,
        ignore_keys=ignore_key,
    )


def _count(text: Text, flag: str, *, least: int = 1) -> int | None:
    return None if text is None else parse_integer(text, flag, least=least)


def _tokens(text: Text, flag: str) -> int | None:
    return None if text is None else parse_tokens(text, flag)


def _bytes(text: Text, flag: str, unit: str = "B") -> int | None:
    return None if text is None else parse_bytes(text, flag, unit=unit)


def _fraction(text: Text) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        message = f"{text[:40]!r} is not a fraction above 0 and at most 1"
        raise UsageError(message, where="--gpu-memory-utilization") from None
