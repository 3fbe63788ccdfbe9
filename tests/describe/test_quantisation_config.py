"""Which scheme each module gets, from the configurations that published checkpoints carry."""

import fnmatch
import json
from pathlib import Path
from typing import Any

import pytest

from capplan.describe.formats import BF16, FP8_E4M3, FP16, FP32, INT8, UE8M0
from capplan.describe.quantisation import LINEAR_COMPONENTS, QuantisationPlan, default_plan
from capplan.describe.quantisation_config import read_quantisation
from capplan.describe.weight_schemes import (
    FP8_BLOCK,
    Awq,
    BitsAndBytesFourBit,
    Gptq,
    Mxfp4,
    Nvfp4,
    PackQuantized,
    Plain,
    ScaledEightBit,
    WeightScheme,
)
from capplan.errors import InvalidFileError, UnsupportedError

CONFIGS = Path(__file__).parents[1] / "data" / "quantisation_configs"
STATIC_FP8 = ScaledEightBit(FP8_E4M3, "tensor", activation_scale=FP32)
BF16_PLAIN = Plain(BF16)
MATRIX = (64, 64)


def plan_of(quantization_config: dict[str, Any], **config: Any) -> QuantisationPlan:
    return read_quantisation({**config, "quantization_config": quantization_config}, where="config.json")


def modelopt(name: str) -> tuple[dict[str, Any], QuantisationPlan]:
    data = json.loads((CONFIGS / f"nvidia--{name}.json").read_text())
    return data["quantization"], read_quantisation({}, where="config.json", hf_quant_config=data)


# (checkpoint, layers, module in the checkpoint's naming, module in the inventory's naming, component)
NAMED = [
    (
        "DeepSeek-V3.1-NVFP4",
        61,
        "model.layers.{}.self_attn.q_a_proj",
        "model.layers.{}.self_attn.q_a_proj",
        "attention",
    ),
    ("DeepSeek-V3.1-NVFP4", 61, "model.layers.{}.self_attn.o_proj", "model.layers.{}.self_attn.o_proj", "attention"),
    (
        "DeepSeek-V3.2-NVFP4",
        61,
        "model.layers.{}.self_attn.indexer.wk",
        "model.layers.{}.self_attn.indexer.wk",
        "indexer",
    ),
    (
        "GLM-5.1-NVFP4",
        78,
        "model.layers.{}.mlp.experts.3.up_proj",
        "model.layers.{}.mlp.experts.*.up_proj",
        "experts_routed",
    ),
    (
        "GLM-5.1-NVFP4",
        78,
        "model.layers.{}.mlp.shared_experts.up_proj",
        "model.layers.{}.mlp.shared_experts.up_proj",
        "mlp",
    ),
    ("GLM-5.1-NVFP4", 78, "model.layers.{}.mlp.up_proj", "model.layers.{}.mlp.up_proj", "mlp"),
    (
        "Kimi-K2.6-NVFP4",
        61,
        "language_model.model.layers.{}.self_attn.o_proj",
        "model.layers.{}.self_attn.o_proj",
        "attention",
    ),
    (
        "Kimi-K2.6-NVFP4",
        61,
        "language_model.model.layers.{}.mlp.experts.0.down_proj",
        "model.layers.{}.mlp.experts.*.down_proj",
        "experts_routed",
    ),
    (
        "NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4",
        52,
        "backbone.layers.{}.mixer.q_proj",
        "model.layers.{}.self_attn.q_proj",
        "attention",
    ),
    (
        "NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4",
        52,
        "backbone.layers.{}.mixer.in_proj",
        "model.layers.{}.mixer.in_proj",
        "linear_mixer",
    ),
    (
        "NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4",
        52,
        "backbone.layers.{}.mixer.experts.7.up_proj",
        "model.layers.{}.mlp.experts.*.up_proj",
        "experts_routed",
    ),
    (
        "Qwen3.5-397B-A17B-NVFP4",
        60,
        "model.language_model.layers.{}.linear_attn.in_proj_z",
        "model.layers.{}.linear_attn.in_proj_z",
        "linear_mixer",
    ),
    (
        "Qwen3.5-397B-A17B-NVFP4",
        60,
        "model.language_model.layers.{}.mlp.shared_expert.down_proj",
        "model.layers.{}.mlp.shared_experts.down_proj",
        "experts_shared",
    ),
    (
        "Qwen3.5-397B-A17B-NVFP4",
        60,
        "model.language_model.layers.{}.mlp.experts.1.down_proj",
        "model.layers.{}.mlp.experts.*.down_proj",
        "experts_routed",
    ),
    ("Qwen3-235B-A22B-NVFP4", 94, "model.layers.{}.self_attn.k_proj", "model.layers.{}.self_attn.k_proj", "attention"),
]


