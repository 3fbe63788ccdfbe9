"""capplan: a capacity and cost planner for LLM inference.

Every command is one public function here, imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from capplan.questions.advise import advise as advise
    from capplan.questions.attention_pairs import attention_pairs as attention_pairs
    from capplan.questions.compare import compare as compare
    from capplan.questions.cost import serving_cost as serving_cost
    from capplan.questions.cost_diff import cost_diff as cost_diff
    from capplan.questions.decode import decode as decode
    from capplan.questions.encode import encode as encode
    from capplan.questions.estimate import estimate as estimate
    from capplan.questions.fit import fit as fit
    from capplan.questions.gpus import gpu_list as gpu_list
    from capplan.questions.gpus import gpu_show as gpu_show
    from capplan.questions.gpus import gpu_validate as gpu_validate
    from capplan.questions.import_log import import_log as import_log
    from capplan.questions.kv import kv as kv
    from capplan.questions.kv import kv_table as kv_table
    from capplan.questions.models import import_model as import_model
    from capplan.questions.models import list_models as list_models
    from capplan.questions.models import show_model as show_model
    from capplan.questions.models import validate_models as validate_models
    from capplan.questions.plan import plan as plan
    from capplan.questions.prefill import prefill as prefill
    from capplan.questions.prices import price_import as price_import
    from capplan.questions.prices import price_list as price_list
    from capplan.questions.prices import price_show as price_show
    from capplan.questions.profiles import profile_list as profile_list
    from capplan.questions.profiles import profile_show as profile_show
    from capplan.questions.roofline import roofline as roofline
    from capplan.questions.simulate import simulate as simulate
    from capplan.questions.speculate import speculate as speculate
    from capplan.questions.step import step as step
    from capplan.questions.sweep import sweep as sweep
    from capplan.questions.validate import validate as validate
    from capplan.questions.weights import weights as weights

_PUBLIC = {
    "advise": "advise",
    "attention_pairs": "attention_pairs",
    "compare": "compare",
    "cost_diff": "cost_diff",
    "decode": "decode",
    "encode": "encode",
    "fit": "fit",
    "estimate": "estimate",
    "gpu_list": "gpus",
    "gpu_show": "gpus",
    "gpu_validate": "gpus",
    "import_log": "import_log",
    "import_model": "models",
    "kv": "kv",
    "kv_table": "kv",
    "list_models": "models",
    "plan": "plan",
    "prefill": "prefill",
    "price_import": "prices",
    "price_list": "prices",
    "price_show": "prices",
    "serving_cost": "cost",
    "profile_list": "profiles",
    "profile_show": "profiles",
    "roofline": "roofline",
    "show_model": "models",
    "simulate": "simulate",
    "validate": "validate",
    "speculate": "speculate",
    "step": "step",
    "validate_models": "models",
    "sweep": "sweep",
    "weights": "weights",
}
"""The module in `capplan.questions` that holds each public function."""

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        import importlib

        value = getattr(importlib.import_module(f"capplan.questions.{_PUBLIC[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'capplan' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
