"""Bad safetensors headers and indexes, GGUF files and quantisation configurations, generated from a seed.

A case begins as a sound file and has some things made wrong, or is hostile by design: lengths beyond the file, counts
without end, nesting, patterns that backtrack. Nothing here knows how capplan checks its inputs.
"""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUANTISATION = Path(__file__).parents[1] / "data" / "quantisation_configs"
HUGE = (1 << 63) - 1
NUMBERS = [0, 1, -1, 2, 7, 255, 1 << 16, 1 << 31, 1 << 32, 1 << 40, HUGE, 1 << 64, 10**30]
WRONG = [None, True, -1, 0, 1.5, 10**30, "", "x", "4", [], {}, [None], {"a": {}}, [[[]]], "\x00", "é" * 50]
PATTERNS = ["re:(a+)+$", "re:(.*a){30}", "re:((.*)*)*x", "re:" + "(" * 400, "re:[", "re:a{9999}", "re:" + ".*" * 200, "*" * 300,
            "[" * 50, "model.layers.*.*.*.*.*x", "re:(?<=x)y", "re:\\", "." * 300, "re:(?!.*a)b|c", "**[!-]**", "re:^^^"]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """What to read (``safetensors``, ``index``, ``gguf``, ``quantisation``), and the bytes of it."""

    kind: str
    data: bytes


def cases(seed: int, count: int) -> Iterator[Case]:
    """`count` cases of all kinds in turn."""
    rng = random.Random(seed)
    makers = (safetensors_case, gguf_case, quantisation_case, index_case)
    for index in range(count):
        yield makers[index % len(makers)](rng)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, cut off, repeated or put in."""
    buffer = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(buffer) + 1) if buffer else 0
        match rng.randrange(5):
            case 0 if buffer:
                buffer[min(at, len(buffer) - 1)] = rng.randrange(256)
            case 1:
                del buffer[at:]
            case 2:
                buffer[at:at] = rng.randbytes(rng.randint(1, 16))
            case 3:
                buffer[at : at + 8] = struct.pack("<Q", rng.choice(NUMBERS) % (1 << 64))
            case _:
                buffer[at:at] = buffer[at : at + rng.randint(1, 40)]
    return bytes(buffer)


def safetensors_case(rng: random.Random) -> Case:
    """A header of a few tensors, wrong in one place or damaged."""
    if rng.randrange(40) == 0:
        return Case("safetensors", hostile_header(rng))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}} if rng.random() < 0.5 else {}
    position = 0
    for index in range(rng.randint(0, 6)):
        shape = [rng.randint(0, 9) for _ in range(rng.randint(0, 3))]
        dtype, bits = rng.choice([("F32", 32), ("BF16", 16), ("F8_E4M3", 8), ("I64", 64), ("BOOL", 8), ("F4", 4)])
        size = bits // 2
        for side in shape:
            size = size * side
        size = size // 4
        header[f"model.layers.{index}.w"] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [position, position + size],
        }
        position += size
    if header and rng.random() < 0.7:
        spoil(rng, header)
    text = json.dumps(header, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        text = text.replace(b'"dtype"', b'"dtype":"F32","dtype"', 1)
    data = struct.pack("<Q", len(text)) + text + bytes(position)
    return Case("safetensors", damaged(rng, data) if rng.random() < 0.4 else data)


def hostile_header(rng: random.Random) -> bytes:
    """A header that is large, deep, or says that it is."""
    match rng.randrange(7):
        case 0:
            return struct.pack("<Q", rng.choice(NUMBERS) % (1 << 64)) + b"{}"
        case 1:
            text = b"[" * 200_000
        case 2:
            text = b'{"a":' * 100_000
        case 3:
            text = b'{"__metadata__":{"a":"' + b"x" * 2_000_000 + b'"}}'
        case 4:
            entry = '"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
            text = ("{" + ",".join(entry % number for number in range(150_000)) + "}").encode()
        case 5:
            text = b'{"a":{"dtype":"U8","shape":[' + b"1," * 500_000 + b'1],"data_offsets":[0,1]}}'
        case _:
            text = b'{"a":{"dtype":"U8","shape":[' + b"9" * 1_000_000 + b'],"data_offsets":[0,1]}}'
    return struct.pack("<Q", len(text)) + text


def spoil(rng: random.Random, data: Any) -> None:
    """One value somewhere inside replaced by something wrong."""
    while True:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        if not keys:
            return
        key = rng.choice(keys)
        inner = data[key]
        if isinstance(inner, (dict, list)) and inner and rng.random() < 0.75:
            data = inner
            continue
        if isinstance(data, dict) and rng.random() < 0.15:
            del data[key]
        elif isinstance(inner, int) and rng.random() < 0.6:
            data[key] = rng.choice([*NUMBERS, inner + 1, inner - 1])
        else:
            data[key] = copy.deepcopy(rng.choice(WRONG))
        return


def index_case(rng: random.Random) -> Case:
    """An index of shards, spoilt or damaged."""
    if rng.randrange(40) == 0:
        hostile = [b"[" * 100_000, b'{"weight_map":' * 50_000, b'{"metadata":' + b"[[],[]," * 300_000]
        return Case("index", rng.choice(hostile))
    odd = ["../m.safetensors", "/m.safetensors", "m.bin", ""]
    names = [rng.choice(odd) if rng.random() < 0.1 else "m-1.safetensors" for _ in range(4)]
    index: dict[str, Any] = {
        "metadata": {"total_size": rng.choice([100, *NUMBERS])},
        "weight_map": {f"w{number}": name for number, name in enumerate(names)},
    }
    if rng.random() < 0.6:
        spoil(rng, index)
    data = json.dumps(index).encode()
    return Case("index", damaged(rng, data) if rng.random() < 0.5 else data)


def text(value: bytes) -> bytes:
    """A GGUF string."""
    return struct.pack("<Q", len(value)) + value


def gguf_case(rng: random.Random) -> Case:
    """A small GGUF file, damaged, or with a length or a count that can't be."""
    if rng.randrange(40) == 0:
        return Case("gguf", hostile_gguf(rng))
    u32 = lambda value: struct.pack("<I", value % (1 << 32))  # noqa: E731
    sometimes = 0.15 * (rng.random() < 0.7)  # a third of the files are sound until they are damaged

    def pick(usual: int) -> int:
        return rng.choice(NUMBERS) if rng.random() < sometimes else usual

    architecture = rng.choice([b"llama", b"qwen3", b"gemma2", b"deepseek2", b"mamba", b"x"])
    sizes = {b"block_count": 1, b"embedding_length": 64, b"feed_forward_length": 128, b"attention.head_count": 4,
             b"attention.head_count_kv": 2, b"attention.key_length": 16, b"attention.sliding_window": 32,
             b"context_length": 512, b"ssm.inner_size": 128, b"ssm.state_size": 16, b"ssm.conv_kernel": 4}  # fmt: skip
    entries = [text(b"general.architecture") + u32(8) + text(architecture)]
    entries += [text(architecture + b"." + key) + u32(pick(4)) + u32(pick(value)) for key, value in sizes.items()]
    entries += [
        text(b"tokenizer.ggml.tokens") + u32(9) + u32(8) + struct.pack("<Q", 3) + text(b"a") * 3,
        text(b"x.array") + u32(9) + u32(pick(4)) + struct.pack("<Q", pick(2) % (1 << 64)) + bytes(8),
    ]
    rng.shuffle(entries)
    entries = entries[: pick(len(entries)) % 100]
    infos, offset = [], 0
    for name, rows in ((b"token_embd.weight", 100), (b"blk.0.attn_k.weight", 32), (b"blk.0.attn_q.weight", 64)):
        shape = struct.pack("<QQ", pick(64) % (1 << 64), pick(rows) % (1 << 64))
        infos.append(text(name) + u32(2) + shape + u32(pick(1)) + struct.pack("<Q", pick(offset) % (1 << 64)))
        offset += 2 * 64 * rows
    infos = infos[: pick(3) % 4]
    counts = struct.pack("<QQ", pick(len(infos)) % (1 << 64), pick(len(entries)) % (1 << 64))
    head = b"GGUF" + u32(pick(3)) + counts + b"".join(entries + infos)
    data = head + bytes(-len(head) % 32) + bytes(pick(offset) % 200_000)
    return Case("gguf", damaged(rng, data) if rng.random() < 0.5 else data)


