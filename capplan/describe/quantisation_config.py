"""A checkpoint's own quantisation configuration -> `QuantisationPlan`.

It stands under ``quantization_config`` in ``config.json`` (or in its ``text_config``), or in ModelOpt's
``hf_quant_config.json``. One reader per method; a method, format or option that isn't known is refused, since a guess
would be wrong by gigabytes.

Sources: the configuration classes of transformers 5.24 (``transformers.utils.quantization_config``), AutoGPTQ and
GPTQModel, AutoAWQ, bitsandbytes 0.50.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from capplan.describe.compressed_tensors_config import read_compressed_tensors, square_block
from capplan.describe.formats import BF16, FP8_E4M3, FP32, UE8M0, NumberFormat, number_format
from capplan.describe.modelopt_config import read_modelopt
from capplan.describe.module_names import ModuleNames
from capplan.describe.quantisation import LINEAR_COMPONENTS, QuantisationPlan, Rule, unquantised_plan
from capplan.describe.quantisation_section import Section
from capplan.describe.weight_schemes import (
    FP8_BLOCK,
    INT8_CHANNEL,
    Awq,
    BitsAndBytesFourBit,
    Gptq,
    Mxfp4,
    ScaledEightBit,
)
from capplan.errors import InvalidFileError, UnsupportedError, UsageError, did_you_mean

HF_QUANT_CONFIG = "hf_quant_config.json"
_EXPERTS = frozenset({"experts_routed"})


def read_quantisation(
    config: dict[str, Any], *, where: str, hf_quant_config: dict[str, Any] | None = None
) -> QuantisationPlan:
    """How the checkpoint that these files belong to stores each weight.

    Args:
        config: the parsed ``config.json``.
        where: its path, for errors.
        hf_quant_config: the parsed ``hf_quant_config.json``, which decides only where ``config`` says nothing.

    Raises:
        UnsupportedError: a method or an option that isn't known.
        InvalidFileError: a value that isn't what its key means.
    """
    model_format = _model_format(config, where)
    for path, level in _levels(config):
        data = level.get("quantization_config")
        if data is not None:
            if not isinstance(data, dict):
                raise InvalidFileError("quantization_config must be a mapping", where=f"{where}: {path}")
            section = Section(data, f"{where}: {path}quantization_config", model_format)
            return _with_fp4_experts(_read(section), level)
    if hf_quant_config is not None:
        data = hf_quant_config.get("quantization")
        place = f"{HF_QUANT_CONFIG}: quantization"
        if not isinstance(data, dict):
            raise InvalidFileError("quantization must be a mapping", where=place)
        return read_modelopt(Section(data, place, model_format))
    return unquantised_plan(model_format)


def _levels(config: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    text_config = config.get("text_config")
    inner = [("text_config.", text_config)] if isinstance(text_config, dict) else []
    return [("", config), *inner]


def _model_format(config: dict[str, Any], where: str) -> NumberFormat:
    for path, level in _levels(config):
        for key in ("dtype", "torch_dtype"):
            name = level.get(key)
            if isinstance(name, str) and name != "auto":
                try:
                    return number_format(name)
                except UsageError as error:
                    raise InvalidFileError(error.message, where=f"{where}: {path}{key}", hint=error.hint) from None
    return BF16


def _read(section: Section) -> QuantisationPlan:
    method = section.text("quant_method").lower().replace("_", "-")
    if not method:
        bits = section.flag("load_in_8bit") or section.flag("load_in_4bit")
        method = "bitsandbytes" if bits else "modelopt" if "quant_algo" in section.data else ""
    reader = READERS.get(method)
    if reader is None:
        raise UnsupportedError(
            f"the quantisation method {method[:40]!r} is not supported",
            where=section.locate("quant_method"),
            hint=did_you_mean(method, READERS),
        )
    return reader(section)


def _read_gptq(section: Section) -> QuantisationPlan:
    """All linear maps of the layers; GPTQModel's ``dynamic`` gives some their own bits or leaves them out."""
    layout = section.text("checkpoint_format", default="gptq")
    if layout not in ("gptq", "gptq_v2") or section.flag("is_marlin_format"):
        section.unsupported("checkpoint_format", "the checkpoint format", ("gptq", "gptq_v2"))
    scheme = _gptq_scheme(section, None)
    rules = []
    for pattern, override in section.subs("dynamic").items():
        sign, expression = (pattern[0], pattern[2:]) if pattern[:2] in ("+:", "-:") else ("+", pattern)
        names = ModuleNames.of([f"re:{expression}"], anywhere=False, where=section.locate("dynamic"))
        rules.append(Rule(names, _gptq_scheme(override, scheme) if sign == "+" else None))
    if section.flag("lm_head"):
        rules.append(Rule(ModuleNames.of(["lm_head"], anywhere=False), scheme))
    return QuantisationPlan("gptq", section.model_format, *_only_listed(section, scheme, rules))


def _gptq_scheme(section: Section, inherited: Gptq | None) -> Gptq:
    bits = section.integer("bits", default=inherited.bits if inherited else None, among=(2, 3, 4, 8))
    default = (inherited.group_size or -1) if inherited else 128
    return Gptq(bits, section.group_size("group_size", default=default))


