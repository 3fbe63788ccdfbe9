"""The JSON Schema of every command's document, generated from the dataclasses of its result."""

from __future__ import annotations

import importlib
from typing import Any

from capplan.questions.answer import SCHEMA_VERSION

RESULTS: dict[str, tuple[str, ...]] = {
    "kv": ("kv:KvResult", "kv:KvTable"),
    "weights": ("weights:WeightsResult",),
    "fit": ("fit:FitResult",),
    "import-log": ("import_log:LogComparison",),
    "roofline": ("roofline:RooflineResult",),
    "step": ("step:StepResult",),
    "prefill": ("prefill:PrefillResult",),
    "decode": ("decode:DecodeResult",),
    "profiles list": ("profiles:ProfileList",),
    "profiles show": ("profiles:ProfileDetail",),
    "attention-pairs": ("attention_pairs:PairsResult",),
    "estimate": ("estimate:EstimateResult", "encode:EncodeResult"),
    "simulate": ("simulate_result:SimulateResult",),
    "validate": ("validate:ValidateResult",),
    "advise": ("advise:AdviseResult",),
    "speculate": ("speculate:SpeculateResult",),
    "models list": ("models:ModelList",),
    "models show": ("models:ModelDetail",),
    "models import": ("models:ModelDetail",),
    "models validate": ("checks:FileChecks",),
    "plan": ("plan_result:PlanResult",),
    "sweep": ("sweep:SweepResult",),
    "compare": ("compare:Comparison",),
    "diff": ("cost_diff:CostDiff",),
    "cost": ("cost:CostResult",),
    "prices list": ("prices:PriceList",),
    "prices show": ("prices:PriceSheet",),
    "prices import": ("prices:ImportedPrices",),
    "gpus list": ("gpus:GpuList",),
    "gpus show": ("gpus:GpuSpec",),
    "gpus validate": ("checks:FileChecks",),
    "calibrate run": ("calibrate:CalibrationResult",),
    "calibrate fit": ("calibrate:CalibrationResult",),
    "calibrate check": ("calibrate:CheckResult",),
    "calibrate phases": ("calibrate:PhasesResult",),
    "calibrate endpoint": ("calibrate:EndpointResult",),
    "calibrate import": ("calibrate:ImportResult",),
    "calibrate import-kernels": ("calibrate:KernelImportResult",),
}
"""The result classes of each command, as ``module:class`` in `capplan.questions`."""

_STRINGS = {"type": "array", "items": {"type": "string"}}


def command_schema(command: str) -> dict[str, Any]:
    """The schema of the document that ``capplan COMMAND --json`` prints."""
    from pydantic import TypeAdapter

    classes = [_load(name) for name in RESULTS[command]]
    kind: Any = classes[0]
    for other in classes[1:]:
        kind = kind | other
    result = TypeAdapter(kind).json_schema(mode="serialization", ref_template="#/$defs/{model}")
    definitions = result.pop("$defs", {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"capplan {command}",
        "type": "object",
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "capplan_version": {"type": "string"},
            "command": {"const": command},
            "inputs": {"type": "object"},
            "result": result,
            "provenance": {
                "type": "object",
                "additionalProperties": {"enum": ["exact", "measured", "fitted", "extrapolated", "assumed"]},
            },
            "assumptions": _STRINGS,
            "warnings": _STRINGS,
            "sources": _STRINGS,
            "explanation": {"type": "array", "items": {"type": "object"}},
        },
        "required": [
            "schema_version",
            "capplan_version",
            "command",
            "inputs",
            "result",
            "provenance",
            "assumptions",
            "warnings",
            "sources",
        ],
        "additionalProperties": False,
        "$defs": definitions,
    }


def _load(name: str) -> Any:
    module, cls = name.split(":")
    return getattr(importlib.import_module(f"capplan.questions.{module}"), cls)
