"""The flags of every question about time: the device, the engine, its parallel sizes and its number formats."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.options import HardwareDir, IgnoreKey, Model, ModelsDir, Online, TensorParallel
from capplan.describe.quantities import parse_integer, parse_tokens
from capplan.errors import UsageError
from capplan.questions.answer import Answer

_DEVICE, _ENGINE, _FORMAT = "Device", "Engine", "Formats"
Text = str | None


def _option(*names: str, help: str, panel: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


Gpu = Annotated[Text, _option("--gpu", help="Catalog name, MIG slice, YAML file or auto.", panel=_DEVICE)]
GpuMemory = Annotated[Text, _option("--gpu-memory", help="Memory of a device: 24GiB.", panel=_DEVICE)]
Bandwidth = Annotated[Text, _option("--memory-bandwidth", help="Its bandwidth: 1008GB/s.", panel=_DEVICE)]
Tflops = Annotated[Text, _option("--tflops", help="Its dense rates: 165, or bf16=165,fp8=330.", panel=_DEVICE)]
ProfilesDir = Annotated[list[Path], _option("--profiles-dir", help="A further folder of profiles.", panel=_DEVICE)]
EngineName = Annotated[str, _option("--engine", help="vllm, sglang, trtllm, llama.cpp or transformers.", panel=_ENGINE)]
Pipeline = Annotated[str, _option("--pipeline-parallel-size", "-pp", help="Pipeline stages.", panel=_ENGINE)]
DataParallel = Annotated[
    str, _option("--data-parallel-size", "-dp", help="Attention's data-parallel groups.", panel=_ENGINE)
]
ContextParallel = Annotated[
    str, _option("--decode-context-parallel-size", "-dcp", help="Ranks that share a cache by position.", panel=_ENGINE)
]
ExpertParallel = Annotated[
    bool, _option("--enable-expert-parallel", "-ep", help="Divide experts by number.", panel=_ENGINE)
]
Budget = Annotated[str, _option("--max-num-batched-tokens", help="Tokens of a step, at most.", panel=_ENGINE)]
Eager = Annotated[bool, _option("--enforce-eager", help="No CUDA graphs.", panel=_ENGINE)]
Port = Annotated[
    Text, _option("--network-bandwidth", help="A device's port to other nodes: 400Gbit/s [assumed].", panel=_DEVICE)
]
Node = Annotated[Text, _option("--gpus-per-node", help="Devices of one node [as described].", panel=_DEVICE)]
WeightDtype = Annotated[
    Text, _option("--weight-dtype", help="bf16, fp8, awq-int4-g128, nvfp4 ... [the checkpoint's].", panel=_FORMAT)
]
KvDtype = Annotated[str, _option("--kv-cache-dtype", help="auto, bf16, fp8, q8_0 ...", panel=_FORMAT)]

_FLAGS: dict[str, tuple[Any, Any]] = {
    "model": (Model, None),
    "gpu": (Gpu, None),
    "gpu_memory": (GpuMemory, None),
    "memory_bandwidth": (Bandwidth, None),
    "tflops": (Tflops, None),
    "engine": (EngineName, "vllm"),
    "tensor_parallel_size": (TensorParallel, "1"),
    "pipeline_parallel_size": (Pipeline, "1"),
    "data_parallel_size": (DataParallel, "1"),
    "decode_context_parallel_size": (ContextParallel, "1"),
    "enable_expert_parallel": (ExpertParallel, False),
    "max_num_batched_tokens": (Budget, "8192"),
    "enforce_eager": (Eager, False),
    "network_bandwidth": (Port, None),
    "gpus_per_node": (Node, None),
    "weight_dtype": (WeightDtype, None),
    "kv_cache_dtype": (KvDtype, "auto"),
    "models_dir": (ModelsDir, []),
    "hardware_dir": (HardwareDir, []),
    "profiles_dir": (ProfilesDir, []),
    "ignore_key": (IgnoreKey, []),
    "online": (Online, False),
}
"""Each flag's annotation and default, by the name under which the command line hands it on."""

_FOLDERS = {"models_dir": "models_dirs", "hardware_dir": "hardware_dirs", "profiles_dir": "profiles_dirs"}
_WHOLE = {
    "tensor_parallel_size": "-tp",
    "pipeline_parallel_size": "-pp",
    "data_parallel_size": "-dp",
    "decode_context_parallel_size": "-dcp",
}


def of_a_setting(question: Callable[..., Answer[Any]], *, needs_model: bool = True) -> Callable[..., Answer[Any]]:
    """Add these flags to a question; it gets them as ``setting``, keyword arguments of the Python twin."""
    signature = inspect.signature(question, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "setting"]
    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _FLAGS.items()
    ]

    def command(**arguments: Any) -> Answer[Any]:
        given = {name: arguments.pop(name) for name in _FLAGS}
        return question(**arguments, setting=setting_arguments(given, needs_model=needs_model))

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in [*own, *flags]]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__name__, command.__doc__ = question.__name__, question.__doc__
    return command


def setting_arguments(given: dict[str, Any], *, needs_model: bool = True) -> dict[str, Any]:
    """What was written on the command line as arguments of the Python twin."""
    if needs_model and given["model"] is None:
        raise UsageError("which model?", where="--model", hint="capplan models list shows those of the catalog")
    read: dict[str, int | None] = {name: parse_integer(given[name], flag, least=1) for name, flag in _WHOLE.items()}
    read["max_num_batched_tokens"] = parse_tokens(given["max_num_batched_tokens"], "--max-num-batched-tokens")
    node = given["gpus_per_node"]
    read["gpus_per_node"] = parse_integer(node, "--gpus-per-node", least=1) if node else None
    folders = {argument: given[name] for name, argument in _FOLDERS.items()}
    plain = {name: value for name, value in given.items() if name not in (*read, *_FOLDERS, "ignore_key")}
    return {**plain, **read, **folders, "ignore_keys": given["ignore_key"]}
