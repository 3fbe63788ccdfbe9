"""``capplan weights``: parameters and bytes of the weights."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

import typer

from capplan.cli.options import IgnoreKey, Model, ModelsDir, Online, TensorParallel
from capplan.cli.output import answers
from capplan.describe.quantities import parse_integer, parse_parameters
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.weights import WeightsResult, weights
from capplan.report.views.weights import weights_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("weights")
@answers(weights_view)
def command(
    model: Model = None,
    weight_dtype: Annotated[
        str | None,
        typer.Option("--weight-dtype", help="bf16, fp8, fp8-block, awq-int4-g128, nvfp4, mxfp4, gguf:Q4_K_M ..."),
    ] = None,
    params: Annotated[
        str | None, typer.Option("--params", help="A number of parameters, without a model: 35e9, 7B.")
    ] = None,
    bits: Annotated[str | None, typer.Option("--bits", help="Bits a parameter, with --params: 4, 4.5.")] = None,
    tensor_parallel_size: TensorParallel = "1",
    models_dir: ModelsDir = [],
    ignore_key: IgnoreKey = [],
    online: Online = False,
) -> Answer[WeightsResult]:
    """Parameters of a model by component, and the bytes of its weights."""
    return weights(
        model,
        weight_dtype=weight_dtype,
        params=parse_parameters(params, "--params") if params else None,
        bits=_bits(bits) if bits else None,
        tensor_parallel_size=parse_integer(tensor_parallel_size, "-tp", least=1),
        models_dirs=models_dir,
        ignore_keys=ignore_key,
        online=online,
    )


def _bits(text: str) -> Fraction:
    try:
        if len(text) > 20 or "/" in text or "e" in text.lower():
            raise ValueError
        return Fraction(text)
    except ValueError:
        raise UsageError(f"{text[:40]!r} is not a number of bits", where="--bits", hint="4, 8 or 4.5") from None
