"""How a deployment is started: the options of its engine, in the engine's own words.

vLLM is given the tensor-parallel and data-parallel ranks of a stage apart; SGLang and TensorRT-LLM are given
all ranks as tensor-parallel ones, and how attention is divided among them beside it.

Where prefill and decode run on pools of their own, each server is told its role, and a router stands before both.

Source: vLLM 0.33 vllm/engine/arg_utils.py, docs/features/nixl_connector_usage.md and vllm-project/router; SGLang
0.5.23 sglang/srt/arg_groups/fields and docs/advanced_features/pd_disaggregation.md; TensorRT-LLM
tensorrt_llm/commands/serve.py and docs/source/features/disagg-serving.md (see `capplan.describe.launch_options`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from capplan.errors import UsageError

Options = tuple[tuple[str, str | None], ...]
Role = Literal["both", "prefill", "decode"]
Setting = str | int | float | bool | list[str]

PORTS = {"vllm": 8000, "sglang": 30000, "trtllm": 8000}
"""Where each engine's server listens unless told otherwise."""

ROUTER_PORT = 8080
"""Where the router of two pools listens."""

ROUTER_FILE = "disaggregated.yaml"
"""The file that TensorRT-LLM's router reads."""

_QUANTISED_KV = {"vllm": "fp8", "sglang": "fp8_e4m3", "trtllm": "fp8"}


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What an engine must be told.

    Args:
        engine: which one.
        model: the checkpoint's id or path.
        tp: tensor-parallel ranks.
        pp: pipeline stages.
        dp: data-parallel groups of attention.
        ep: experts divided by number.
        max_model_len: the longest request.
        max_num_seqs: sequences at once.
        max_num_batched_tokens: tokens of a step.
        memory_fraction: the engine's share of device memory.
        kv_cache_dtype: format of the cache; ``auto``: the checkpoint's.
        quantization: a scheme that the engine makes of the weights when it loads them; None: none.
        gpus_per_node: devices of one host.
        drafted: tokens drafted a round; 0: it does not draft.
        draft_model: id or path of what drafts; None: the model's MTP layers.
        role: which of prefill and decode it does.
    """

    engine: str
    model: str
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: bool = False
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    memory_fraction: float
    kv_cache_dtype: str = "auto"
    quantization: str | None = None
    gpus_per_node: int = 8
    drafted: int = 0
    draft_model: str | None = None
    role: Role = "both"

    @property
    def gpus(self) -> int:
        """Devices of a replica."""
        return self.tp * self.pp * self.dp

    @property
    def nodes(self) -> int:
        """Hosts of a replica."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def kv(self) -> str | None:
        """The cache's format as the engine calls it; None: its default."""
        return _QUANTISED_KV[self.engine] if self.kv_cache_dtype.startswith("fp8") else None


@dataclass(frozen=True)
class Command:
    """A command line.

    Args:
        words: the program and what stands before the options.
        options: names with values; None for flags.
        config: keys and values of the YAML file that the command reads beside them; dotted names nest.
        per_host: further options of each host where a replica has several; ``{rank}`` is the host's number and
            ``{leader}`` the first one's address.
        follower: further flags of every host but the first.
        environment: variables; ``{host}`` is the server's own address.
    """

    words: tuple[str, ...]
    options: Options
    config: tuple[tuple[str, Setting], ...] = ()
    per_host: Options = ()
    follower: Options = ()
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def arguments(self) -> list[str]:
        """Every word of the line."""
        words = list(self.words)
        for name, value in self.options:
            words += [name] if value is None else [name, value]
        return words


def launch_command(launch: Launch) -> Command:
    """The command that starts one replica.

    Raises:
        UsageError: an engine whose servers capplan does not start.
    """
    make = _COMMANDS.get(launch.engine)
    if make is None:
        raise UsageError(
            f"no command is known for {launch.engine}", where="--engine", hint=f"one of {', '.join(_COMMANDS)}"
        )
    return make(launch)


