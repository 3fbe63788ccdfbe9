"""The configuration of compressed-tensors (llm-compressor) -> `QuantisationPlan`.

Source: compressed-tensors 0.20.1 (``QuantizationConfig``, ``QuantizationScheme``, ``CompressionFormat``).
"""

from __future__ import annotations

from typing import Literal

from capplan.describe.formats import FP8_E4M3, INT8, UE8M0, NumberFormat
from capplan.describe.module_names import ModuleNames
from capplan.describe.quantisation import QuantisationPlan, Rule
from capplan.describe.quantisation_section import Section
from capplan.describe.weight_schemes import Mxfp4, Nvfp4, PackQuantized, ScaledEightBit, WeightScheme

_FORMATS = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
    "dense",
)
_MODULE_CLASSES = frozenset({"Linear", "FusedMoE", "Conv1D"})


def read_compressed_tensors(section: Section) -> QuantisationPlan:
    """Groups of modules with a scheme each; what ``ignore`` lists stays as it is."""
    sparsity = section.sub("sparsity_config")
    if sparsity is not None and sparsity.text("format", default="dense") != "dense":
        sparsity.unsupported("format", "the sparse format", ("dense",))
    rules = [Rule(section.modules("ignore", anywhere=False), None)]
    default: WeightScheme | None = None
    for group in section.subs("config_groups").values():
        scheme = _scheme(group, section)
        targets = group.names("targets")
        if _MODULE_CLASSES.intersection(targets):
            default = scheme
        else:
            rules.append(Rule(ModuleNames.of(targets, anywhere=False, where=group.locate("targets")), scheme))
    return QuantisationPlan(
        "compressed-tensors", section.model_format, default, tuple(rules), kv_cache=_kv_cache(section)
    )


def _scheme(group: Section, top: Section) -> WeightScheme | None:
    weights = group.sub("weights")
    if weights is None:
        return None
    own = group.text("format")
    name = own or top.text("format")
    if name not in _FORMATS:
        (group if own else top).unsupported("format", "the compression format", _FORMATS)
    match name:
        case "dense":
            return None
        case "pack-quantized":
            return _packed(weights)
        case "nvfp4-pack-quantized":
            quantised_activations = group.sub("input_activations") is not None
            return Nvfp4(static_activation=quantised_activations, group_size=weights.integer("group_size", default=16))
        case "mxfp4-pack-quantized":
            return Mxfp4()
        case "mxfp8-quantized":
            return ScaledEightBit(FP8_E4M3, "group", UE8M0, block=weights.integer("group_size", default=32))
    return _eight_bit(weights, group)


def _packed(weights: Section) -> PackQuantized:
    if weights.text("type", default="int") != "int":
        weights.unsupported("type", "pack-quantized numbers of the type", ("int",))
    bits = weights.integer("num_bits", among=(4, 8))
    strategy = weights.text("strategy", default="group")
    if strategy not in ("group", "channel"):
        weights.unsupported("strategy", "the strategy", ("group", "channel"))
    group = weights.group_size("group_size", default=-1) if strategy == "group" else None
    return PackQuantized(
        bits,
        group,
        symmetric=weights.flag("symmetric", default=True),
        scale=weights.model_format,
        group_index=weights.text("actorder") in ("group", "dynamic"),
    )


def _eight_bit(weights: Section, group: Section) -> ScaledEightBit:
    weights.integer("num_bits", among=(8,))
    kind = weights.text("type", default="int")
    formats: dict[str, NumberFormat] = {"int": INT8, "float": FP8_E4M3}
    if kind not in formats:
        weights.unsupported("type", "numbers of the type", formats)
    if not weights.flag("symmetric", default=True):
        weights.unsupported("symmetric", "8-bit weights with symmetric =")
    inputs = group.sub("input_activations")
    static = inputs is not None and inputs.data.get("dynamic") is False
    granularity, block = _granularity(weights)
    return ScaledEightBit(
        formats[kind],
        granularity,
        scale=weights.model_format,
        block=block,
        activation_scale=weights.model_format if static else None,
    )


def _granularity(weights: Section) -> tuple[Literal["tensor", "channel", "block", "group"], int]:
    strategy = weights.text("strategy", default="tensor")
    if strategy == "block":
        return "block", square_block(weights, "block_structure")
    if strategy == "group":
        return "group", weights.group_size("group_size") or 1
    if strategy == "channel":
        return "channel", 1
    if strategy != "tensor":
        weights.unsupported("strategy", "the strategy", ("tensor", "channel", "group", "block"))
    return "tensor", 1


def square_block(section: Section, key: str) -> int:
    """The side of square blocks, from ``[128, 128]`` or ``128x128``."""
    value = section.data.get(key)
    if isinstance(value, str) and value.count("x") == 1 and value.replace("x", "").isdecimal() and len(value) < 20:
        value = [int(side) for side in value.split("x")]
    sides = value if isinstance(value, list) else []
    if len(sides) != 2 or not all(type(side) is int and 0 < side <= 1 << 20 for side in sides):
        section.invalid(key, "two block sides such as [128, 128]")
    if sides[0] != sides[1]:
        section.unsupported(key, "the block shape")
    return int(sides[0])


def _kv_cache(section: Section) -> str | None:
    scheme = section.sub("kv_cache_scheme")
    if scheme is None:
        return None
    scheme.integer("num_bits", among=(8,))
    return "fp8_e4m3" if scheme.text("type", default="float") == "float" else "int8"
