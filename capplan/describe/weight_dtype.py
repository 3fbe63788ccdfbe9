"""What a user writes after ``--weight-dtype``: a number format, a scheme with its groups, or a mix of llama.cpp's.

Names read as ``library-type-granularity``: ``bf16``, ``fp8-block``, ``awq-int4-g128``, ``gptq-int4-g32-nogidx``,
``w4a16-g128-asym`` (compressed-tensors), ``bnb-nf4-dq``, ``mxfp4``, ``nvfp4``, ``gguf:Q4_K_M``. Underscores, capitals
and the short forms ``awq``, ``gptq``, ``nf4``, ``q4_k_m`` are understood, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from capplan.describe.formats import BF16, FP8_E4M3, FP16, FP32, INT8, UE8M0
from capplan.describe.gguf_mix import BASE_TYPES, MIX_ALIASES, GgufMix, parse_mix
from capplan.describe.weight_schemes import (
    Awq,
    BitsAndBytesFourBit,
    Ggml,
    Gptq,
    Mxfp4,
    Nvfp4,
    PackQuantized,
    Plain,
    ScaledEightBit,
    WeightScheme,
)
from capplan.errors import UsageError, did_you_mean

WeightDtype: TypeAlias = WeightScheme | GgufMix

FLAG = "--weight-dtype"
GGUF_PREFIX = "gguf:"

FIXED_NAMES: dict[str, WeightScheme] = {
    "fp32": Plain(FP32),
    "fp16": Plain(FP16),
    "bf16": Plain(BF16),
    "fp8-tensor": ScaledEightBit(FP8_E4M3, "tensor"),
    "fp8-tensor-static": ScaledEightBit(FP8_E4M3, "tensor", activation_scale=FP32),
    "fp8-channel": ScaledEightBit(FP8_E4M3, "channel"),
    "fp8-block": ScaledEightBit(FP8_E4M3, "block"),
    "fp8-block-bf16": ScaledEightBit(FP8_E4M3, "block", BF16),
    "fp8-block-ue8m0": ScaledEightBit(FP8_E4M3, "block", UE8M0),
    "int8-channel": ScaledEightBit(INT8, "channel"),
    "w8a8-int8": ScaledEightBit(INT8, "channel", BF16),
    "w8a8-fp8": ScaledEightBit(FP8_E4M3, "channel", BF16),
    "w8a16-channel": PackQuantized(8, None),
    "bnb-nf4": BitsAndBytesFourBit("nf4"),
    "bnb-nf4-dq": BitsAndBytesFourBit("nf4", double_quant=True),
    "bnb-fp4": BitsAndBytesFourBit("fp4"),
    "bnb-fp4-dq": BitsAndBytesFourBit("fp4", double_quant=True),
    "bnb-int8": ScaledEightBit(INT8, "channel"),
    "mxfp4": Mxfp4(),
    "mxfp8": ScaledEightBit(FP8_E4M3, "group", UE8M0, block=32),
    "nvfp4": Nvfp4(),
    "nvfp4-act": Nvfp4(static_activation=True),
}
"""Every name that has no group size in it."""

ALIASES = {
    "f32": "fp32",
    "float32": "fp32",
    "f16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "fp8": "fp8-tensor",
    "fp8-e4m3": "fp8-tensor",
    "fp8-block128": "fp8-block",
    "fp8-block128-f32": "fp8-block",
    "fp8-block128-bf16": "fp8-block-bf16",
    "fp8-block128-ue8m0": "fp8-block-ue8m0",
    "int8": "int8-channel",
    "w8a8": "w8a8-int8",
    "gptq": "gptq-int4-g128",
    "awq": "awq-int4-g128",
    "w4a16": "w4a16-g128",
    "w8a16": "w8a16-g128",
    "nf4": "bnb-nf4",
    "fp4": "bnb-fp4",
    "bnb": "bnb-nf4",
    "nvfp4a16": "nvfp4",
}

_GROUPS = r"(?:-g(?P<group>[1-9][0-9]{0,4})|-(?P<channel>channel))"


def _gptq(match: re.Match[str]) -> WeightScheme:
    options = match["options"].split("-")[1:]
    return Gptq(int(match["bits"]), _group(match), "nogidx" not in options, "bias" in options)


def _awq(match: re.Match[str]) -> WeightScheme:
    return Awq(int(match["bits"]), _group(match))


def _packed(match: re.Match[str]) -> WeightScheme:
    return PackQuantized(int(match["bits"]), _group(match), symmetric=match["symmetry"] != "-asym")


def _group(match: re.Match[str]) -> int | None:
    return int(match["group"]) if match["group"] else None


_FAMILIES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], WeightScheme]], ...] = (
    (re.compile(rf"gptq-?(?:int)?(?P<bits>[2348]){_GROUPS}(?P<options>(?:-nogidx|-bias){{0,2}})"), _gptq),
    (re.compile(rf"awq-?(?:int)?(?P<bits>[48]){_GROUPS}"), _awq),
    (re.compile(rf"(?:ct-)?w(?P<bits>[48])a16{_GROUPS}(?P<symmetry>-sym|-asym|)"), _packed),
)


@lru_cache(maxsize=1)
def known_names() -> tuple[str, ...]:
    """Names to suggest: all fixed ones, the usual group sizes, and every mix."""
    grouped = [f"{family}-g{size}" for family in ("gptq-int4", "awq-int4", "w4a16") for size in (32, 64, 128)]
    more = ["gptq-int8-g128", "gptq-int3-g128", "w8a16-g128"]
    mixes = [GGUF_PREFIX + mix for mix in BASE_TYPES]
    return (*FIXED_NAMES, *grouped, *more, *mixes)


def parse_weight_dtype(text: str, *, where: str = FLAG) -> WeightDtype:
    """The scheme or the mix that `text` names.

    Raises:
        UsageError: no such name; the nearest ones are the hint.
    """
    stripped = text.strip()
    if stripped.lower().startswith(GGUF_PREFIX):
        return parse_mix(stripped[len(GGUF_PREFIX) :], where=where)
    key = stripped.lower().replace("_", "-")
    key = ALIASES.get(key, key)
    if key in FIXED_NAMES:
        return FIXED_NAMES[key]
    for pattern, make in _FAMILIES:
        match = pattern.fullmatch(key)
        if match:
            return make(match)
    mix = key.partition("+")[0].upper().replace("-", "_")
    if mix in BASE_TYPES or mix in MIX_ALIASES:
        return parse_mix(stripped, where=where)
    raise UsageError(f"{text[:60]!r} is not a weight dtype", where=where, hint=_suggestion(key))


def scheme_name(scheme: WeightScheme) -> str:
    """The name that reads back as this scheme, as far as names tell schemes apart."""
    for name, known in FIXED_NAMES.items():
        if known == scheme:
            return name
    match scheme:
        case Plain(form):
            return form.name
        case Gptq(bits=bits, group_size=group):
            return f"gptq-int{bits}-{_group_name(group)}"
        case Awq(bits=bits, group_size=group):
            return f"awq-int{bits}-{_group_name(group)}"
        case PackQuantized(bits=bits, group_size=group, symmetric=symmetric):
            return f"w{bits}a16-{_group_name(group)}{'' if symmetric else '-asym'}"
        case Ggml(ggml):
            return f"gguf:{ggml.name}"
        case ScaledEightBit(form, granularity):
            return f"{'fp8' if form.name.startswith('fp8') else form.name}-{granularity}"
        case Nvfp4():
            return "nvfp4"
        case _:
            return type(scheme).__name__.lower()


def _group_name(group: int | None) -> str:
    return "channel" if group is None else f"g{group}"


def _suggestion(key: str) -> str:
    if key in ("int4", "4bit", "4-bit", "w4"):
        return "4-bit integers differ by library: awq-int4-g128, gptq-int4-g128, w4a16-g128, gguf:Q4_K_M"
    names = {name.lower(): name for name in known_names()}
    hint = did_you_mean(key, names)
    for lower, name in names.items():
        if lower != name:
            hint = hint.replace(lower, name)
    return hint or "for example bf16, fp8-block, awq-int4-g128, nvfp4, gguf:Q4_K_M"
