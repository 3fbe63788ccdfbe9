"""What starts a plan: every option is one that the engine has, with a value that it takes; scripts and manifests are valid."""

from __future__ import annotations

import ast
import json
import shlex
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import yaml

from capplan.describe.launch_options import launch_options
from capplan.errors import UsageError
from capplan.planner.launch import Launch, Role, launch_command, router_command, servers_of
from capplan.report.engine_flags import EMITTERS, Deployed, emit, engine_arguments, yaml_of


def launches(engine: str) -> list[Launch]:
    found = []
    for tp, pp, dp, ep in product((1, 8), (1, 2), (1, 8), (False, True)):
        for kv, scheme in (("auto", None), ("fp8", None), ("auto", "fp8")):
            if tp * dp <= 8:
                found.append(
                    Launch(
                        engine=engine, model="org/Model-7B", tp=tp, pp=pp, dp=dp, ep=ep, max_model_len=5000, max_num_seqs=256,
                        max_num_batched_tokens=8192, memory_fraction=0.92, kv_cache_dtype=kv, quantization=scheme,
                    )
                )  # fmt: skip
    drafting = [replace(found[0], drafted=3)]
    if engine != "trtllm":
        drafting.append(replace(found[0], drafted=3, draft_model="org/Model-1B"))
    roles: list[Role] = ["prefill", "decode"]
    return found + drafting + [replace(launch, role=role) for role in roles for launch in found[:4]]


def test_what_drafts_is_told_to_every_engine() -> None:
    shape: dict[str, Any] = {
        "model": "m",
        "max_model_len": 1,
        "max_num_seqs": 1,
        "max_num_batched_tokens": 1,
        "memory_fraction": 0.9,
    }
    for draft in (None, "org/Model-1B"):
        vllm, sglang = (
            dict(launch_command(Launch(engine=name, drafted=3, draft_model=draft, **shape)).options)
            for name in ("vllm", "sglang")
        )
        told = json.loads(vllm["--speculative-config"] or "")
        assert told["num_speculative_tokens"] == 3
        assert (told["method"], told.get("model")) == (("draft_model", draft) if draft else ("mtp", None))
        assert (sglang["--speculative-num-steps"], sglang["--speculative-num-draft-tokens"]) == ("3", "4")
        assert sglang.get("--speculative-draft-model-path") == draft
    trtllm = launch_command(Launch(engine="trtllm", drafted=3, **shape))
    text = yaml.safe_load(yaml_of(trtllm))
    assert text["speculative_config"] == {"decoding_type": "MTP", "max_draft_len": 3}


def parsed(words: list[str], engine: str) -> dict[str, str | None]:
    """As the engine's own parser would: every option known, its value of the right kind."""
    table, found = launch_options(engine), dict[str, str | None]()
    rest = list(words)
    while rest:
        name = rest.pop(0)
        option = table.get(name)
        assert option is not None, f"{engine} has no option {name}"
        assert option.kind not in ("field", "config"), name
        value = None if option.kind in ("flag", "switch") else rest.pop(0)
        assert option.accepts(value), (name, value, option.choices)
        found[option.name] = value
    return found


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_every_command_is_one_that_the_engine_takes(engine: str) -> None:
    for launch in launches(engine):
        if engine == "trtllm" and launch.quantization:
            continue
        command = launch_command(launch)
        words = [word for name, value in command.options for word in ([name] if value is None else [name, value])]
        found = parsed(words, engine)
        assert len(found) == len(command.options), "an option is given twice"
        for name, value in (*command.per_host, *command.follower):
            option = launch_options(engine)[name]
            assert option.accepts(None if value is None else value.format(rank=1, leader="host"))
        for name, _ in command.config:
            assert launch_options(engine)[name].kind == "config"


def test_sizes_mean_the_same_to_every_engine() -> None:
    shape: dict[str, Any] = {"model": "m", "tp": 2, "dp": 4, "ep": True, "max_model_len": 1, "max_num_seqs": 16, "max_num_batched_tokens": 1, "memory_fraction": 0.9}  # fmt: skip
    vllm, sglang, trtllm = (
        dict(launch_command(Launch(engine=name, **shape)).options) for name in ("vllm", "sglang", "trtllm")
    )
    assert (vllm["--tensor-parallel-size"], vllm["--data-parallel-size"]) == ("2", "4")
    assert (sglang["--tp-size"], sglang["--attn-dp-size"], sglang["--ep-size"]) == ("8", "4", "8")
    assert (trtllm["--tp_size"], trtllm["--ep_size"]) == ("8", "8")
    assert (vllm["--max-num-seqs"], sglang["--max-running-requests"]) == ("16", "64")  # of a group; of all