def _only_listed(section: Section, scheme: Gptq, rules: list[Rule]) -> tuple[Gptq | None, tuple[Rule, ...]]:
    """With ``modules_in_block_to_quantize``, only the modules that it lists are quantised."""
    listed = section.data.get("modules_in_block_to_quantize")
    if listed is None:
        return scheme, tuple(rules)
    flat = [name for group in listed for name in group] if _is_list_of_lists(listed) else listed
    if not isinstance(flat, list) or not all(isinstance(name, str) for name in flat):
        section.invalid("modules_in_block_to_quantize", "a list of lists of module names")
    names = ModuleNames.of(flat, anywhere=True, where=section.locate("modules_in_block_to_quantize"))
    return None, (*rules, Rule(names, scheme))


def _is_list_of_lists(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, list) for item in value)


def _read_awq(section: Section) -> QuantisationPlan:
    """All linear maps of the layers but ``modules_to_not_convert``, in the GEMM layout."""
    version = section.text("version", default="gemm").lower()
    if version not in ("gemm", "exllama", "ipex"):
        section.unsupported("version", "AWQ's layout", ("gemm", "exllama", "ipex"))
    bits = section.integer("bits", "w_bit", among=(4, 8))
    scheme = Awq(bits, section.group_size("group_size", "q_group_size", default=128))
    rule = Rule(section.modules("modules_to_not_convert"), None)
    return QuantisationPlan("awq", section.model_format, scheme, (rule,))


def _read_fp8(section: Section) -> QuantisationPlan:
    """fp8 by blocks (with ``weight_block_size``) or by tensor, with fp32 scales."""
    activation = section.text("activation_scheme", default="dynamic")
    if activation not in ("static", "dynamic"):
        section.unsupported("activation_scheme", "the activation scheme", ("static", "dynamic"))
    static = FP32 if activation == "static" else None
    if section.data.get("weight_block_size") is None:
        scheme = ScaledEightBit(FP8_E4M3, "tensor", activation_scale=static)
    else:
        block = square_block(section, "weight_block_size")
        scheme = ScaledEightBit(FP8_E4M3, "block", block=block, activation_scale=static)
    rule = Rule(section.modules("modules_to_not_convert", "ignored_layers"), None)
    return QuantisationPlan("fp8", section.model_format, scheme, (rule,))


def _with_fp4_experts(plan: QuantisationPlan, config: dict[str, Any]) -> QuantisationPlan:
    """DeepSeek-V4: where ``expert_dtype`` is fp4, routed experts are MXFP4 and all block scales E8M0."""
    expert_dtype = config.get("expert_dtype")
    if expert_dtype != "fp4" or plan.method != "fp8" or plan.scheme is None:
        return plan
    experts = Rule(ModuleNames.of(["experts"], anywhere=True), Mxfp4())
    scheme = replace(FP8_BLOCK, scale=UE8M0)
    return replace(plan, scheme=scheme, rules=(*plan.rules, experts))


def _read_fbgemm_fp8(section: Section) -> QuantisationPlan:
    """fp8 by row with fp32 scales, and one bound on the activation scales per matrix."""
    scheme = ScaledEightBit(FP8_E4M3, "channel", activation_scale=FP32)
    rule = Rule(section.modules("modules_to_not_convert"), None)
    return QuantisationPlan("fbgemm_fp8", section.model_format, scheme, (rule,))


def _read_bitsandbytes(section: Section) -> QuantisationPlan:
    """Every linear map but the head and ``llm_int8_skip_modules``, towers included."""
    eight = section.flag("load_in_8bit", "_load_in_8bit")
    four = section.flag("load_in_4bit", "_load_in_4bit")
    if eight == four:
        section.invalid("load_in_4bit", "true, or load_in_8bit, and not both")
    rule = Rule(section.modules("llm_int8_skip_modules"), None)
    components = LINEAR_COMPONENTS | {"other"}
    if eight:
        return QuantisationPlan("bitsandbytes", section.model_format, INT8_CHANNEL, (rule,), components)
    kind = section.text("bnb_4bit_quant_type", default="fp4")
    double = section.flag("bnb_4bit_use_double_quant")
    if kind == "nf4":
        scheme = BitsAndBytesFourBit("nf4", double)
    elif kind == "fp4":
        scheme = BitsAndBytesFourBit("fp4", double)
    else:
        section.unsupported("bnb_4bit_quant_type", "the 4-bit type", ("nf4", "fp4"))
    return QuantisationPlan("bitsandbytes", section.model_format, scheme, (rule,), components)


def _read_mxfp4(section: Section) -> QuantisationPlan:
    """gpt-oss: the routed experts' matrices alone; their biases stay in the model's format."""
    rule = Rule(section.modules("modules_to_not_convert"), None)
    return QuantisationPlan("mxfp4", section.model_format, Mxfp4(), (rule,), _EXPERTS)


READERS: dict[str, Callable[[Section], QuantisationPlan]] = {
    "gptq": _read_gptq,
    "awq": _read_awq,
    "fp8": _read_fp8,
    "fbgemm-fp8": _read_fbgemm_fp8,
    "compressed-tensors": read_compressed_tensors,
    "bitsandbytes": _read_bitsandbytes,
    "mxfp4": _read_mxfp4,
    "modelopt": read_modelopt,
    "modelopt-fp4": read_modelopt,
    "modelopt-mixed": read_modelopt,
}
"""The reader of every method that is understood, by ``quant_method`` in lower case with hyphens."""