@pytest.mark.parametrize(("checkpoint", "layers", "theirs", "ours", "component"), NAMED)
def test_exclude_lists_mean_what_fnmatch_says_of_the_checkpoints_own_names(
    checkpoint: str, layers: int, theirs: str, ours: str, component: str
) -> None:
    config, plan = modelopt(checkpoint)
    for layer in range(layers):
        excluded = any(fnmatch.fnmatchcase(theirs.format(layer), pattern) for pattern in config["exclude_modules"])
        scheme = plan.scheme_for(ours.format(layer), component, MATRIX)
        assert isinstance(scheme, Plain) == excluded, layer


def test_layers_listed_one_by_one_have_their_own_algorithm() -> None:
    config, plan = modelopt("Qwen3.6-27B-NVFP4")
    schemes = {"FP8": STATIC_FP8, "W4A16_NVFP4": Nvfp4()}
    for name, layer in config["quantized_layers"].items():
        assert plan.scheme_for(name.replace("language_model.", ""), "mlp", MATRIX) == schemes[layer["quant_algo"]]
    assert plan.scheme_for("model.layers.0.linear_attn.in_proj_b", "linear_mixer", MATRIX) == BF16_PLAIN
    assert plan.scheme_for("lm_head", "head", MATRIX) == Nvfp4()
    assert plan.kv_cache == "fp8_e4m3"


def test_experts_listed_by_their_stack() -> None:
    _, plan = modelopt("DeepSeek-V4-Flash-NVFP4")
    assert plan.scheme_for("model.layers.3.mlp.experts.*.up_proj", "experts_routed", MATRIX) == Nvfp4(True)
    assert plan.scheme_for("model.layers.3.mlp.shared_experts.up_proj", "experts_shared", MATRIX) == BF16_PLAIN
    assert plan.scheme_for("model.layers.3.self_attn.o_b_proj", "attention", MATRIX) == BF16_PLAIN
    assert plan.kv_cache is None


@pytest.mark.parametrize(
    ("config", "scheme"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True}, Gptq(4, 128)),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "checkpoint_format": "gptq_v2"}, Gptq(8, None)),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}, Awq(4, 64)),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128, "version": "GEMM"}, Awq(4, 128)),
        ({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}, FP8_BLOCK),
        ({"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "static"}, STATIC_FP8),
        ({"quant_method": "fp8"}, ScaledEightBit(FP8_E4M3, "tensor")),
        ({"quant_method": "fbgemm_fp8"}, ScaledEightBit(FP8_E4M3, "channel", activation_scale=FP32)),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, ScaledEightBit(INT8, "channel")),
        (
            {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
            BitsAndBytesFourBit("nf4", True),
        ),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, ScaledEightBit(FP8_E4M3, "group", UE8M0, 32)),
    ],
)
def test_methods(config: dict[str, Any], scheme: WeightScheme) -> None:
    plan = plan_of(config)
    for component in LINEAR_COMPONENTS:
        assert plan.scheme_for(f"model.layers.0.{component}.proj", component, MATRIX) == scheme
    assert plan.scheme_for("lm_head", "head", MATRIX) == BF16_PLAIN
    assert plan.scheme_for("model.layers.0.mlp.gate", "router", MATRIX) == BF16_PLAIN
    assert plan.scheme_for("model.embed_tokens", "embedding", MATRIX) == BF16_PLAIN
    assert plan.scheme_for("model.layers.0.self_attn.q_proj", "attention", (64,)) == BF16_PLAIN


def test_gpt_oss_quantises_its_experts_alone() -> None:
    skipped = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    plan = plan_of({"quant_method": "mxfp4", "modules_to_not_convert": skipped})
    assert plan.scheme_for("model.layers.7.mlp.experts.*.gate_up_proj", "experts_routed", MATRIX) == Mxfp4()
    assert plan.scheme_for("model.layers.7.self_attn.q_proj", "attention", MATRIX) == BF16_PLAIN