def test_the_python_server_is_valid_and_its_arguments_are_fields() -> None:
    for launch in launches("vllm"):
        text = emit("vllm-python", Deployed(launch, 1, "h100-sxm-80gb", "NVIDIA", "a plan"))
        tree = ast.parse(text)
        call = next(
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "AsyncEngineArgs"
        )
        given = {key.arg: ast.literal_eval(key.value) for key in call.keywords}
        assert given == engine_arguments(launch)
        for name in given:
            assert name is not None
            assert launch_options("vllm")[name].kind == "field", name
        assert given["enable_expert_parallel"] is True if launch.ep else "enable_expert_parallel" not in given


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_manifests_are_yaml_with_the_command_in_them(engine: str) -> None:
    for launch in launches(engine):
        text = emit("k8s", Deployed(launch, 3, "h200-sxm-141gb", "NVIDIA", "a plan"))
        *_, workload, service = documents = list(yaml.safe_load_all(text))
        command = launch_command(launch)
        assert len(documents) == (3 if command.config else 2)
        assert workload["spec"]["replicas"] == 3
        assert workload["kind"] == ("Deployment" if launch.nodes == 1 else "LeaderWorkerSet")
        spec = workload["spec"]
        template = spec["template"] if launch.nodes == 1 else spec["leaderWorkerTemplate"]["leaderTemplate"]
        container = template["spec"]["containers"][0]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": min(launch.gpus, 8)}
        assert container["command"][: len(command.words)] == list(command.words)
        assert container["ports"][0]["containerPort"] == service["spec"]["ports"][0]["targetPort"]
        if engine == "vllm" and launch.nodes > 1:
            worker = spec["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]
            assert "--headless" in worker["command"]
            assert "--headless" not in container["command"]


def test_the_shell_text_is_the_command() -> None:
    launch = launches("trtllm")[1]
    text = emit("trtllm", Deployed(launch, 1, "h200", "NVIDIA", "a plan"))
    config, _, line = text.partition("\nYAML\n")
    assert shlex.split(line.replace("\\\n", " ")) == launch_command(launch).arguments
    assert yaml.safe_load(config.partition("YAML'\n")[2]) == {"kv_cache_config": {"dtype": "fp8"}}


def test_other_engines_and_kinds_are_refused() -> None:
    plan = Deployed(launches("sglang")[0], 1, "h200", "NVIDIA", "a plan")
    with pytest.raises(UsageError, match="sglang"):
        emit("vllm", plan)
    with pytest.raises(UsageError, match="emitted"):
        emit("helm", plan)
    with pytest.raises(UsageError, match="no command"):
        launch_command(
            Launch(
                engine="llama.cpp",
                model="m",
                max_model_len=1,
                max_num_seqs=1,
                max_num_batched_tokens=1,
                memory_fraction=1,
            )
        )
    with pytest.raises(UsageError, match="not known"):
        launch_options("tgi")
    assert set(EMITTERS) == {"vllm", "vllm-python", "sglang", "trtllm", "k8s"}


def test_the_tables_know_what_their_engines_refuse() -> None:
    vllm = launch_options("vllm")
    assert not vllm["--tensor-parallel-size"].accepts("two")
    assert not vllm["--kv-cache-dtype"].accepts("fp9")
    assert vllm["--no-enable-prefix-caching"].accepts(None)
    assert "--enable-dbo-all" not in vllm
    assert all(option.source for option in vllm.values())


def pooled(engine: str, nodes: int = 1) -> Deployed:
    launch = Launch(
        engine=engine, model="org/Model-7B", tp=2, pp=nodes, gpus_per_node=2, max_model_len=5000, max_num_seqs=256,
        max_num_batched_tokens=8192, memory_fraction=0.92,
    )  # fmt: skip
    return Deployed(launch, 5, "h200-sxm-141gb", "NVIDIA", "a plan", prefill=2, decode=3)


def test_each_engine_is_told_its_role() -> None:
    vllm, sglang, trtllm = (pooled(engine).pools for engine in ("vllm", "sglang", "trtllm"))
    roles = [json.loads(dict(launch_command(launch).options)["--kv-transfer-config"] or "") for launch, _ in vllm]
    assert roles == [{"kv_connector": "NixlConnector", "kv_role": f"kv_{word}"} for word in ("producer", "consumer")]
    modes = [dict(launch_command(launch).options)["--disaggregation-mode"] for launch, _ in sglang]
    assert modes == ["prefill", "decode"]
    files = [yaml.safe_load(yaml_of(launch_command(launch))) for launch, _ in trtllm]
    moving = {"backend": "DEFAULT", "max_tokens_in_buffer": 5000}
    assert files == [
        {"cache_transceiver_config": moving, "disable_overlap_scheduler": True},
        {"cache_transceiver_config": moving},
    ]


def test_routers_name_every_server_of_both_pools() -> None:
    for engine in ("vllm", "sglang"):
        servers = [servers_of(engine, role, number) for role, number in (("prefill", 2), ("decode", 3))]
        words = router_command(engine, *servers).arguments
        for flag, number in (("--prefill", 2), ("--decode", 3)):
            assert words.count(flag) == number
            hosts = [words[place + 1] for place, word in enumerate(words) if word == flag]
            assert hosts == [f"http://{server}" for server in servers[flag == "--decode"]]
    router = router_command("trtllm", ["a:1", "b:1"], ["c:1"])
    assert router.arguments == ["trtllm-serve", "disaggregated", "-c", "disaggregated.yaml"]
    told = yaml.safe_load(yaml_of(router))
    assert told["context_servers"] == {"num_instances": 2, "urls": ["a:1", "b:1"]}
    assert told["generation_servers"] == {"num_instances": 1, "urls": ["c:1"]}
    with pytest.raises(UsageError, match="no router"):
        router_command("llama.cpp", [], [])


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_the_shell_text_of_pools_is_their_commands(engine: str) -> None:
    plan = pooled(engine)
    text = emit(engine, replace(plan, replicas=10, units=2))
    commands = [launch_command(launch) for launch, _ in plan.pools]
    lines = text.replace(" \\\n", " ").split("\n")
    for command in commands:
        assert any(shlex.split(line)[-len(command.arguments) :] == command.arguments for line in lines if line)
    assert "all of this 2 times" in text
    assert "on each of 2 replicas that prefill" in text
    assert ("VLLM_NIXL_SIDE_CHANNEL_HOST=THIS_HOST" in text) == (engine == "vllm")
    if engine == "vllm":
        with pytest.raises(UsageError, match="own server"):
            emit("vllm-python", plan)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_manifests_of_pools_have_both_and_a_router(engine: str, nodes: int) -> None:
    documents = list(yaml.safe_load_all(emit("k8s", pooled(engine, nodes))))
    named = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert len(named) == len(documents)
    kind, name = "StatefulSet" if nodes == 1 else "LeaderWorkerSet", f"model-7b-{engine}"
    router = named["Deployment", f"{name}-router"]["spec"]["template"]["spec"]["containers"][0]
    words = " ".join(router["command"])
    maps = {where: document["data"] for (what, where), document in named.items() if what == "ConfigMap"}
    if engine == "trtllm":
        assert set(maps) == {f"{name}-{part}" for part in ("prefill", "decode", "router")}
        words = maps[f"{name}-router"]["disaggregated.yaml"]
    else:
        assert not maps
    for role, replicas in (("prefill", 2), ("decode", 3)):
        own = f"{name}-{role}"
        assert named[kind, own]["spec"]["replicas"] == replicas
        headless = named["Service", own]["spec"]
        assert headless["clusterIP"] == "None"
        port = headless["ports"][0]["port"]
        assert [f"{own}-{place}.{own}:{port}" in words for place in range(4)] == [
            place < replicas for place in range(4)
        ]
    front = named["Service", name]["spec"]
    assert front["ports"][0]["targetPort"] == router["ports"][0]["containerPort"]
    assert front["selector"] == named["Deployment", f"{name}-router"]["spec"]["selector"]["matchLabels"]
