"""The model types that capplan reads, and where each one's class defaults come from."""

from __future__ import annotations

NAMES = """
apertus arcee baichuan bamba bert bloom chatglm cohere cohere2 dbrx deepseek deepseek_v2 deepseek_v3 deepseek_v32
deepseek_v4 dots1 ernie4_5 ernie4_5_moe exaone4 falcon falcon_h1 falcon_mamba gemma gemma2 gemma3 gemma3_text
gemma3n_text gemma4 glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite
granitemoe granitemoehybrid hunyuan_v1_dense hunyuan_v1_moe hy_v3 internlm internlm2 internlm3 jamba kimi_k2 kimi_k25
kimi_linear lfm2 lfm2_moe llama llama4 llava longcat_flash mamba mamba2 mimo mimo_v2_flash minicpm minicpm3 minimax
minimax_m2 minimax_m3 minimax_m3_vl ministral3 mistral mistral3 mixtral mllama modernbert mpt nemotron nemotron-nas
nemotron_h olmo olmo2 olmo3 olmo_hybrid olmoe opt orion phi phi3 phimoe qwen qwen2 qwen2_5_vl qwen2_moe qwen3 qwen3_5
qwen3_5_moe qwen3_5_text qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe recurrent_gemma roberta seed_oss smollm3 solar_open
stablelm starcoder2 t5 whisper xlm-roberta arctic grok-1 hunyuan kimi_k3 qwen2_vl step3_text step3p5 step3p7
"""
MODEL_TYPES = NAMES.split()

SAME_AS = {
    "kimi_k2": "deepseek_v3",
    "mimo": "qwen2",
    "minimax_m3": "minimax_m3_vl_text",
}
"""Types without a class in transformers whose own code extends, or whose checkpoints load as, another type's class."""