def test_a_plain_name_means_a_component_of_the_path_and_not_a_part_of_a_word() -> None:
    plan = plan_of({"quant_method": "fp8", "modules_to_not_convert": ["gate", "visual", "model.layers.1.self_attn"]})
    assert plan.scheme_for("model.layers.0.mlp.gate_proj", "mlp", MATRIX) != BF16_PLAIN
    assert plan.scheme_for("model.visual.blocks.3.qkv", "attention", MATRIX) == BF16_PLAIN
    assert plan.scheme_for("model.layers.1.self_attn.q_proj", "attention", MATRIX) == BF16_PLAIN
    assert plan.scheme_for("model.layers.11.self_attn.q_proj", "attention", MATRIX) != BF16_PLAIN


KIMI = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
    "config_groups": {
        "group_0": {
            "input_activations": None,
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4,
                "type": "int",
                "strategy": "group",
                "group_size": 32,
                "symmetric": True,
                "dynamic": False,
                "actorder": None,
            },
        }
    },
}


def test_compressed_tensors_regular_expressions() -> None:
    plan = read_quantisation({"text_config": {"quantization_config": KIMI, "torch_dtype": "float16"}}, where="c")
    int4 = PackQuantized(4, 32, scale=FP16)
    assert plan.scheme_for("model.layers.1.mlp.experts.*.gate_proj", "experts_routed", MATRIX) == int4
    assert plan.scheme_for("model.layers.0.mlp.gate_proj", "mlp", MATRIX) == Plain(FP16)
    assert plan.scheme_for("model.layers.1.self_attn.o_proj", "attention", MATRIX) == Plain(FP16)


def group(scheme: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        **more.pop("top", {}),
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": scheme, **more}},
    }


