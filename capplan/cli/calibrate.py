"""``capplan calibrate``: measure this device, fit a profile, prove it; measure a server; read benchmark files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from capplan.cli.options import ModelsDir
from capplan.cli.output import answers
from capplan.cli.progress import bar
from capplan.describe.quantities import parse_integer, parse_seconds
from capplan.errors import UsageError, did_you_mean
from capplan.questions.answer import Answer
from capplan.questions.calibrate import CalibrationResult, CheckResult, KernelImportResult
from capplan.report.views.calibrate import calibration_view, check_view, kernel_import_view


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

DeviceName = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:1.")]
Threads = Annotated[str | None, typer.Option("--threads", help="Threads of a CPU [torch's own choice].")]
Clock = Annotated[
    str, typer.Option("--clock", help="wall; or cpu, which counts only this process's time, with --threads 1.")
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
    clock: Clock = "wall",
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
        minutes=parse_seconds(minutes, "--minutes", unit="min") / 60,
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
    clock: Clock = "wall",
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


def _threads(text: str | None) -> int | None:
    return parse_integer(text, "--threads", least=1, most=4096) if text else None


def _modes(names: list[str]) -> tuple[str, ...]:
    known = ("eager", "graphs", "compile")
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or ", ".join(known)
            raise UsageError(f"{name[:20]!r} is no way of launching", where="--mode", hint=hint)
    return tuple(names)
