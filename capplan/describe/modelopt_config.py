"""NVIDIA ModelOpt's quantisation configuration -> `QuantisationPlan`.

Source: NVIDIA ModelOpt's unified Hugging Face checkpoint documentation; vLLM's documentation of ModelOpt checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable

from capplan.describe.formats import FP8_E4M3, FP32, UE8M0
from capplan.describe.module_names import ModuleNames
from capplan.describe.quantisation import QuantisationPlan, Rule
from capplan.describe.quantisation_section import Section
from capplan.describe.weight_schemes import FP8_BLOCK, Mxfp4, Nvfp4, ScaledEightBit, WeightScheme
from capplan.errors import UnsupportedError

_ALGORITHMS: dict[str, Callable[[int], WeightScheme]] = {
    "FP8": lambda _: ScaledEightBit(FP8_E4M3, "tensor", activation_scale=FP32),
    "FP8_PER_CHANNEL_PER_TOKEN": lambda _: ScaledEightBit(FP8_E4M3, "channel"),
    "FP8_PB_WO": lambda _: FP8_BLOCK,
    "FP8_BLOCK_SCALES": lambda _: FP8_BLOCK,
    "NVFP4": lambda group: Nvfp4(static_activation=True, group_size=group),
    "W4A16_NVFP4": lambda group: Nvfp4(group_size=group),
    "MXFP8": lambda _: ScaledEightBit(FP8_E4M3, "group", UE8M0, block=32),
    "MXFP4": lambda _: Mxfp4(),
    "W4A16_MXFP4": lambda _: Mxfp4(),
    "W4A8_MXFP4_MXFP8": lambda _: Mxfp4(),
}
_KV_CACHES = {"FP8": "fp8_e4m3", "INT8": "int8", "NVFP4": "nvfp4", "": None, "NONE": None}


def read_modelopt(section: Section) -> QuantisationPlan:
    """One algorithm for all linear maps but those excluded, or (``MIXED_PRECISION``) one for each listed layer."""
    rules = [Rule(section.modules("exclude_modules", "ignore"), None)]
    algorithm = section.text("quant_algo").upper()
    default: WeightScheme | None = None
    if algorithm == "MIXED_PRECISION":
        rules = [*_layer_rules(section), *rules]
    elif algorithm:
        default = _scheme(section, section)
    groups = section.subs("config_groups")
    if algorithm in ("", "MIXED_PRECISION") and groups:
        default, group_rules = _group_rules(groups)
        rules += group_rules
    elif not algorithm and "quantized_layers" not in section.data:
        section.invalid("quant_algo", "given")
    return QuantisationPlan("modelopt", section.model_format, default, tuple(rules), kv_cache=_kv_cache(section))


def _scheme(section: Section, defaults: Section) -> WeightScheme | None:
    algorithm = section.text("quant_algo").upper()
    if algorithm in ("NO_QUANT", "NONE"):
        return None
    make = _ALGORITHMS.get(algorithm)
    if make is None:
        section.unsupported("quant_algo", "the algorithm", _ALGORITHMS)
    inherited = defaults.integer("group_size", default=16)
    group = section.integer("group_size", default=inherited)
    if group < 1:
        section.invalid("group_size", "at least 1")
    return make(group)


def _layer_rules(section: Section) -> list[Rule]:
    """One rule for each scheme of ``quantized_layers``."""
    by_scheme: dict[WeightScheme | None, list[str]] = {}
    # Mixtures list tens of thousands of experts, each with the same few settings.
    schemes: dict[tuple[object, object], WeightScheme | None] = {}
    for name, layer in section.subs("quantized_layers").items():
        key = (str(layer.data.get("quant_algo")), str(layer.data.get("group_size")))
        if key not in schemes:
            schemes[key] = _scheme(layer, section)
        by_scheme.setdefault(schemes[key], []).append(name)
    where = section.locate("quantized_layers")
    rules = [Rule(ModuleNames.of(names, anywhere=False, where=where), scheme) for scheme, names in by_scheme.items()]
    for index, rule in enumerate(rules):
        for other in rules[index + 1 :]:
            if twice := sorted(rule.modules.exact & other.modules.exact):
                raise UnsupportedError(f"the experts of {twice[0]} are stored in different formats", where=where)
    return rules


def _group_rules(groups: dict[str, Section]) -> tuple[WeightScheme | None, list[Rule]]:
    """The default scheme and the rules of ``config_groups``, whose targets are ``Linear`` or module names."""
    default: WeightScheme | None = None
    rules = []
    for group in groups.values():
        weights = group.sub("weights")
        if weights is None:
            continue
        algorithm = _group_algorithm(weights, quantised_activations=group.sub("input_activations") is not None)
        scheme = _ALGORITHMS[algorithm](weights.integer("group_size", default=16))
        targets = group.names("targets")
        if "Linear" in targets:
            default = scheme
        else:
            rules.append(Rule(ModuleNames.of(targets, anywhere=False, where=group.locate("targets")), scheme))
    return default, rules


def _group_algorithm(weights: Section, *, quantised_activations: bool) -> str:
    bits, kind = weights.integer("num_bits", among=(4, 8)), weights.text("type", default="float")
    if kind != "float":
        weights.unsupported("type", "ModelOpt's number type", ("float",))
    if bits == 8:
        return "FP8"
    return "NVFP4" if quantised_activations else "W4A16_NVFP4"


def _kv_cache(section: Section) -> str | None:
    named = isinstance(section.data.get("kv_cache_scheme"), str)
    scheme = None if named else section.sub("kv_cache_scheme")
    if scheme is not None:
        return "fp8_e4m3" if scheme.integer("num_bits", among=(8,)) == 8 else None
    key = "kv_cache_scheme" if named else "kv_cache_quant_algo"
    algorithm = section.text(key).upper()
    if algorithm not in _KV_CACHES:
        section.unsupported(key, "the KV cache format", _KV_CACHES)
    return _KV_CACHES[algorithm]