@pytest.mark.parametrize(
    ("config", "scheme"),
    [
        (
            group({"num_bits": 8, "type": "float", "strategy": "channel"}, format="float-quantized"),
            ScaledEightBit(FP8_E4M3, "channel", BF16),
        ),
        (
            group(
                {"num_bits": 8, "type": "float", "strategy": "tensor"},
                format="float-quantized",
                input_activations={"dynamic": False},
            ),
            ScaledEightBit(FP8_E4M3, "tensor", BF16, activation_scale=BF16),
        ),
        (
            group({"num_bits": 8, "type": "int", "strategy": "channel"}, top={"format": "int-quantized"}),
            ScaledEightBit(INT8, "channel", BF16),
        ),
        (
            group(
                {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": "128x128"},
                format="float-quantized",
            ),
            ScaledEightBit(FP8_E4M3, "block", BF16),
        ),
        (
            group(
                {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": False},
                format="pack-quantized",
            ),
            PackQuantized(4, 128, symmetric=False),
        ),
        (
            group(
                {"num_bits": 4, "type": "float", "group_size": 16},
                format="nvfp4-pack-quantized",
                input_activations={"dynamic": "local"},
            ),
            Nvfp4(True),
        ),
        (group({"num_bits": 4, "type": "float", "group_size": 32}, format="mxfp4-pack-quantized"), Mxfp4()),
    ],
)
def test_compressed_tensors_formats(config: dict[str, Any], scheme: WeightScheme) -> None:
    plan = plan_of(config)
    granularity = getattr(scheme, "granularity", "")
    got = plan.scheme_for("model.layers.0.mlp.up_proj", "mlp", MATRIX)
    if granularity in ("tensor", "channel"):  # the block's side means nothing there
        assert (got.format, got.granularity, got.scale, got.activation_scale) == (  # type: ignore[union-attr]
            scheme.format,  # type: ignore[union-attr]
            granularity,
            scheme.scale,  # type: ignore[union-attr]
            scheme.activation_scale,  # type: ignore[union-attr]
        )
    else:
        assert got == scheme


def test_fp4_experts_of_deepseek_v4() -> None:
    config = {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}
    plan = plan_of(config, expert_dtype="fp4")
    assert plan.scheme_for("model.layers.3.mlp.experts.*.up_proj", "experts_routed", MATRIX) == Mxfp4()
    assert plan.scheme_for("model.layers.3.self_attn.q_b_proj", "attention", MATRIX) == ScaledEightBit(
        FP8_E4M3, "block", UE8M0
    )
    # DeepSeek-V3.2 rounds its scales to powers of two, too, and stores them in fp32.
    assert plan_of(config).scheme == FP8_BLOCK


def test_gptq_dynamic_rules() -> None:
    dynamic = {r"-:.*\.mlp\.down_proj": {}, r"+:model\.layers\.[0-3]\..*": {"bits": 8, "group_size": 32}}
    plan = plan_of({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": dynamic, "lm_head": True})
    assert plan.scheme_for("model.layers.9.mlp.down_proj", "mlp", MATRIX) == BF16_PLAIN
    assert plan.scheme_for("model.layers.3.mlp.up_proj", "mlp", MATRIX) == Gptq(8, 32)
    assert plan.scheme_for("model.layers.9.mlp.up_proj", "mlp", MATRIX) == Gptq(4, 128)
    assert plan.scheme_for("lm_head", "head", MATRIX) == Gptq(4, 128)


def test_gptq_only_some_modules() -> None:
    listed = [["self_attn.k_proj", "self_attn.v_proj"], ["mlp.up_proj"]]
    plan = plan_of({"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": listed})
    assert plan.scheme_for("model.layers.9.mlp.up_proj", "mlp", MATRIX) == Gptq(4, 128)
    assert plan.scheme_for("model.layers.9.mlp.down_proj", "mlp", MATRIX) == BF16_PLAIN


def test_no_configuration_is_no_quantisation() -> None:
    plan = read_quantisation({"dtype": "float16"}, where="config.json")
    assert plan.scheme_for("model.layers.0.mlp.up_proj", "mlp", MATRIX) == Plain(FP16)
    assert not plan.depends_on_layer


@pytest.mark.parametrize(
    "config",
    [
        {"quant_method": "aqlm"},
        {},
        {"quant_method": "gptq", "bits": 5},
        {"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"},
        {"quant_method": "awq", "bits": 4, "version": "gemv_fast"},
        {"quant_method": "fp8", "weight_block_size": [128, 64]},
        {"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"},
        {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP3"},
        {"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}},
        group({"num_bits": 4, "type": "int"}, format="marlin-24"),
        group({"num_bits": 4, "type": "int", "strategy": "token"}, format="pack-quantized"),
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "fp5"},
        {"quant_method": "fp8", "modules_to_not_convert": [r"re:(a)\1"]},
    ],
)
def test_what_is_not_known_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError) as caught:
        plan_of(config)
    assert caught.value.where.startswith("config.json")


@pytest.mark.parametrize(
    "config",
    [
        [],
        {"quant_method": 4},
        {"quant_method": "gptq"},
        {"quant_method": "gptq", "bits": "4"},
        {"quant_method": "gptq", "bits": 4, "group_size": 0},
        {"quant_method": "fp8", "weight_block_size": [128]},
        {"quant_method": "fp8", "modules_to_not_convert": "lm_head"},
        {"quant_method": "modelopt"},
        {"quant_method": "bitsandbytes"},
        {"quant_method": "compressed-tensors", "config_groups": []},
    ],
)
def test_malformed_values_are_errors_of_the_file(config: Any) -> None:
    with pytest.raises(InvalidFileError) as caught:
        plan_of(config)
    assert caught.value.where.startswith("config.json")


def test_experts_in_different_formats_are_refused() -> None:
    layers = {
        "model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "FP8"},
        "model.layers.0.mlp.experts.1.up_proj": {"quant_algo": "NVFP4"},
    }
    with pytest.raises(UnsupportedError, match="different formats"):
        plan_of({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})


def test_mxfp4_by_name_covers_the_experts_of_a_model_that_has_them() -> None:
    assert default_plan(Mxfp4()).scheme_for("model.layers.0.mlp.up_proj", "mlp", MATRIX) == Mxfp4()
    experts = default_plan(Mxfp4(), has_experts=True)
    assert experts.scheme_for("model.layers.0.mlp.up_proj", "mlp", MATRIX) == BF16_PLAIN
    assert experts.scheme_for("model.layers.0.mlp.experts.*.up_proj", "experts_routed", MATRIX) == Mxfp4()
