"""A plan as what starts it: a command line, a server script, a manifest."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from capplan.errors import UsageError, did_you_mean
from capplan.planner.launch import Command, Launch, Options, launch_command

IMAGES = {
    "vllm": "vllm/vllm-openai:v0.33.0",
    "sglang": "lmsysorg/sglang:v0.5.23",
    "trtllm": "nvcr.io/nvidia/tensorrt-llm/release:1.2.1",
}
"""Containers of the versions whose options the commands are checked against."""

PORTS = {"vllm": 8000, "sglang": 30000, "trtllm": 8000}
RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}
INDENT = "  "


@dataclass(frozen=True)
class Deployed:
    """A plan, for what starts it.

    Args:
        launch: one replica.
        replicas: how many.
        gpu: the device's name in the catalog.
        vendor: who makes it.
        headline: the plan in a line, for a comment.
    """

    launch: Launch
    replicas: int
    gpu: str
    vendor: str
    headline: str


def emit(kind: str, plan: Deployed) -> str:
    """The text of a kind for a plan.

    Args:
        kind: vllm, vllm-python, sglang, trtllm or k8s.
        plan: the plan.

    Raises:
        UsageError: no such kind, or one of another engine than the plan's.
    """
    if kind not in EMITTERS:
        raise UsageError(
            f"{kind[:40]!r} cannot be emitted",
            where="--emit",
            hint=did_you_mean(kind, EMITTERS) or f"one of {', '.join(EMITTERS)}",
        )
    engine = engine_of(kind)
    if engine is not None and engine != plan.launch.engine:
        raise UsageError(f"the plan is for {plan.launch.engine}", where="--emit", hint=f"add --engine {engine}")
    return EMITTERS[kind](plan)


def engine_of(kind: str) -> str | None:
    """The engine that a kind of text is for; None: any."""
    return {"vllm": "vllm", "vllm-python": "vllm", "sglang": "sglang", "trtllm": "trtllm"}.get(kind)


def shell_command(plan: Deployed) -> str:
    """The command, one option a line, with the file that it reads before it."""
    command = launch_command(plan.launch)
    lines = [f"# {plan.headline}"]
    if command.config:
        lines += ["cat > trtllm.yaml <<'YAML'", yaml_of(command), "YAML"]
    if command.per_host:
        each = _line(command.per_host).format(rank="HOST_NUMBER", leader="FIRST_HOST")
        lines.append(f"# on each of {plan.launch.nodes} hosts, with {each}")
        if command.follower:
            lines.append(f"# and on all but the first with {_line(command.follower)}")
    parts = [shlex.join([name] if value is None else [name, value]) for name, value in command.options]
    return "\n".join([*lines, " \\\n".join([shlex.join(command.words), *(f"{INDENT}{part}" for part in parts)])])


def _line(options: Options) -> str:
    return " ".join(name if value is None else f"{name} {value}" for name, value in options)


def yaml_of(command: Command) -> str:
    """The YAML file of a command: dotted names nested."""
    lines: list[str] = []
    open_section = ""
    for name, value in command.config:
        section, _, key = name.rpartition(".")
        if section and section != open_section:
            lines.append(f"{section}:")
        open_section = section
        lines.append(f"{INDENT if section else ''}{key}: {json.dumps(value)}")
    return "\n".join(lines)


def engine_arguments(launch: Launch) -> dict[str, Any]:
    """The arguments of vLLM's `AsyncEngineArgs`."""
    arguments: dict[str, Any] = {"model": launch.model}
    for name, value in launch_command(launch).options:
        arguments[name[2:].replace("-", "_")] = True if value is None else _typed(value)
    return arguments


def _typed(value: str) -> Any:
    for kind in (int, float, json.loads):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def python_server(plan: Deployed) -> str:
    """A server around vLLM's asynchronous engine: ``POST /generate`` with a prompt, answered as text or streamed."""
    arguments = "\n".join(f"    {name}={value!r}," for name, value in engine_arguments(plan.launch).items())
    return _SERVER.format(headline=plan.headline, arguments=arguments)


def manifest(plan: Deployed) -> str:
    """A Kubernetes manifest: a Deployment and a Service; replicas of several hosts as a LeaderWorkerSet."""
    launch, command = plan.launch, launch_command(plan.launch)
    name = _label(f"{launch.model.rpartition('/')[2]}-{launch.engine}")
    gpus = min(launch.gpus, launch.gpus_per_node)
    pod = _pod(plan, command, name, gpus)
    service = [
        "apiVersion: v1",
        "kind: Service",
        f"metadata: {{name: {name}}}",
        "spec:",
        f"  selector: {{app: {name}}}",
        f"  ports: [{{port: 80, targetPort: {PORTS[launch.engine]}}}]",
    ]
    documents = [_workload(plan, name, pod), service]
    if command.config:
        documents.insert(0, _config_map(name, command))
    return f"# {plan.headline}\n" + "\n---\n".join("\n".join(lines) for lines in documents)


