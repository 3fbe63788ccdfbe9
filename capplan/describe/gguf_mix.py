"""Which ggml type llama-quantize gives each tensor of a model.

A name such as ``Q4_K_M`` is a mix: most tensors get its base type, and some get more or fewer bits by what they
are (`Category`), by where their layer stands, by the model's shape, and by whether an importance matrix is given.

Source: llama.cpp, src/llama-quant.cpp (the choice per tensor), tools/quantize (the names of the mixes) and
convert_hf_to_gguf.py (the types before quantisation).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from capplan.describe.formats import GgmlType, ggml_type
from capplan.describe.gguf_tensor import Category, GgufTensor, converted_type, is_quantisable
from capplan.errors import UnsupportedError, UsageError, did_you_mean

BASE_TYPES: dict[str, str] = {
    "F32": "F32",
    "F16": "F16",
    "BF16": "BF16",
    "Q4_0": "Q4_0",
    "Q4_1": "Q4_1",
    "Q5_0": "Q5_0",
    "Q5_1": "Q5_1",
    "Q8_0": "Q8_0",
    "Q2_K": "Q2_K",
    "Q2_K_S": "Q2_K",
    "Q3_K_S": "Q3_K",
    "Q3_K_M": "Q3_K",
    "Q3_K_L": "Q3_K",
    "Q4_K_S": "Q4_K",
    "Q4_K_M": "Q4_K",
    "Q5_K_S": "Q5_K",
    "Q5_K_M": "Q5_K",
    "Q6_K": "Q6_K",
    "IQ1_S": "IQ1_S",
    "IQ1_M": "IQ1_M",
    "IQ2_XXS": "IQ2_XXS",
    "IQ2_XS": "IQ2_XS",
    "IQ2_S": "IQ2_XS",
    "IQ2_M": "IQ2_S",
    "IQ3_XXS": "IQ3_XXS",
    "IQ3_XS": "IQ3_S",
    "IQ3_S": "IQ3_S",
    "IQ3_M": "IQ3_S",
    "IQ4_NL": "IQ4_NL",
    "IQ4_XS": "IQ4_XS",
    "Q1_0": "Q1_0",
    "TQ1_0": "TQ1_0",
    "TQ2_0": "TQ2_0",
    "MXFP4_MOE": "MXFP4",
}
"""Every mix that llama-quantize makes, with the type that most tensors get."""

MIX_ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "MXFP4": "MXFP4_MOE"}

_BELOW_THREE_BITS = frozenset({"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M"})
_NEEDS_IMPORTANCE_MATRIX = _BELOW_THREE_BITS | {"IQ3_XXS", "Q2_K_S"}

# Types whose block doesn't divide a row give way to one of 32 elements; F16 when that doesn't divide it either.
_FALLBACKS: dict[str, str] = {
    **dict.fromkeys(
        ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"),
        "IQ4_NL",
    ),
    **dict.fromkeys(("Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}

_EMBEDDING_TYPES: dict[str, str] = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS"), "Q2_K"),
    **dict.fromkeys(("IQ2_S", "IQ2_M", "IQ3_XXS"), "IQ3_S"),
    **dict.fromkeys(("TQ1_0", "TQ2_0"), "Q4_K"),
}

_ATTENTION_OUTPUT_TYPES = {
    "Q2_K": "Q3_K",
    "IQ3_XXS": "IQ3_S",
    "Q3_K_M": "Q4_K",
    "Q3_K_L": "Q5_K",
    "IQ3_M": "Q4_K",
}
_EIGHT_EXPERTS_OUTPUT_Q5 = frozenset(
    {
        "Q2_K",
        "IQ3_XS",
        "IQ3_XXS",
        "Q3_K_S",
        "Q3_K_M",
        "IQ4_NL",
        "Q4_K_S",
        "Q4_K_M",
        "IQ3_S",
        "IQ3_M",
        "IQ4_XS",
    }
)

# Architectures whose models of 80 layers llama.cpp calls "70B": there attn_v, an eighth of attn_q, gets more bits.
_SEVENTY_BILLION = frozenset({"llama", "qwen2", "deci", "olmo", "olmoe"})
_SEVENTY_BILLION_LAYERS = 80

_LIKE_ATTENTION_V = frozenset({Category.ATTENTION_V, Category.ATTENTION_QKV, Category.ATTENTION_KV_B})


@dataclass(frozen=True)
class GgufShape:
    """The facts about a model that the choice of types depends on.

    Args:
        architecture: GGUF's ``general.architecture``.
        layers: all layers of the file, MTP layers included.
        heads: query heads of the first layer.
        kv_heads: key/value heads of the first layer; 0 where it has none.
        experts: routed experts of a layer; 0 for a dense model.
    """

    architecture: str
    layers: int
    heads: int
    kv_heads: int
    experts: int = 0

    @property
    def queries_per_kv_head(self) -> int:
        """Query heads per key/value head, 0 where the first layer has none."""
        return self.heads // self.kv_heads if self.kv_heads else 0

    @property
    def is_seventy_billion(self) -> bool:
        """Whether llama.cpp calls the model "70B"."""
        if self.layers != _SEVENTY_BILLION_LAYERS or self.architecture not in _SEVENTY_BILLION:
            return False
        return self.architecture != "llama" or self.heads != self.kv_heads


@dataclass(frozen=True)
class GgufMix:
    """A mix of ggml types as llama-quantize names it, and whether an importance matrix is given."""

    name: str
    importance_matrix: bool = False

    @property
    def base_type(self) -> str:
        """The type that most tensors get."""
        return BASE_TYPES[self.name]

    @property
    def needs_importance_matrix(self) -> bool:
        """Whether llama-quantize refuses to make this mix without an importance matrix."""
        return self.name in _NEEDS_IMPORTANCE_MATRIX


def parse_mix(text: str, *, where: str = "") -> GgufMix:
    """The mix that `text` names: ``Q4_K_M``, ``q4_k_m``, ``IQ4_XS+imatrix``.

    Raises:
        UsageError: llama-quantize makes no mix of that name.
    """
    name, plus, option = text.strip().upper().replace("-", "_").partition("+")
    name = MIX_ALIASES.get(name, name)
    if name not in BASE_TYPES:
        hint = did_you_mean(name, {known.lower(): known for known in BASE_TYPES})
        raise UsageError(f"llama-quantize makes no mix called {text!r}", where=where, hint=hint)
    if plus and option != "IMATRIX":
        raise UsageError(f"unknown option {option!r} of a mix", where=where, hint="only +imatrix is known")
    return GgufMix(name, importance_matrix=bool(plus))


def gets_more_bits(layer: int, layers: int) -> bool:
    """Whether a layer is in the first or last eighth, or is every third between: the layers that M mixes favour.

    layer < ⌊L/8⌋  or  layer ≥ ⌊7L/8⌋  or  (layer - ⌊L/8⌋) mod 3 = 2
    """
    eighth = layers // 8
    # C's remainder keeps the sign; layers below the first eighth are already answered by the first term.
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


@dataclass(frozen=True)
class _Place:
    """A tensor's position among its like: its number in file order and its layer, with the counts of each."""

    ordinal: int
    count: int
    layer: int
    layers: int


