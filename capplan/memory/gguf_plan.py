"""A mix of llama.cpp's as a quantisation plan: which ggml type each module's weight has, layer by layer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from capplan.describe.formats import FP16, FP32, GgmlType, number_format
from capplan.describe.gguf import GgufFile
from capplan.describe.gguf_mix import GgufMix
from capplan.describe.model import ModelSpec
from capplan.describe.quantisation import QuantisationPlan
from capplan.describe.weight_schemes import Ggml, Plain, WeightScheme
from capplan.memory.gguf_weights import Layout, gguf_name, gguf_weights, layout_of

_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_TOWER = re.compile(r"(?!model\.|mtp\.|encoder\.)\w+\.")
_NO_LAYOUT = Layout("")
_PLAIN = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}


@dataclass(frozen=True)
class MixPlan(QuantisationPlan):
    """The types that llama-quantize chooses, asked for by module path.

    Args:
        layout: how llama.cpp names the architecture's tensors.
        types: the type of each tensor by GGUF's name.
    """

    layout: Layout = _NO_LAYOUT
    types: dict[str, GgmlType] = field(default_factory=dict)

    @property
    def depends_on_layer(self) -> bool:
        """Mixes give some layers more bits than others."""
        return True

    def scheme_for(self, module: str, component: str, shape: tuple[int, ...]) -> WeightScheme:
        """The type of the tensor that holds the weight of `module`; a tied head is the token table.

        Towers lie in a file of their own (``mmproj``), in 16 bits.
        """
        if _TOWER.match(module):
            return Plain(FP16)
        layer = _LAYER.fullmatch(module)
        if layer:
            name = f"blk.{layer[1]}.{gguf_name(layer[2], self.layout)}"
        else:
            name = gguf_name(module.removeprefix("model."), self.layout)
        found = self.types.get(name)
        if found is None:
            return Plain(self.unquantised)
        return Plain(number_format(_PLAIN[found.name])) if found.name in _PLAIN else Ggml(found)


def mix_plan(spec: ModelSpec, mix: GgufMix) -> MixPlan:
    """The plan of a model in a mix; vectors are fp32, as the conversion keeps them.

    Raises:
        UnsupportedError: an architecture whose conversion isn't known, or a row that no type can store.
    """
    types = {tensor.name: ggml for tensor, ggml in gguf_weights(spec, mix).tensors}
    return MixPlan("llama.cpp", FP32, layout=layout_of(spec), types=types)


def file_plan(spec: ModelSpec, file: GgufFile) -> MixPlan:
    """The plan of a model whose GGUF file says the type of every tensor.

    Raises:
        UnsupportedError: an architecture whose conversion isn't known.
    """
    types = {tensor.name: tensor.type for tensor in file.tensors}
    return MixPlan("gguf", FP32, layout=layout_of(spec), types=types)
