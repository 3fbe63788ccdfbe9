"""A model's weights as llama.cpp stores them: its tensors under GGUF's names, and their bytes in a mix of types.

The conversion stacks experts into one tensor, fuses or splits some projections, keeps vectors in F32, and leaves out
towers (they go to a file of their own) and MTP layers.

Source: llama.cpp, convert_hf_to_gguf.py and gguf-py/gguf/constants.py (names of architectures and tensors).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from capplan.describe.formats import GgmlType
from capplan.describe.gguf import GgufFile
from capplan.describe.gguf_mix import GgufMix, GgufShape, quantise_types
from capplan.describe.gguf_tensor import GgufTensor
from capplan.describe.model import Attention, LatentAttention, MixtureOfExperts, ModelSpec
from capplan.errors import UnsupportedError, did_you_mean
from capplan.memory.tensors import Tensor, block_tensors, embedding_tensors, stack_tensors


@dataclass(frozen=True, slots=True)
class Layout:
    """How llama.cpp's conversion writes one architecture.

    Args:
        architecture: GGUF's name for it.
        fused_qkv: q, k and v are one tensor.
        fused_gate_up: the gate and up matrices of a feed-forward are one tensor.
    """

    architecture: str
    fused_qkv: bool = False
    fused_gate_up: bool = False


LAYOUTS: dict[str, Layout] = {
    **{name: Layout("llama") for name in ("llama", "mistral", "mixtral", "internlm3", "llava")},
    **{name: Layout("mistral3") for name in ("ministral3", "mistral3")},
    **{name: Layout("deepseek2") for name in ("deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25", "glm4_moe_lite")},
    **{name: Layout("qwen2vl") for name in ("qwen2_vl", "qwen2_5_vl")},
    **{name: Layout("mamba") for name in ("mamba", "falcon_mamba")},
    **{
        name: Layout(name.replace("_", ""))
        for name in ("qwen2_moe", "qwen3_moe", "qwen3_next", "glm4_moe", "granitemoe", "lfm2_moe")
    },
    **{
        name: Layout(name)
        for name in (
            "arcee", "baichuan", "cohere2", "dots1", "ernie4_5", "exaone4", "gemma", "gemma2", "gemma3", "granite",
            "internlm2", "jamba", "lfm2", "llama4", "mamba2", "minicpm", "nemotron", "nemotron_h", "olmo", "olmo2",
            "olmoe", "orion", "phimoe", "qwen2", "qwen3", "seed_oss", "smollm3", "stablelm", "starcoder2",
        )
    },
    "bloom": Layout("bloom", fused_qkv=True),
    "cohere": Layout("command-r"),
    "ernie4_5_moe": Layout("ernie4_5-moe"),
    "granitemoehybrid": Layout("granitehybrid"),
    "hunyuan_v1_dense": Layout("hunyuan-dense"),
    "hunyuan_v1_moe": Layout("hunyuan-moe"),
    "llama4_text": Layout("llama4"),
    "olmo3": Layout("olmo2"),
    "qwen3_vl": Layout("qwen3vl"),
    "qwen3_vl_moe": Layout("qwen3vlmoe"),
    "deepseek": Layout("deepseek"),
    "falcon": Layout("falcon", fused_qkv=True),
    "gemma3_text": Layout("gemma3"),
    "glm": Layout("chatglm", fused_qkv=True, fused_gate_up=True),
    "chatglm": Layout("chatglm", fused_qkv=True, fused_gate_up=True),
    "glm4": Layout("glm4", fused_gate_up=True),
    "gpt2": Layout("gpt2", fused_qkv=True),
    "gpt_neox": Layout("gptneox", fused_qkv=True),
    "gpt_oss": Layout("gpt-oss"),
    "minimax_m2": Layout("minimax-m2"),
    "mpt": Layout("mpt", fused_qkv=True),
    "phi": Layout("phi2", fused_qkv=True),
    "phi3": Layout("phi3", fused_qkv=True, fused_gate_up=True),
    "qwen": Layout("qwen", fused_qkv=True),
    "qwen3_5": Layout("qwen35"),
    "qwen3_5_text": Layout("qwen35"),
    "qwen3_5_moe": Layout("qwen35moe"),
    "qwen3_5_moe_text": Layout("qwen35moe"),
}  # fmt: skip
"""The layout of every model type whose conversion is known here, by Hugging Face's ``model_type``."""