def _output_type(mix: GgufMix, model: GgufShape, columns: int) -> str:
    if mix.name == "MXFP4_MOE" or model.architecture == "falcon":
        return "Q8_0"
    if columns % ggml_type(mix.base_type).block_elements:
        return "Q8_0"
    if mix.name in _BELOW_THREE_BITS or mix.name == "IQ3_XXS":
        return "Q5_K"
    return "Q8_0" if mix.base_type == "Q8_0" else "Q6_K"


def _below_three_bits(mix: GgufMix, model: GgufShape, category: Category, place: _Place) -> str:
    """The mixes below three bits a weight: what matters most gets three or four bits."""
    raised = "IQ3_S" if mix.name in ("IQ2_S", "IQ2_M") else "Q2_K"
    if category in _LIKE_ATTENTION_V:
        return "Q4_K" if model.queries_per_kv_head >= 4 or model.experts >= 4 else raised
    if category is Category.ATTENTION_K and model.experts == 8:
        return "Q4_K"
    if category is Category.FFN_DOWN and place.ordinal < place.layers // 8:
        return raised
    if category is Category.ATTENTION_OUTPUT:
        if model.experts == 8:
            return "Q5_K"
        if mix.name in ("IQ1_S", "IQ1_M"):
            return "IQ2_XXS"
        if mix.name in ("IQ2_S", "IQ2_M"):
            return "IQ3_S"
    return mix.base_type


