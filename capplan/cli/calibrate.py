"""``capplan calibrate``: measure this device, fit a profile, prove it; measure a server; read benchmark files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from capplan.cli.options import HardwareDir, Model, ModelsDir, TensorParallel
from capplan.cli.output import answers
from capplan.cli.progress import bar
from capplan.cli.setting import EngineName, ProfilesDir
from capplan.describe.quantities import parse_integer, parse_list, parse_seconds, parse_tokens
from capplan.errors import UsageError, did_you_mean
from capplan.questions.answer import Answer
from capplan.questions.calibrate import (
    CalibrationResult,
    CheckResult,
    EndpointResult,
    ImportResult,
    KernelImportResult,
    PhasesResult,
)
from capplan.report.views.calibrate import (
    calibration_view,
    check_view,
    endpoint_view,
    import_view,
    kernel_import_view,
    phases_view,
)


class _RunByDefault(TyperGroup):
    """``capplan calibrate`` and ``capplan calibrate --minutes 2`` are ``capplan calibrate run ...``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("--help", "-h")):
            args = ["run", *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


app = typer.Typer(
    cls=_RunByDefault,
    add_completion=False,
    rich_markup_mode=None,
    help="Measure this device (or a server), fit a profile, and prove it.",
    pretty_exceptions_enable=False,
)

LEAST_SECONDS = 1.0
"""For measuring kernels: a reading of the memory alone takes longer."""

MODES = ("eager", "graphs", "compile")

DeviceName = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:1.")]
Threads = Annotated[str | None, typer.Option("--threads", help="Threads of a CPU [torch's own choice].")]
Clock = Annotated[
    str,
    typer.Option(
        "--clock", help="wall; cpu counts only this process's own time, with --threads 1; auto finds out which."
    ),
]
CheckModels = Annotated[list[str], typer.Option("--check-model", help="A model to check the profile with.")]
Modes = Annotated[list[str], typer.Option("--mode", help="How models are launched: eager, graphs or compile.")]


@app.command("run")
@answers(calibration_view)
def run_command(
    device: DeviceName = "auto",
    minutes: Annotated[str, typer.Option("--minutes", help="For measuring kernels.")] = "5",
    points: Annotated[str | None, typer.Option("--points", help="Cases to measure, instead of a time.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The profile: NAME.yaml.")] = None,
    samples: Annotated[Path | None, typer.Option("--samples", help="Every raw sample [beside the profile].")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the samples that are there.")] = False,
    threads: Threads = None,
    clock: Clock = "auto",
    seed: Annotated[str, typer.Option("--seed", help="Of the random inputs.")] = "0",
    no_check: Annotated[bool, typer.Option("--no-check", help="Run no whole models.")] = False,
    check_model: CheckModels = [],
    mode: Modes = ["eager"],
    models_dir: ModelsDir = [],
) -> Answer[CalibrationResult]:
    """Measure kernels, fit a profile, and check it with whole models that it has not seen."""
    from calibrate.session import RunRequest

    request = RunRequest(
        device=device,
        minutes=_minutes(minutes),
        points=parse_integer(points, "--points", least=1) if points else None,
        out=out,
        samples=samples,
        resume=resume,
        threads=_threads(threads),
        clock=clock,
        seed=parse_integer(seed, "--seed"),
        check=not no_check,
        check_models=tuple(check_model),
        models_dirs=tuple(models_dir),
        modes=_modes(mode),
    )
    from calibrate.answers import run_answer

    with bar("go on with `capplan calibrate run --resume`") as say:
        return run_answer(request, say)


@app.command("fit")
@answers(calibration_view)
def fit_command(
    samples: Annotated[list[Path], typer.Argument(help="The samples of a run, and of collectives.")],
    out: Annotated[Path | None, typer.Option("--out", help="The profile: NAME.yaml [beside the samples].")] = None,
    models_dir: ModelsDir = [],
) -> Answer[CalibrationResult]:
    """Fit a profile to samples that were measured before."""
    from calibrate.answers import fit_answer

    return fit_answer(samples, out, models_dir)


@app.command("check")
@answers(check_view)
def check_command(
    profile: Annotated[Path, typer.Argument(help="A profile that a run wrote, with its samples beside it.")],
    device: DeviceName = "auto",
    threads: Threads = None,
    clock: Clock = "auto",
    model: Annotated[list[str], typer.Option("--model", help="A model to run [some of every kind].")] = [],
    mode: Modes = ["eager"],
    models_dir: ModelsDir = [],
) -> Answer[CheckResult]:
    """Run whole models again, and hold a profile to what it says of them."""
    from calibrate.answers import check_answer

    with bar("nothing was changed") as say:
        return check_answer(
            profile,
            say=say,
            device_name=device,
            threads=_threads(threads),
            clock=clock,
            models=tuple(model),
            models_dirs=tuple(models_dir),
            modes=_modes(mode),
        )


@app.command("phases")
@answers(phases_view)
def phases_command(
    model: Annotated[str, typer.Option("--model", "-m", help="Catalog name, config.json, folder or YAML file.")],
    isl: Annotated[str, typer.Option("--isl", help="Tokens of each prompt.")] = "512",
    osl: Annotated[str, typer.Option("--osl", help="Tokens that each sequence gets.")] = "32",
    batch: Annotated[str, typer.Option("--batch", help="Sequences.")] = "1",
    device: DeviceName = "auto",
    runner: Annotated[str, typer.Option("--runner", help="stack, or transformers (its own generate).")] = "stack",
    mode: Annotated[str, typer.Option("--mode", help="How kernels are launched: eager, graphs or compile.")] = "eager",
    dtype: Annotated[str, typer.Option("--dtype", help="bf16, fp16 or fp32.")] = "bf16",
    layers: Annotated[str | None, typer.Option("--layers", help="Layers to run [as many as fit].")] = None,
    profile: Annotated[Path | None, typer.Option("--profile", help="A profile whose word is to stand beside.")] = None,
    threads: Threads = None,
    clock: Clock = "auto",
    models_dir: ModelsDir = [],
) -> Answer[PhasesResult]:
    """TTFT, TPOT and throughput of one model with random weights on this device, and the bytes of its caches."""
    from calibrate.phase_load import Load
    from calibrate.phases_answer import PhasesRequest, phases_answer

    load = Load(
        parse_integer(batch, "--batch", least=1), parse_tokens(isl, "--isl"), parse_tokens(osl, "--osl", least=2)
    )
    request = PhasesRequest(
        model=model,
        load=load,
        device=device,
        runner=_one_of(runner, ("stack", "transformers"), "--runner"),
        mode=_one_of(mode, MODES, "--mode"),
        format=_one_of(dtype, ("bf16", "fp16", "fp32"), "--dtype"),
        layers=parse_integer(layers, "--layers", least=1) if layers else None,
        profile=profile,
        threads=_threads(threads),
        clock=clock,
        models_dirs=tuple(models_dir),
    )
    return phases_answer(request)


@app.command("endpoint")
@answers(endpoint_view)
def endpoint_command(
    url: Annotated[str, typer.Argument(help="http://localhost:8000")],
    model: Annotated[str, typer.Option("--model", "-m", help="The model as the server calls it.")],
    isl: Annotated[str, typer.Option("--isl", help="Input tokens of a request.")] = "512",
    osl: Annotated[str, typer.Option("--osl", help="Output tokens of a request.")] = "64",
    concurrency: Annotated[str | None, typer.Option("--concurrency", help="Requests at once: 1,8,32.")] = None,
    request_rate: Annotated[str | None, typer.Option("--request-rate", help="Requests a second: 0.5,2.")] = None,
    max_requests: Annotated[str | None, typer.Option("--max-requests", help="Of each load [ten a client].")] = None,
    shared_prefix: Annotated[
        str, typer.Option("--shared-prefix", help="Tokens that prompts begin with beside --isl: cold first, then warm.")
    ] = "0",
    chat: Annotated[bool, typer.Option("--chat", help="Use chat completions.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", help="Of one request: 600s.")] = "600s",
    seed: Annotated[str | None, typer.Option("--seed", help="Of prompts and arrivals [a fresh one].")] = None,
    api_key_env: Annotated[str, typer.Option("--api-key-env", help="Environment variable that holds a key.")] = "",
    save: Annotated[Path | None, typer.Option("--save", help="Write the loads as vllm bench serve does.")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="The server's device, to compare with an estimate.")] = None,
    compare_model: Annotated[
        str | None, typer.Option("--compare-model", help="The model as capplan knows it [--model].")
    ] = None,
    engine: EngineName = "vllm",
    tensor_parallel_size: TensorParallel = "1",
    profiles_dir: ProfilesDir = [],
) -> Answer[EndpointResult]:
    """Put a running OpenAI-compatible server under loads, and compare it with what capplan says of them."""
    from calibrate.endpoint_answer import EndpointRequest, endpoint_answer

    setting: dict[str, Any] = {}
    if gpu:
        tp = parse_integer(tensor_parallel_size, "--tensor-parallel-size", least=1)
        setting = {"model": compare_model or model, "gpu": gpu, "engine": engine, "tensor_parallel_size": tp}
        setting["profiles_dirs"] = tuple(profiles_dir)
    request = EndpointRequest(
        url=url,
        model=model,
        isl=parse_tokens(isl, "--isl"),
        osl=parse_tokens(osl, "--osl"),
        concurrencies=parse_list(concurrency, _clients, "--concurrency") if concurrency else (),
        request_rates=parse_list(request_rate, _rate, "--request-rate") if request_rate else (),
        most_requests=parse_integer(max_requests, "--max-requests", least=1) if max_requests else None,
        shared_prefix=parse_tokens(shared_prefix, "--shared-prefix", least=0),
        chat=chat,
        timeout=parse_seconds(timeout, "--timeout", unit="s"),
        seed=parse_integer(seed, "--seed") if seed else None,
        api_key_env=api_key_env,
        save=save,
        setting=setting,
    )
    with bar("the server may still be busy with what was sent") as say:
        return endpoint_answer(request, say)


@app.command("import")
@answers(import_view)
def import_command(
    files: Annotated[list[Path], typer.Argument(help="Results of vllm bench, aiperf, guidellm, llama-bench ...")],
    gpu: Annotated[str, typer.Option("--gpu", help="The device that the servers ran on.")],
    model: Model = None,
    engine: Annotated[str | None, typer.Option("--engine", help="Their engine [as the files say].")] = None,
    tensor_parallel_size: TensorParallel = "1",
    weight_dtype: Annotated[str | None, typer.Option("--weight-dtype", help="[the checkpoint's].")] = None,
    kv_cache_dtype: Annotated[str | None, typer.Option("--kv-cache-dtype", help="[by the checkpoint].")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The profile to write.")] = None,
    hardware_dir: HardwareDir = [],
    profiles_dir: ProfilesDir = [],
) -> Answer[ImportResult]:
    """Fit an engine's own terms to what was measured of it, and write them into the device's profile."""
    from calibrate.import_answer import ImportRequest, import_answer

    request = ImportRequest(
        files=files,
        gpu=gpu,
        model=model,
        engine=engine,
        tp=parse_integer(tensor_parallel_size, "--tensor-parallel-size", least=1),
        weight_dtype=weight_dtype,
        kv_cache_dtype=kv_cache_dtype,
        out=out,
        hardware_dirs=tuple(hardware_dir),
        profiles_dirs=tuple(profiles_dir),
    )
    return import_answer(request)


def _clients(text: str, flag: str) -> int:
    return parse_integer(text, flag, least=1, most=1 << 16)


def _rate(text: str, flag: str) -> float:
    try:
        value = float(text) if len(text) <= 20 else 0.0
    except ValueError:
        value = 0.0
    if not 1e-4 <= value <= 1e6:
        raise UsageError(f"{text[:20]!r} is no number of requests a second", where=flag, hint="0.5 or 2,8")
    return value


@app.command("import-kernels")
@answers(kernel_import_view)
def import_kernels_command(
    tables: Annotated[Path, typer.Argument(help="The folder of an installed aiconfigurator-core.")],
    gpu: Annotated[str, typer.Option("--gpu", help="A GPU of the catalog, or the tables' name of one.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write the profile into.")] = Path(
        "calibration/hardware/profiles"
    ),
) -> Answer[KernelImportResult]:
    """Fit a profile to public kernel tables."""
    from calibrate.answers import import_kernels_answer

    return import_kernels_answer(tables, gpu, out)


def _minutes(text: str) -> float:
    """Minutes of a time whose bare numbers are minutes."""
    try:
        seconds = parse_seconds(text, "--minutes", unit="min", positive=False)
    except UsageError as error:
        raise UsageError(error.message, where="--minutes", hint="2, 0.5 or 90s") from None
    if seconds < LEAST_SECONDS:
        raise UsageError(f"{text[:20]!r} is too short a time: at least 1s", where="--minutes", hint="2, 0.5 or 90s")
    return seconds / 60


def _threads(text: str | None) -> int | None:
    return parse_integer(text, "--threads", least=1, most=4096) if text else None


def _modes(names: list[str]) -> tuple[str, ...]:
    return tuple(_one_of(name, MODES, "--mode") for name in names)


def _one_of(name: str, known: tuple[str, ...], flag: str) -> str:
    if name not in known:
        hint = did_you_mean(name, known) or ", ".join(known)
        raise UsageError(f"{name[:20]!r} cannot be chosen", where=flag, hint=hint)
    return name
