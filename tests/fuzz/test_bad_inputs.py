"""A thousand generated bad inputs: no traceback, no hang, no answer where there is none."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def test_a_thousand_bad_inputs(tmp_path: Path) -> None:
    path = Path(__file__).parent / "run_bad_inputs.py"
    spec = importlib.util.spec_from_file_location("run_bad_inputs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_bad_inputs"] = module
    spec.loader.exec_module(module)
    assert list(module.failures(1000, 7, tmp_path)) == []