def _attention_v_by_mix(mix: GgufMix, model: GgufShape, place: _Place) -> str:
    grouped = model.queries_per_kv_head >= 4
    match mix.name:
        case "Q2_K":
            return "Q4_K" if grouped else "Q3_K"
        case "Q2_K_S" | "IQ3_XS" | "IQ3_S" if grouped:
            return "Q4_K"
        case "IQ3_XXS":
            without = "IQ3_XXS" if mix.importance_matrix else "IQ3_S"
            return "Q4_K" if grouped else without
        case "IQ3_M":
            return "Q4_K"
        case "Q3_K_M":
            return "Q5_K" if place.ordinal < 2 else "Q4_K"
        case "Q3_K_L":
            return "Q5_K"
        case "IQ4_NL" | "IQ4_XS" if grouped:
            return "Q5_K"
        case "Q4_K_M" | "Q5_K_M" if gets_more_bits(place.ordinal, place.count):
            return "Q6_K"
        case "Q4_K_S" if place.ordinal < 4:
            return "Q5_K"
    return mix.base_type


def _attention_v(mix: GgufMix, model: GgufShape, place: _Place) -> str:
    if model.experts == 8:
        return "Q8_0"
    chosen = _attention_v_by_mix(mix, model, place)
    return "Q5_K" if model.is_seventy_billion and chosen in ("Q3_K", "Q4_K") else chosen


def _attention_qk(mix: GgufMix, model: GgufShape, category: Category) -> str:
    if category is Category.ATTENTION_K and model.experts == 8:
        return "Q8_0"
    return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(mix.name, mix.base_type)


def _ffn_down_falcon(mix: GgufMix, place: _Place) -> str | None:
    more = gets_more_bits(place.layer, place.layers)
    match mix.name:
        case "Q3_K_M":
            return "Q5_K" if place.layer < place.layers // 16 else "Q4_K" if more else "Q3_K"
        case "Q3_K_L":
            return "Q4_K"
        case "Q4_K_M":
            return "Q6_K" if place.layer < place.layers // 16 else "Q5_K" if more else "Q4_K"
        case "Q4_K_S":
            return "Q4_K"
    return None


def _ffn_down(mix: GgufMix, model: GgufShape, place: _Place) -> str:
    if model.architecture == "falcon" and (chosen := _ffn_down_falcon(mix, place)) is not None:
        return chosen
    first_eighth = place.layer < place.layers // 8
    more = gets_more_bits(place.layer, place.layers)
    match mix.name:
        case "Q2_K":
            return "Q3_K"
        case "Q2_K_S" if first_eighth:
            return "Q4_K"
        case "IQ3_XXS" if not mix.importance_matrix:
            return "Q4_K" if first_eighth else "Q3_K"
        case "Q3_K_M":
            return "Q5_K" if place.layer < place.layers // 16 else "Q4_K"
        case "IQ3_M" if first_eighth or (model.experts == 8 and more):
            return "Q4_K"
        case "Q3_K_L":
            return "Q5_K"
        case "Q4_K_M" | "Q5_K_M" if more:
            return "Q6_K"
        case "IQ4_NL" | "IQ4_XS" if first_eighth and not mix.importance_matrix:
            return "Q5_K"
        case "Q4_K_S" if first_eighth:
            return "Q5_K"
        case "Q4_0" | "Q5_0" if first_eighth and mix.importance_matrix:
            return {"Q4_0": "Q4_1", "Q5_0": "Q5_1"}[mix.name]
    return mix.base_type


def _attention_output(mix: GgufMix, model: GgufShape) -> str:
    if model.architecture == "falcon":
        return "Q4_K" if mix.name == "Q3_K_L" else mix.base_type
    if model.experts == 8:
        return "Q5_K" if mix.name in _EIGHT_EXPERTS_OUTPUT_Q5 else mix.base_type
    return _ATTENTION_OUTPUT_TYPES.get(mix.name, mix.base_type)