def vllm_command(launch: Launch) -> Command:
    """``vllm serve``, on every host of a replica with its number."""
    options: list[tuple[str, str | None]] = [
        ("--tensor-parallel-size", str(launch.tp)),
        *_where(launch.pp > 1, "--pipeline-parallel-size", launch.pp),
        *_where(launch.dp > 1, "--data-parallel-size", launch.dp),
        *([("--enable-expert-parallel", None)] if launch.ep else []),
        *_where(launch.nodes > 1, "--nnodes", launch.nodes),
        ("--max-model-len", str(launch.max_model_len)),
        ("--max-num-seqs", str(launch.max_num_seqs)),
        ("--max-num-batched-tokens", str(launch.max_num_batched_tokens)),
        ("--gpu-memory-utilization", f"{launch.memory_fraction:g}"),
        *_where(launch.kv is not None, "--kv-cache-dtype", launch.kv),
        *_where(launch.quantization is not None, "--quantization", launch.quantization),
        *_where(launch.drafted > 0, "--speculative-config", _vllm_drafts(launch)),
        *_where(launch.role != "both", "--kv-transfer-config", _vllm_transfer(launch)),
    ]
    per_host: Options = (("--node-rank", "{rank}"), ("--master-addr", "{leader}"))
    several = launch.nodes > 1
    follower: Options = (("--headless", None),)
    return Command(
        ("vllm", "serve", launch.model),
        tuple(options),
        per_host=per_host if several else (),
        follower=follower if several else (),
        environment=() if launch.role == "both" else (("VLLM_NIXL_SIDE_CHANNEL_HOST", "{host}"),),
    )


def sglang_command(launch: Launch) -> Command:
    """``python -m sglang.launch_server``, on every host of a replica with its number."""
    ranks = launch.tp * launch.dp
    options: list[tuple[str, str | None]] = [
        ("--model-path", launch.model),
        ("--tp-size", str(ranks)),
        *_where(launch.pp > 1, "--pp-size", launch.pp),
        *_where(launch.dp > 1, "--attn-dp-size", launch.dp),
        *_where(launch.ep, "--ep-size", ranks),
        *_where(launch.nodes > 1, "--nnodes", launch.nodes),
        ("--context-length", str(launch.max_model_len)),
        ("--max-running-requests", str(launch.max_num_seqs * launch.dp)),
        ("--chunked-prefill-size", str(launch.max_num_batched_tokens)),
        ("--mem-fraction-static", f"{launch.memory_fraction:g}"),
        *_where(launch.kv is not None, "--kv-cache-dtype", launch.kv),
        *_where(launch.quantization is not None, "--quantization", launch.quantization),
        *_sglang_drafts(launch),
        *_where(launch.role != "both", "--disaggregation-mode", launch.role),
        *_where(launch.role != "both", "--disaggregation-transfer-backend", "nixl"),
    ]
    per_host: Options = (("--node-rank", "{rank}"), ("--dist-init-addr", "{leader}:20000"))
    words = ("python", "-m", "sglang.launch_server")
    return Command(words, tuple(options), per_host=per_host if launch.nodes > 1 else ())


def trtllm_command(launch: Launch) -> Command:
    """``trtllm-serve``, with what has no option in a YAML file beside it; several hosts are joined by MPI."""
    ranks = launch.tp * launch.dp
    options: list[tuple[str, str | None]] = [
        ("--tp_size", str(ranks)),
        *_where(launch.pp > 1, "--pp_size", launch.pp),
        *_where(launch.ep, "--ep_size", ranks),
        *_where(launch.nodes > 1, "--gpus_per_node", launch.gpus_per_node),
        ("--max_seq_len", str(launch.max_model_len)),
        ("--max_batch_size", str(launch.max_num_seqs)),
        ("--max_num_tokens", str(launch.max_num_batched_tokens)),
        ("--free_gpu_memory_fraction", f"{launch.memory_fraction:g}"),
        ("--enable_chunked_prefill", None),
    ]
    config: list[tuple[str, Setting]] = []
    if launch.kv is not None:
        config.append(("kv_cache_config.dtype", launch.kv))
    if launch.dp > 1:
        config.append(("enable_attention_dp", True))
    if launch.drafted:
        config += [("speculative_config.decoding_type", "MTP"), ("speculative_config.max_draft_len", launch.drafted)]
    if launch.role != "both":
        config += [("cache_transceiver_config.backend", "DEFAULT")]
        config += [("cache_transceiver_config.max_tokens_in_buffer", launch.max_model_len)]
    if launch.role == "prefill":
        config.append(("disable_overlap_scheduler", True))
    if config:
        options.append(("--config", config_file(launch)))
    words: tuple[str, ...] = ("trtllm-serve", launch.model)
    if launch.nodes > 1:
        words = ("mpirun", "-n", str(launch.gpus), "trtllm-llmapi-launch", *words)
    return Command(words, tuple(options), tuple(config))