def _workload(plan: Deployed, name: str, pod: list[str]) -> list[str]:
    head = [f"metadata: {{name: {name}, labels: {{app: {name}}}}}", "spec:", f"  replicas: {plan.replicas}"]
    labels = f"metadata: {{labels: {{app: {name}}}}}"
    if plan.launch.nodes == 1:
        template = ["template:", f"  {labels}", "  spec:", *_indented(pod, 2)]
        selector = f"selector: {{matchLabels: {{app: {name}}}}}"
        return ["apiVersion: apps/v1", "kind: Deployment", *head, *_indented([selector, *template], 1)]
    followers = [_following(line, launch_command(plan.launch)) for line in pod]
    template = ["leaderTemplate:", f"  {labels}", "  spec:", *_indented(pod, 2)]
    template += ["workerTemplate:", "  spec:", *_indented(followers, 2)]
    group = ["leaderWorkerTemplate:", f"  size: {plan.launch.nodes}", *_indented(template, 1)]
    return ["apiVersion: leaderworkerset.x-k8s.io/v1", "kind: LeaderWorkerSet", *head, *_indented(group, 1)]


def _following(line: str, command: Command) -> str:
    """A line of the leader's pod for the other hosts: with their flags, and no readiness of their own."""
    if "command: [" in line and command.follower:
        flags = ", ".join(json.dumps(name) for name, _ in command.follower)
        return f"{line[:-1]}, {flags}]"
    return line


def _pod(plan: Deployed, command: Command, name: str, gpus: int) -> list[str]:
    port, resource = PORTS[plan.launch.engine], RESOURCES.get(plan.vendor, RESOURCES["NVIDIA"])
    volumes = ["volumes:", "- {name: shm, emptyDir: {medium: Memory}}"]
    mounts = ["volumeMounts:", "- {name: shm, mountPath: /dev/shm}"]
    words = list(command.arguments)
    if command.config:
        volumes.append(f"- {{name: config, configMap: {{name: {name}}}}}")
        mounts.append("- {name: config, mountPath: /config}")
        words = [f"/config/{word}" if word == "trtllm.yaml" else word for word in words]
    for option, value in command.per_host:
        words += [option, (value or "").format(rank="$(LWS_WORKER_INDEX)", leader="$(LWS_LEADER_ADDRESS)")]
    container = [
        f"name: {plan.launch.engine}",
        f"image: {IMAGES[plan.launch.engine]}",
        f"command: {json.dumps([*words, '--host', '0.0.0.0', '--port', str(port)])}",
        f"ports: [{{containerPort: {port}}}]",
        f"readinessProbe: {{httpGet: {{path: /health, port: {port}}}, periodSeconds: 10, failureThreshold: 180}}",
        f"resources: {{limits: {{{resource}: {gpus}}}}}",
        *mounts,
    ]
    listed = [f"- {container[0]}", *_indented(container[1:], 1)]
    return [f"nodeSelector: {{capplan.gpu: {plan.gpu}}}", "containers:", *listed, *volumes]


def _config_map(name: str, command: Command) -> list[str]:
    lines = yaml_of(command).split("\n")
    head = ["apiVersion: v1", "kind: ConfigMap", f"metadata: {{name: {name}}}", "data:", "  trtllm.yaml: |"]
    return [*head, *_indented(lines, 2)]


def _indented(lines: list[str], steps: int) -> list[str]:
    return [f"{INDENT * steps}{line}" for line in lines]


def _label(text: str) -> str:
    """A name as Kubernetes takes it: lower case letters, digits and hyphens, 63 at most."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in text.lower())
    return plain[:63].strip("-")


_SERVER = '''"""{headline}.

Run: uvicorn server:app --host 0.0.0.0 --port 8000 --workers 1
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

ENGINE_ARGS = AsyncEngineArgs(
{arguments}
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.engine = AsyncLLM.from_engine_args(ENGINE_ARGS)
    yield
    app.state.engine.shutdown()


app = FastAPI(lifespan=lifespan)


@app.get("/health")
async def health(request: Request) -> Response:
    await request.app.state.engine.check_health()
    return Response(status_code=200)


@app.post("/generate")
async def generate(request: Request) -> Response:
    body = await request.json()
    prompt, stream = body.pop("prompt"), body.pop("stream", False)
    outputs = request.app.state.engine.generate(prompt, SamplingParams(**body), str(uuid4()))
    if stream:

        async def lines() -> AsyncIterator[str]:
            async for output in outputs:
                yield json.dumps({{"text": output.outputs[0].text}}) + "\\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")
    final = None
    async for output in outputs:
        if await request.is_disconnected():
            await request.app.state.engine.abort(output.request_id)
            return Response(status_code=499)
        final = output
    answer = final.outputs[0]
    return JSONResponse(
        {{"text": answer.text, "tokens_generated": len(answer.token_ids), "finish_reason": answer.finish_reason}}
    )
'''

EMITTERS: dict[str, Callable[[Deployed], str]] = {
    "vllm": shell_command,
    "vllm-python": python_server,
    "sglang": shell_command,
    "trtllm": shell_command,
    "k8s": manifest,
}
"""What can be emitted, by name."""