def _ffn_gate_or_up(mix: GgufMix, place: _Place) -> str:
    middle = place.layers // 8 <= place.layer < 7 * place.layers // 8
    return "IQ3_XXS" if mix.name == "IQ3_XS" and middle else mix.base_type


def _preferred_type(mix: GgufMix, model: GgufShape, tensor: GgufTensor, place: _Place, *, tied: bool) -> str:
    """The type that the mix wants for a tensor, before its shape is looked at."""
    category = tensor.category
    if category is Category.OUTPUT or (tied and category is Category.EMBEDDING):
        return _output_type(mix, model, tensor.columns)
    if mix.name == "MXFP4_MOE":
        return "MXFP4" if tensor.dimensions > 2 else "Q8_0"
    if category is Category.EMBEDDING:
        return _EMBEDDING_TYPES.get(mix.name, mix.base_type)
    if mix.name in _BELOW_THREE_BITS:
        return _below_three_bits(mix, model, category, place)
    if category in _LIKE_ATTENTION_V:
        return _attention_v(mix, model, place)
    if category in (Category.ATTENTION_K, Category.ATTENTION_Q):
        return _attention_qk(mix, model, category)
    if category is Category.FFN_DOWN:
        return _ffn_down(mix, model, place)
    if category is Category.ATTENTION_OUTPUT:
        return _attention_output(mix, model)
    if category in (Category.FFN_GATE, Category.FFN_UP):
        return _ffn_gate_or_up(mix, place)
    return mix.base_type


def _fitting_type(name: str, tensor: GgufTensor) -> str:
    """The preferred type, or the one that llama-quantize falls back to when its block doesn't divide the row."""
    if tensor.columns % ggml_type(name).block_elements == 0:
        return name
    fallback = _FALLBACKS.get(name)
    if fallback is None:
        raise UnsupportedError(
            f"llama-quantize can't store {tensor.name} as {name}: a row has {tensor.columns} elements",
            hint="choose a mix of F16 or BF16",
        )
    return fallback if tensor.columns % ggml_type(fallback).block_elements == 0 else "F16"


def quantise_types(
    tensors: Iterable[GgufTensor], model: GgufShape, mix: GgufMix, *, source_type: str = "BF16"
) -> list[tuple[GgufTensor, GgmlType]]:
    """The ggml type of every tensor after llama-quantize, in the order in which it works (layer, then name).

    Args:
        tensors: the tensors of the file before quantisation.
        model: what the choice depends on.
        mix: the mix asked for.
        source_type: the type of the matrices before quantisation, which those that stay untouched keep.

    Raises:
        UnsupportedError: a row that no fallback can store.
    """
    ordered = sorted(tensors, key=lambda tensor: (tensor.layer, tensor.name))
    tied = all(tensor.category is not Category.OUTPUT for tensor in ordered)
    values = sum(tensor.category in _LIKE_ATTENTION_V for tensor in ordered)
    quantised = not ggml_type(mix.base_type).plain
    seen: Counter[object] = Counter()
    chosen: list[tuple[GgufTensor, GgmlType]] = []
    for tensor in ordered:
        if not is_quantisable(tensor):
            name = converted_type(tensor, source_type)
        elif not quantised:
            name = mix.base_type
        else:
            kind = "value" if tensor.category in _LIKE_ATTENTION_V else tensor.category
            # Of a mixture of experts the layer's own number counts, of a dense model the n-th of its kind.
            layer = tensor.layer if model.experts > 1 else seen[kind]
            place = _Place(seen[kind], values if kind == "value" else model.layers, layer, model.layers)
            seen[kind] += 1
            name = _fitting_type(_preferred_type(mix, model, tensor, place, tied=tied), tensor)
        chosen.append((tensor, ggml_type(name)))
    return chosen


def mix_bytes(chosen: Sequence[tuple[GgufTensor, GgmlType]]) -> int:
    """Bytes of all tensors in their types, without headers and padding.

    bytes = Σ rows · (columns / block_elements) · block_bytes
    """
    return sum(ggml.bytes_for(tensor.rows, tensor.columns) for tensor, ggml in chosen)