_OUTSIDE = {
    "embed_tokens": "token_embd",
    "embed_positions": "position_embd",
    "embed_norm": "token_embd_norm",
    "lm_head": "output",
    "norm": "output_norm",
}
_INSIDE = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.gate.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.experts.*.gate_proj": "ffn_gate_exps",
    "mlp.experts.*.up_proj": "ffn_up_exps",
    "mlp.experts.*.down_proj": "ffn_down_exps",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.A_log": "ssm_a.",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "mixer.in_proj": "ssm_in",
    "mixer.x_proj": "ssm_x",
    "mixer.dt_proj": "ssm_dt",
    "mixer.dt_bias": "ssm_dt.bias",
    "mixer.dt_layernorm": "ssm_dt_norm",
    "mixer.b_layernorm": "ssm_b_norm",
    "mixer.c_layernorm": "ssm_c_norm",
    "mixer.A_log": "ssm_a.",
    "mixer.D": "ssm_d.",
    "mixer.norm": "ssm_norm",
    "mixer.out_proj": "ssm_out",
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
}
_CONVOLUTIONS = {
    "linear_attn.conv1d": "ssm_conv1d",
    "mixer.conv1d": "ssm_conv1d",
    "conv.conv": "shortconv.conv",
}
_ELSEWHERE = {
    "self_attn.kv_b_proj": "attn_k_b",
    "self_attn.gate_proj": "attn_q",
    "linear_attn.in_proj_qkvz": "attn_qkv",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
"""Modules whose weight lies inside, or in front of, another one's tensor."""
_SUFFIX = re.compile(r"\.(weight|bias)$")


def layout_of(spec: ModelSpec) -> Layout:
    """How llama.cpp writes the architecture.

    Raises:
        UnsupportedError: its conversion isn't known here.
    """
    layout = LAYOUTS.get(spec.model_type or "")
    if layout is None:
        raise UnsupportedError(
            f"how llama.cpp stores the model type {spec.model_type!r} is not known",
            where="--weight-dtype",
            hint=did_you_mean(spec.model_type or "", LAYOUTS),
        )
    return layout


def gguf_name(module: str, layout: Layout) -> str:
    """The tensor in which llama.cpp stores the weight of a module (``self_attn.q_proj``), without ``blk.N`` in front.

    Where it splits a matrix in two (MLA's up-projection, a delta net's inputs) the first of them.

    Raises:
        UnsupportedError: what it is called isn't known here.
    """
    name = {**_OUTSIDE, **_INSIDE, **_CONVOLUTIONS, **_ELSEWHERE}.get(module)
    if name is None:
        raise UnsupportedError(f"what llama.cpp calls {module!r} is not known", where="--weight-dtype")
    if layout.fused_qkv and name in ("attn_q", "attn_k", "attn_v"):
        name = "attn_qkv"
    if layout.fused_gate_up and name == "ffn_gate":
        name = "ffn_up"
    return f"{name}.weight"


def gguf_shape(spec: ModelSpec) -> GgufShape:
    """What the choice of types depends on: heads of the first layer, layers, experts."""
    first = spec.blocks[spec.order[0]].mixer
    attention = next((mixer for mixer in first if isinstance(mixer, (Attention, LatentAttention))), None)
    # llama.cpp keeps MLA as attention with a single KV head, the latent.
    kv_heads = 1 if isinstance(attention, LatentAttention) else attention.kv_heads if attention else 0
    experts = [
        ffn.experts for _, _, block in spec.each_block() for ffn in block.ffn if isinstance(ffn, MixtureOfExperts)
    ]
    heads = attention.heads if attention else 0
    return GgufShape(layout_of(spec).architecture, spec.depth, heads, kv_heads, max(experts, default=0))


def gguf_tensors(spec: ModelSpec, *, rope_factors: int = 0) -> list[GgufTensor]:
    """The tensors of a model under GGUF's names, in ggml's order of dimensions.

    Args:
        spec: the model.
        rope_factors: elements of ``rope_freqs``, half the head dim, where the model's rotary embedding is scaled by
            frequency (Llama 3.1 and later).

    Raises:
        UnsupportedError: an architecture or a tensor whose conversion isn't known here.
    """
    layout = layout_of(spec)
    tensors = [
        _renamed(tensor, _OUTSIDE, "")
        for tensor in (*embedding_tensors(spec), *stack_tensors(spec))
        for _ in range(tensor.count)  # a norm's scale and its shift
    ]
    if rope_factors:
        tensors.append(GgufTensor("rope_freqs.weight", (rope_factors,)))
    for index, name in enumerate(spec.order):
        block = spec.blocks[name]
        head_parts = [mixer for mixer in block.mixer if isinstance(mixer, LatentAttention)]
        layer = list(_layer(block_tensors(block, spec), head_parts))
        if layout.fused_qkv:
            layer = _fused(layer, ("attn_q", "attn_k", "attn_v"), "attn_qkv")
        if layout.fused_gate_up:
            layer = _fused(layer, ("ffn_gate", "ffn_up"), "ffn_up")
        tensors += [GgufTensor(f"blk.{index}.{tensor.name}", tensor.shape) for tensor in layer]
    return tensors


def _layer(tensors: Sequence[Tensor], latent: Sequence[LatentAttention]) -> Iterator[GgufTensor]:
    """One layer's tensors without the ``blk.N`` in front."""
    by_name = {tensor.name: tensor for tensor in tensors}
    for tensor in tensors:
        module = _SUFFIX.sub("", tensor.name)
        if module == "norms":
            for number in range(tensor.count):
                yield GgufTensor(f"layer_{number}_norm.weight", tensor.shape)
        elif module == "self_attn.kv_b_proj" and latent:
            yield from _split_kv_b(latent[0])
        elif module in _CONVOLUTIONS:
            suffix = _SUFFIX.search(tensor.name)
            channels, kernel = tensor.shape[0], tensor.shape[-1]
            shape = (channels,) if suffix and suffix[1] == "bias" else (kernel, channels)
            yield GgufTensor(f"{_CONVOLUTIONS[module]}{suffix[0] if suffix else ''}", shape)
        elif module == "mlp.shared_expert_gate":
            yield GgufTensor("ffn_gate_inp_shexp.weight", (tensor.shape[1],))
        elif module == "self_attn.gate_proj":
            continue  # it lies in attn_q, row by row beside the queries
        elif module == "self_attn.q_proj" and "self_attn.gate_proj.weight" in by_name:
            gate = by_name["self_attn.gate_proj.weight"]
            yield GgufTensor("attn_q.weight", (tensor.shape[1], tensor.shape[0] + gate.shape[0]))
        elif module == "linear_attn.in_proj_qkvz":
            rows, columns = tensor.shape
            channels = by_name["linear_attn.conv1d.weight"].shape[0]
            yield GgufTensor("attn_qkv.weight", (columns, channels))
            yield GgufTensor("attn_gate.weight", (columns, rows - channels))
        else:
            yield _renamed(tensor, _INSIDE, "experts" if tensor.count > 1 else "")


def _renamed(tensor: Tensor, names: dict[str, str], stacked: str) -> GgufTensor:
    module = _SUFFIX.sub("", tensor.name)
    if module not in names:
        raise UnsupportedError(f"what llama.cpp calls {tensor.name!r} is not known", where="--weight-dtype")
    suffix = _SUFFIX.search(tensor.name)
    name = names[module]
    # Names with a dot are whole; sinks are a weight to llama.cpp.
    whole = name.rstrip(".") if "." in name and not suffix else f"{name}{suffix[0] if suffix else '.weight'}"
    shape = tuple(reversed(tensor.shape))
    return GgufTensor(whole, (*shape, tensor.count) if stacked else shape)


def _split_kv_b(mixer: LatentAttention) -> Iterator[GgufTensor]:
    """MLA's up-projection as two stacks of heads, so that keys can be absorbed into the queries."""
    yield GgufTensor("attn_k_b.weight", (mixer.qk_nope_head_dim, mixer.kv_lora_rank, mixer.heads))
    yield GgufTensor("attn_v_b.weight", (mixer.kv_lora_rank, mixer.v_head_dim, mixer.heads))


def _fused(tensors: list[GgufTensor], parts: tuple[str, ...], name: str) -> list[GgufTensor]:
    """The tensors with `parts` put on top of one another, weights and biases each."""
    for suffix in ("weight", "bias"):
        found = [tensor for tensor in tensors if tensor.name in {f"{part}.{suffix}" for part in parts}]
        if len(found) == len(parts):
            rows = sum(tensor.shape[-1] for tensor in found)
            tensors = [tensor for tensor in tensors if tensor not in found]
            tensors.append(GgufTensor(f"{name}.{suffix}", (*found[0].shape[:-1], rows)))
    return tensors


@dataclass(frozen=True, slots=True)
class GgufWeights:
    """A model in a mix: every tensor with its type.

    Args:
        tensors: the tensors and their types.
    """

    tensors: tuple[tuple[GgufTensor, GgmlType], ...]

    @property
    def total(self) -> int:
        """Bytes of all tensors, without headers and padding."""
        return sum(self.bytes_by_type().values())

    @property
    def elements(self) -> int:
        """Elements of all tensors: what llama.cpp prints as parameters."""
        return sum(tensor.elements for tensor, _ in self.tensors)

    @property
    def bits_per_weight(self) -> Fraction:
        """Bits per weight = 8 · bytes / elements."""
        return Fraction(8 * self.total, self.elements)

    def bytes_by_type(self) -> dict[str, int]:
        """Bytes of the tensors in each ggml type."""
        sums: defaultdict[str, int] = defaultdict(int)
        for tensor, ggml in self.tensors:
            sums[ggml.name] += ggml.bytes_for(tensor.rows, tensor.columns)
        return dict(sums)


def gguf_weights(spec: ModelSpec, mix: GgufMix, *, rope_factors: int = 0) -> GgufWeights:
    """The weights of a model as llama-quantize makes them from its conversion.

    Args:
        spec: the model.
        mix: the mix of types.
        rope_factors: see `gguf_tensors`.

    Raises:
        UnsupportedError: an architecture whose conversion isn't known, or a row that no type can store.
    """
    return GgufWeights(tuple(quantise_types(gguf_tensors(spec, rope_factors=rope_factors), gguf_shape(spec), mix)))


def unexplained_elements(spec: ModelSpec, file: GgufFile) -> int:
    """Elements of a file's tensors that the model doesn't have; below 0: that the file lacks.

    Rotary factors and MTP layers, which stand behind the model's own layers, are left out. Anything but 0 says that the
    file holds another model than its metadata describes, or one that was changed.

    Args:
        spec: the model that the file's metadata describes.
        file: its header.
    """
    expected = sum(tensor.elements for tensor in gguf_tensors(spec))
    found = sum(
        tensor.elements
        for tensor in file.tensors
        if not tensor.name.startswith("rope_") and GgufTensor(tensor.name, tensor.shape).layer < spec.depth
    )
    return found - expected