def config_file(launch: Launch) -> str:
    """The file that TensorRT-LLM reads beside its command."""
    return "trtllm.yaml" if launch.role == "both" else f"{launch.role}.yaml"


def servers_of(engine: str, role: str, replicas: int, pattern: str = "{role}-{place}") -> list[str]:
    """``host:port`` of every replica of a pool.

    Args:
        engine: whose servers.
        role: the pool.
        replicas: how many.
        pattern: of a host's name, with the pool and the replica's number in it.
    """
    return [f"{pattern.format(role=role, place=place)}:{PORTS[engine]}" for place in range(replicas)]


def router_command(engine: str, prefill: list[str], decode: list[str]) -> Command:
    """What stands before two pools and sends each request through both; servers are named ``host:port``.

    Raises:
        UsageError: an engine whose pools capplan does not join.
    """
    if engine == "trtllm":
        config: list[tuple[str, Setting]] = [("hostname", "0.0.0.0"), ("port", ROUTER_PORT)]
        for section, servers in (("context_servers", prefill), ("generation_servers", decode)):
            config += [(f"{section}.num_instances", len(servers)), (f"{section}.urls", servers)]
        return Command(("trtllm-serve", "disaggregated"), (("-c", ROUTER_FILE),), tuple(config))
    router = _ROUTERS.get(engine)
    if router is None:
        raise UsageError(f"no router is known for {engine}", where="--engine", hint=f"one of {', '.join(_COMMANDS)}")
    words, flag = router
    both: list[tuple[str, str | None]] = [("--prefill", f"http://{server}") for server in prefill]
    both += [("--decode", f"http://{server}") for server in decode]
    return Command(words, ((flag, None), *both, ("--host", "0.0.0.0"), ("--port", str(ROUTER_PORT))))


_ROUTERS: dict[str, tuple[tuple[str, ...], str]] = {
    "vllm": (("vllm-router",), "--vllm-pd-disaggregation"),
    "sglang": (("python", "-m", "sglang_router.launch_router"), "--pd-disaggregation"),
}
"""Routers: the program, and the flag by which it joins pools."""


def _vllm_transfer(launch: Launch) -> str:
    """VLLM's KV connector, as JSON."""
    role = "kv_producer" if launch.role == "prefill" else "kv_consumer"
    return json.dumps({"kv_connector": "NixlConnector", "kv_role": role})


def _vllm_drafts(launch: Launch) -> str:
    """VLLM's speculative configuration, as JSON."""
    drafts: dict[str, str | int] = {"method": "mtp", "num_speculative_tokens": launch.drafted}
    if launch.draft_model is not None:
        drafts |= {"method": "draft_model", "model": launch.draft_model}
    return json.dumps(drafts)


def _sglang_drafts(launch: Launch) -> list[tuple[str, str | None]]:
    """A chain of drafts: one candidate a step, and all of them with the token before them verified together."""
    if not launch.drafted:
        return []
    return [
        ("--speculative-algorithm", "NEXTN" if launch.draft_model is None else "STANDALONE"),
        *_where(launch.draft_model is not None, "--speculative-draft-model-path", launch.draft_model),
        ("--speculative-num-steps", str(launch.drafted)),
        ("--speculative-eagle-topk", "1"),
        ("--speculative-num-draft-tokens", str(launch.drafted + 1)),
    ]


def _where(condition: bool, name: str, value: object) -> list[tuple[str, str | None]]:
    return [(name, str(value))] if condition else []


_COMMANDS: dict[str, Callable[[Launch], Command]] = {
    "vllm": vllm_command,
    "sglang": sglang_command,
    "trtllm": trtllm_command,
}
