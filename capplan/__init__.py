"""capplan: a capacity and cost planner for LLM inference.

Every command is one public function here, imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from capplan.questions.kv import kv as kv
    from capplan.questions.kv import kv_table as kv_table
    from capplan.questions.weights import weights as weights

_PUBLIC = {
    "kv": "capplan.questions.kv",
    "kv_table": "capplan.questions.kv",
    "weights": "capplan.questions.weights",
}

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        import importlib

        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'capplan' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
