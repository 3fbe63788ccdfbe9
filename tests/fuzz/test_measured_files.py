"""Three hundred generated bad logs, result files and tables: no traceback, no hang, no memory without end."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def test_three_hundred_bad_measured_files(tmp_path: Path) -> None:
    path = Path(__file__).parent / "run_measured_files.py"
    spec = importlib.util.spec_from_file_location("run_measured_files", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_measured_files"] = module
    spec.loader.exec_module(module)
    assert list(module.failures(300, 11, tmp_path)) == []
