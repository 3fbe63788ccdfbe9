"""Configuration and quantisation of a checkpoint's folder, and of a repository."""

import json
from pathlib import Path
from typing import Any

import pytest

from capplan.describe.checkpoint import HubCheckpoint, LocalCheckpoint
from capplan.describe.checkpoint_config import read_checkpoint_config, read_checkpoint_quantisation
from capplan.describe.remote import Hub
from capplan.errors import InvalidFileError, NotFoundError

SEPARATE = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}


def test_a_folder(tmp_path: Path) -> None:
    files = LocalCheckpoint(tmp_path)
    with pytest.raises(NotFoundError, match=r"config\.json"):
        read_checkpoint_config(files)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    config = read_checkpoint_config(files)
    assert read_checkpoint_quantisation(files, config).method == "none"
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(SEPARATE))
    assert read_checkpoint_quantisation(files, config).method == "modelopt"
    own = {**config, "quantization_config": {"quant_method": "fp8"}}
    assert read_checkpoint_quantisation(files, own).method == "fp8"
    (tmp_path / "hf_quant_config.json").write_text("[]")
    with pytest.raises(InvalidFileError, match="one JSON object"):
        read_checkpoint_quantisation(files, config)


def test_a_repository(server: Any) -> None:
    server.files["/org/model/resolve/main/config.json"] = b'{"model_type": "llama"}'
    files = HubCheckpoint(Hub(server.address), "org/model")
    config = read_checkpoint_config(files)
    assert read_checkpoint_quantisation(files, config).method == "none"
    server.files["/org/model/resolve/main/hf_quant_config.json"] = json.dumps(SEPARATE).encode()
    assert read_checkpoint_quantisation(files, config).method == "modelopt"