REMOTE_DEFAULTS: dict[str, tuple[dict[str, object], str]] = {
    "arctic": (
        {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": None,
            "tie_word_embeddings": False,
            "sliding_window": None,
            "num_experts_per_tok": 1,
            "num_local_experts": 8,
            "moe_layer_frequency": 2,
            "parallel_attn_mlp_res": False,
        },
        "configuration_arctic.py of Snowflake/snowflake-arctic-instruct, as kept in vllm-project/vllm "
        "vllm/transformers_utils/configs/arctic.py at 3c8d43f3bba961ad445d44a6de5a7ad3bfaffe6a",
    ),
    "baichuan": (
        {"tie_word_embeddings": False},
        "configuration_baichuan.py, in which the sizes differ by release and this key does not (vllm-project/vllm "
        "vllm/transformers_utils/configs/baichuan.py at 822b46340e609216022a3acf8630d5b40d1b4db3; "
        "Egber1t/Ting-Gong1.0 configuration_baichuan.py at 0f2d0dd6b67a506c4fb23af789e54beaaff73ef0)",
    ),
    "chatglm": (
        {
            "num_layers": 28,
            "padded_vocab_size": 65024,
            "hidden_size": 4096,
            "ffn_hidden_size": 13696,
            "kv_channels": 128,
            "num_attention_heads": 32,
            "seq_length": 2048,
            "rmsnorm": True,
            "post_layer_norm": True,
            "add_bias_linear": False,
            "add_qkv_bias": False,
            "multi_query_attention": False,
            "multi_query_group_num": 1,
        },
        "configuration_chatglm.py of THUDM/chatglm2-6b, as kept in syjjhl/chatglm2-6b at "
        "a5172e3b837cbae04af59d3db7810e166cfa955a",
    ),
    "deepseek": (
        {
            "vocab_size": 102400,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "moe_intermediate_size": 1407,
            "num_hidden_layers": 30,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "n_shared_experts": None,
            "n_routed_experts": None,
            "num_experts_per_tok": None,
            "moe_layer_freq": 1,
            "first_k_dense_replace": 0,
            "tie_word_embeddings": False,
            "attention_bias": False,
        },
        "configuration_deepseek.py of deepseek-ai/deepseek-moe-16b-chat, as kept in vllm-project/vllm "
        "vllm/transformers_utils/configs/deepseek.py at 3a2e75e994a5703101b74bc4a5a6b833dd480b20",
    ),
    "grok-1": (
        {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 32768,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "num_experts_per_tok": 2,
            "num_experts": 8,
            "tie_word_embeddings": True,
        },
        "configuration_grok1.py, as kept in vllm-project/vllm vllm/transformers_utils/configs/grok1.py at "
        "8dbc8997ce3f4621da8e6ddd5dc389f9e403ffd2",
    ),
    "internlm": (
        {
            "vocab_size": 103168,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "tie_word_embeddings": False,
            "bias": True,
        },
        "configuration_internlm.py of internlm/internlm-7b at 96e127d08d851a88cac736a9b091dd953ae1b873",
    ),
    "internlm2": (
        {"num_key_value_heads": None, "tie_word_embeddings": False},
        "configuration_internlm2.py, in which the sizes differ by release (its `bias` is true, every release says "
        "false: without the key none is counted), as kept in verylucky01/MindIE-LLM "
        "examples/atb_models/atb_llm/models/internlm2/config_internlm2.py",
    ),
    "minicpm": (
        {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": None,
            "attention_bias": False,
        },
        "configuration_minicpm.py of openbmb/MiniCPM-2B-sft-bf16, of which copies agree on these keys (not on "
        "tie_word_embeddings), as kept in MindIE atb_models atb_llm/models/minicpm",
    ),
    "orion": (
        {
            "vocab_size": 84608,
            "hidden_size": 4096,
            "intermediate_size": 15360,
            "num_hidden_layers": 40,
            "num_attention_heads": 40,
            "num_key_value_heads": 40,
            "tie_word_embeddings": False,
            "attention_bias": False,
        },
        "configuration_orion.py of OrionStarAI/Orion-14B-Base, as kept in vllm-project/vllm "
        "vllm/transformers_utils/configs/orion.py at 864104dae05d0c45037b959db1eb1e5178162170",
    ),
    "qwen": (
        {
            "vocab_size": 151936,
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "kv_channels": 128,
            "intermediate_size": 22016,
            "no_bias": True,
            "tie_word_embeddings": False,
        },
        "configuration_qwen.py of Qwen/Qwen-7B",
    ),
    "hunyuan": (
        {
            "vocab_size": 290943,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "moe_intermediate_size": None,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": None,
            "attention_head_dim": None,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "mlp_bias": False,
            "use_qk_norm": False,
            "use_cla": False,
            "cla_share_factor": 1,
            "num_experts": 1,
            "use_mixed_mlp_moe": False,
            "num_shared_expert": 1,
            "moe_topk": 1,
            "use_mla": False,
            "moe_layer_num_skipped": 0,
        },
        "configuration_hunyuan.py (HunYuanConfig), as kept in public copies of Tencent's HunyuanVideo text encoder",
    ),
    "step3_text": (
        {
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "num_attention_heads": 64,
            "num_attention_groups": 1,
            "num_hidden_layers": 61,
            "vocab_size": 128815,
            "moe_intermediate_size": 5120,
            "moe_num_experts": 48,
            "moe_top_k": 3,
            "share_expert_dim": 5120,
            "share_q_dim": 2048,
            "head_dim": 256,
            "moe_layers_enum": ",".join(str(layer) for layer in range(4, 60)),
            "tie_word_embeddings": False,
        },
        "configuration_step3.py of stepfun-ai/step3, as kept in vllm-project/vllm "
        "vllm/transformers_utils/configs/step3_vl.py",
    ),
    "nemotron-nas": (
        {"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False},
        "configuration_decilm.py of nvidia/Llama-3_1-Nemotron-51B-Instruct, which extends LlamaConfig and sets its "
        "sizes per block",
    ),
}
"""Class defaults of types that transformers does not know, from the public configuration file of the model."""