def hostile_gguf(rng: random.Random) -> bytes:
    """A file whose header is long, or says that it is."""
    u32 = lambda value: struct.pack("<I", value)  # noqa: E731
    match rng.randrange(4):
        case 0:
            entry = text(b"t") + u32(9) + u32(8) + struct.pack("<Q", 1_500_000) + bytes(8 * 1_500_000)
        case 1:
            entry = text(b"t") + u32(9) + u32(8) + struct.pack("<Q", 1 << 50) + bytes(1000)
        case 2:
            entry = text(b"t") + u32(8) + struct.pack("<Q", 1 << 55) + bytes(1000)
        case _:
            entry = text(b"t") + u32(9) + u32(10) + struct.pack("<Q", 400_000) + bytes(8 * 400_000)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry + bytes(64)


SOUND: list[dict[str, Any]] = [
    {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "dynamic": {"-:.*down": {}}},
    {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "modules_to_not_convert": ["visual"]},
    {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "gate"]},
    {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["model.layers.0.self_attn"]},
    {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
    {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "ignore": ["lm_head", "re:.*gate.*"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
            }
        },
    },
    {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.0*"], "group_size": 16},
    {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}},
    },
]


def quantisation_case(rng: random.Random) -> Case:
    """A quantisation configuration with a value spoilt, or with a pattern that is hostile."""
    config = json.loads(json.dumps(rng.choice(SOUND)))
    if rng.randrange(10) == 0:
        config = json.loads(rng.choice(sorted(QUANTISATION.glob("*.json"))).read_text())["quantization"]
        config["quant_method"] = "modelopt"
    match rng.randrange(4):
        case 0:
            config[rng.choice(["ignore", "modules_to_not_convert", "exclude_modules"])] = rng.sample(PATTERNS, 5)
        case 1:
            config["dynamic"] = {rng.choice(["+:", "-:", ""]) + rng.choice(PATTERNS).removeprefix("re:"): {"bits": 8}}
        case _:
            pass
    for _ in range(rng.randint(0, 2)):
        spoil(rng, config)
    outer: Any = {"model_type": "llama", "quantization_config": config}
    match rng.randrange(8):
        case 0:
            outer = {"text_config": outer}
        case 1:
            outer["torch_dtype"] = copy.deepcopy(rng.choice([*WRONG, "float7"]))
        case 2:
            outer = {"hf_quant_config": {"quantization": config}}
        case _:
            pass
    return Case("quantisation", json.dumps(outer).encode())
