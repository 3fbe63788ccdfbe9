"""Flags that several commands share, in vLLM's spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Catalog name, config.json, checkpoint folder, YAML file or Hugging Face id."),
]
ModelsDir = Annotated[list[Path], typer.Option("--models-dir", help="A further folder of model descriptions.")]
IgnoreKey = Annotated[list[str], typer.Option("--ignore-key", help="A key of config.json that changes no size.")]
TensorParallel = Annotated[str, typer.Option("--tensor-parallel-size", "-tp", help="Ranks that share every layer.")]
HardwareDir = Annotated[list[Path], typer.Option("--hardware-dir", help="A further folder of GPU descriptions.")]
Online = Annotated[bool, typer.Option("--online", help="Look a Hugging Face id up on the hub.")]
