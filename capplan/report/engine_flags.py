"""A plan as what starts it: command lines, a server script, a manifest."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

from capplan.errors import UsageError, did_you_mean
from capplan.planner.launch import Command, Launch, Options, launch_command, router_command, servers_of
from capplan.report.deployed import INDENT, Deployed, config_name, yaml_of
from capplan.report.manifests import manifest


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
    """The commands, one option a line, each with the file that it reads before it; of pools those of both, and what
    stands before them.
    """
    lines = [f"# {plan.headline}"]
    if not plan.pools:
        return "\n".join([*lines, *_command_lines(launch_command(plan.launch), plan.launch.nodes)])
    if plan.units > 1:
        lines.append(f"# all of this {plan.units} times")
    servers: list[list[str]] = []
    for launch, replicas in plan.pools:
        servers.append(servers_of(launch.engine, launch.role, replicas))
        lines += ["", f"# on each of {replicas} replicas that {launch.role}: {servers[-1][0]} and on"]
        lines += _command_lines(launch_command(launch), launch.nodes)
    lines += ["", "# before them"]
    return "\n".join([*lines, *_command_lines(router_command(plan.launch.engine, *servers), 1)])


def _command_lines(command: Command, nodes: int) -> list[str]:
    """One command over several lines, with what goes before it."""
    lines = []
    if command.config:
        lines += [f"cat > {config_name(command)} <<'YAML'", yaml_of(command), "YAML"]
    if command.per_host:
        each = _line(command.per_host).format(rank="HOST_NUMBER", leader="FIRST_HOST")
        lines.append(f"# on each of {nodes} hosts, with {each}")
        if command.follower:
            lines.append(f"# and on all but the first with {_line(command.follower)}")
    parts = [shlex.join([name] if value is None else [name, value]) for name, value in command.options]
    lines += [f"{name}={value.format(host='THIS_HOST')} \\" for name, value in command.environment]
    return [*lines, " \\\n".join([shlex.join(command.words), *(f"{INDENT}{part}" for part in parts)])]


def _line(options: Options) -> str:
    return " ".join(name if value is None else f"{name} {value}" for name, value in options)


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
    """A server around vLLM's asynchronous engine: ``POST /generate`` with a prompt, answered as text or streamed.

    Raises:
        UsageError: a plan of pools, whose servers a router must be able to talk to.
    """
    if plan.pools:
        raise UsageError("pools are started by vLLM's own server", where="--emit", hint="give --emit vllm")
    arguments = "\n".join(f"    {name}={value!r}," for name, value in engine_arguments(plan.launch).items())
    return _SERVER.format(headline=plan.headline, arguments=arguments)


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
