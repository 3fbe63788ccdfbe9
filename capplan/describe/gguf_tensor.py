"""The tensors of a GGUF file by name: what each one is, and which of them llama.cpp quantises at all.

Source: llama.cpp, src/llama-quant.cpp (categories, tensors left alone) and convert_hf_to_gguf.py (types before
quantisation).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from math import prod

# Fragments of the names of tensors that stay as they were before quantisation.
_NEVER_QUANTISED = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
)
_NEVER_QUANTISED_RWKV = re.compile(r"time_mix_(?:[wvag][012]|decay_w[12])\.weight")
_NEVER_QUANTISED_NAMES = frozenset({"position_embd.weight", "token_types.weight"})

# Matrices that the conversion keeps in F32 whatever the output type.
_CONVERTED_TO_F32 = (
    "ffn_gate_inp.weight",
    "ssm_conv1d.weight",
    "shortconv.conv.weight",
    "time_mix_first.weight",
    "attn_rel_b.weight",
)

_BLOCK = re.compile(r"blk\.(\d+)\.")


class Category(Enum):
    """What a tensor is, as far as the choice of its type is concerned."""

    EMBEDDING = auto()
    OUTPUT = auto()
    ATTENTION_V = auto()
    ATTENTION_QKV = auto()
    ATTENTION_KV_B = auto()
    ATTENTION_K = auto()
    ATTENTION_Q = auto()
    ATTENTION_OUTPUT = auto()
    FFN_UP = auto()
    FFN_GATE = auto()
    FFN_DOWN = auto()
    OTHER = auto()


_CATEGORY_FRAGMENTS = (
    ("attn_qkv.weight", Category.ATTENTION_QKV),
    ("attn_kv_b.weight", Category.ATTENTION_KV_B),
    ("attn_v.weight", Category.ATTENTION_V),
    ("attn_k.weight", Category.ATTENTION_K),
    ("attn_q.weight", Category.ATTENTION_Q),
    ("attn_output.weight", Category.ATTENTION_OUTPUT),
    ("ffn_up", Category.FFN_UP),
    ("ffn_gate", Category.FFN_GATE),
    ("ffn_down", Category.FFN_DOWN),
)


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of a GGUF file before quantisation.

    Args:
        name: GGUF's name, such as ``blk.3.attn_v.weight``.
        shape: dimensions in ggml's order: the columns of a row first, then rows, then experts.
    """

    name: str
    shape: tuple[int, ...]

    @property
    def columns(self) -> int:
        """Elements of one row."""
        return self.shape[0]

    @property
    def rows(self) -> int:
        """Rows of all the matrices together."""
        return prod(self.shape[1:])

    @property
    def elements(self) -> int:
        """All elements."""
        return prod(self.shape)

    @property
    def dimensions(self) -> int:
        """Dimensions as ggml counts them: trailing ones don't count."""
        used = [index for index, size in enumerate(self.shape) if size != 1]
        return used[-1] + 1 if used else 1

    @property
    def layer(self) -> int:
        """The number of its layer, or -1 outside the layers."""
        match = _BLOCK.match(self.name)
        return int(match.group(1)) if match else -1

    @property
    def category(self) -> Category:
        """What the tensor is."""
        if self.name == "output.weight":
            return Category.OUTPUT
        if self.name in ("token_embd.weight", "per_layer_token_embd.weight"):
            return Category.EMBEDDING
        for fragment, category in _CATEGORY_FRAGMENTS:
            if fragment in self.name:
                return category
        return Category.OTHER


def is_quantisable(tensor: GgufTensor) -> bool:
    """Whether llama-quantize changes a tensor's type at all: matrices, apart from small and sensitive ones."""
    return (
        tensor.dimensions >= 2
        and tensor.name.endswith("weight")
        and tensor.name not in _NEVER_QUANTISED_NAMES
        and not any(fragment in tensor.name for fragment in _NEVER_QUANTISED)
        and not _NEVER_QUANTISED_RWKV.search(tensor.name)
    )


def converted_type(tensor: GgufTensor, source_type: str = "BF16") -> str:
    """The type of a tensor after conversion from a checkpoint and before quantisation: F32 for all that is small."""
    small = tensor.dimensions < 2 or tensor.name.endswith("_norm.weight") or not tensor.name.endswith(".weight")
    if small or tensor.name in _NEVER_QUANTISED_NAMES or any(part in tensor.name for part in _CONVERTED_TO_F32):
        return "F32"
    return "F32" if _NEVER_QUANTISED_RWKV.search(tensor.name) else source_type
