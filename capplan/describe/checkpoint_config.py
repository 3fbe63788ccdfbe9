"""The JSON files of a checkpoint beside its weights, on disk or on a hub: configuration and quantisation."""

from __future__ import annotations

from typing import Any

from capplan.describe.checkpoint import CheckpointFiles
from capplan.describe.huggingface import parse_json
from capplan.describe.quantisation import QuantisationPlan
from capplan.describe.quantisation_config import HF_QUANT_CONFIG, read_quantisation
from capplan.errors import NotFoundError

CONFIG = "config.json"
MAX_CONFIG_BYTES = 16 << 20


def read_checkpoint_config(files: CheckpointFiles) -> dict[str, Any]:
    """The parsed ``config.json`` of a checkpoint.

    Raises:
        NotFoundError: it has none.
        InvalidFileError: it isn't a JSON object.
    """
    text = files.text(CONFIG, MAX_CONFIG_BYTES)
    if text is None:
        raise NotFoundError("there is no config.json", where=files.name)
    return parse_json(text, f"{files.name}/{CONFIG}")


def read_checkpoint_quantisation(files: CheckpointFiles, config: dict[str, Any]) -> QuantisationPlan:
    """How a checkpoint stores each weight: as its ``config.json`` says, or else its ``hf_quant_config.json``.

    Args:
        files: the checkpoint.
        config: its parsed ``config.json``.

    Raises:
        UnsupportedError: a method or an option that isn't known.
        InvalidFileError: a malformed file.
    """
    text = files.text(HF_QUANT_CONFIG, MAX_CONFIG_BYTES)
    separate = None if text is None else parse_json(text, f"{files.name}/{HF_QUANT_CONFIG}")
    return read_quantisation(config, where=f"{files.name}/{CONFIG}", hf_quant_config=separate)
