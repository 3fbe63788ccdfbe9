"""``capplan validate``: predictions beside your own measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.output import answers
from capplan.describe.quantities import parse_integer
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.validate import ValidateResult, validate
from capplan.report.views.validate import validate_chart, validate_table, validate_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_PANEL = "What the file does not say"
Text = str | None


def _option(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL)


@app.command("validate")
@answers(validate_view, table=validate_table, chart=validate_chart)
def command(
    file: Annotated[Path, typer.Argument(help="A table of measurements (CSV), or a benchmark tool's result file.")],
    out: Annotated[Path | None, typer.Option("--out", help="Write every prediction into a CSV file.")] = None,
    by: Annotated[str, typer.Option("--by", help="Columns to group the errors by.")] = "model,gpu,engine",
    probe: Annotated[
        Path | None, typer.Option("--probe", help="One or two measured points of a server, to correct the rest of it.")
    ] = None,
    mapping: Annotated[Path | None, typer.Option("--mapping", help="What the table calls its columns (YAML).")] = None,
    model: Annotated[Text, _option("--model", "-m", help="Catalog name or Hugging Face id.")] = None,
    gpu: Annotated[Text, _option("--gpu", help="Catalog name.")] = None,
    engine: Annotated[Text, _option("--engine", help="vllm, sglang, trtllm, llama.cpp or transformers.")] = None,
    precision: Annotated[Text, _option("--precision", help="fp8, fp4, int4, bf16, or a weight dtype.")] = None,
    tensor_parallel_size: Annotated[Text, _option("--tensor-parallel-size", "-tp", help="Ranks a layer.")] = None,
    data_parallel_size: Annotated[Text, _option("--data-parallel-size", "-dp", help="Groups of attention.")] = None,
    expert_parallel_size: Annotated[Text, _option("--expert-parallel-size", help="Groups of experts.")] = None,
) -> Answer[ValidateResult]:
    """Predict every measured row, and say how far off that is, by group and over all.

    Reads tables with one row a configuration or one row a metric, and result files of vllm bench serve, SGLang's
    benchmark, genai-perf, aiperf, guidellm, inference-perf and llama-bench. Measured values are never an input.
    """
    names = [name.strip() for name in by.split(",") if name.strip()]
    if len(names) > 12:
        raise UsageError("at most 12 columns can be grouped by", where="--by")
    return validate(
        file,
        by=names,
        out=out,
        probe=probe,
        mapping=mapping,
        model=model,
        gpu=gpu,
        engine=engine,
        precision=precision,
        tensor_parallel_size=_count(tensor_parallel_size, "-tp"),
        data_parallel_size=_count(data_parallel_size, "-dp"),
        expert_parallel_size=_count(expert_parallel_size, "--expert-parallel-size"),
    )


def _count(text: Text, flag: str) -> int | None:
    return None if text is None else parse_integer(text, flag, least=1)
