"""In which formats a model can be had: its checkpoint, its published relatives, and schemes that the user names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from capplan.describe.catalog import list_entries
from capplan.describe.gguf_mix import GgufMix
from capplan.describe.gpu import GpuSpec
from capplan.describe.model import ModelSpec
from capplan.describe.model_plan import checkpoint_plan, weight_plan
from capplan.describe.precision import has_precision
from capplan.describe.quantisation import QuantisationPlan
from capplan.describe.resolve import load_model, resolve_model
from capplan.describe.yaml_file import read_text, read_yaml
from capplan.errors import UsageError
from capplan.memory.quantised_weights import rank_weights
from capplan.planner.space import has_units
from capplan.questions.plan_request import Folders


@dataclass(frozen=True)
class FormatChoice:
    """One way to have the weights.

    Args:
        label: the precision: bf16, fp8, fp4, int4, or the scheme's name.
        reference: what ``--model`` takes for it.
        spec: the model whose checkpoint this is.
        weight_dtype: a scheme that the engine makes of the checkpoint itself; None: as it stores them.
        bytes: of all weights, once.
    """

    label: str
    reference: str
    spec: ModelSpec
    weight_dtype: str | None
    bytes: int

    def runs_on(self, gpu: GpuSpec) -> bool:
        """Whether the device has units for the format, where it wants any."""
        return has_units(gpu, self.label)


def format_choices(model: str, wanted: tuple[str, ...], folders: Folders) -> list[FormatChoice]:
    """The formats that a search may choose from.

    Without wishes these are the checkpoint itself and every entry of the catalog that leans on the same model, or that
    it leans on. ``checkpoint`` is the first alone; a precision is a relative of that precision where there is one; any
    other name is a scheme that the engine makes of the weights when it loads them.

    Raises:
        CapplanError: no such model, or no such scheme.
    """
    found = resolve_model(model, models_dirs=folders.models, ignore_keys=folders.ignore_keys, online=folders.online)
    own = _choice(model, found.spec, None)
    base = read_yaml(found.path).data.get("base") if found.path.suffix == ".yaml" else None
    relatives = [
        own,
        *(_choice(spec.name, spec, None) for spec in _relatives(base or found.spec.name, found.spec, folders)),
    ]
    if not wanted:
        return list({choice.label: choice for choice in reversed(relatives)}.values())[::-1]
    return [_wanted(name, own, relatives) for name in dict.fromkeys(wanted)]


def _wanted(name: str, own: FormatChoice, relatives: list[FormatChoice]) -> FormatChoice:
    if name == "checkpoint":
        return own
    published = next((choice for choice in relatives if choice.label == name), None)
    return published or _choice(own.reference, own.spec, name)


def _relatives(base: str, own: ModelSpec, folders: Folders) -> list[ModelSpec]:
    """The base and every entry that leans on it, without the model itself."""
    line = f"base: {base}\n"
    specs = [load_model(path) for path in list_entries("models", folders.models) if line in read_text(path)[:400]]
    if base != own.name:
        specs.insert(0, resolve_model(base, models_dirs=folders.models).spec)
    return [spec for spec in specs if spec.name != own.name]


def _choice(reference: str, spec: ModelSpec, weight_dtype: str | None) -> FormatChoice:
    plan: Any = (
        checkpoint_plan(spec) if weight_dtype is None else weight_plan(spec, weight_dtype, where="--weight-formats")
    )
    if isinstance(plan, GgufMix):
        raise UsageError(f"{weight_dtype} is a mix of llama.cpp's", where="--weight-formats")
    label = precision_of(plan, spec.dtype)
    return FormatChoice(label, reference, spec, weight_dtype, rank_weights(spec, plan, tp=1, ep=1).total)


def precision_of(plan: QuantisationPlan, dtype: str) -> str:
    """The precision of most matrices of a plan."""
    for name in ("fp4", "int4", "fp8"):
        if has_precision(plan, name):
            return name
    return plan.unquantised.name if plan.method == "none" else dtype
