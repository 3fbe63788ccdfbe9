"""Three hundred generated bad weight files: no traceback, no hang, no memory without end."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def test_three_hundred_bad_weight_files() -> None:
    path = Path(__file__).parent / "run_weight_files.py"
    spec = importlib.util.spec_from_file_location("run_weight_files", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_weight_files"] = module
    spec.loader.exec_module(module)
    assert list(module.failures(300, 11)) == []
