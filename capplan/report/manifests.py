"""A plan as a Kubernetes manifest.

Replicas that do both prefill and decode stand behind one Service. Pools have servers with names of their own, since a
router tells each request which two of them it passes through: a StatefulSet each, and the router before them.
"""

from __future__ import annotations

import json

from capplan.planner.launch import PORTS, ROUTER_PORT, Command, Launch, launch_command, router_command, servers_of
from capplan.report.deployed import INDENT, Deployed, config_name, yaml_of

IMAGES = {
    "vllm": "vllm/vllm-openai:v0.33.0",
    "sglang": "lmsysorg/sglang:v0.5.23",
    "trtllm": "nvcr.io/nvidia/tensorrt-llm/release:1.2.1",
}
"""Containers of the versions whose options the commands are checked against."""

RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}


def manifest(plan: Deployed) -> str:
    """A Kubernetes manifest: workloads and Services; replicas of several hosts as a LeaderWorkerSet."""
    name = _label(f"{plan.launch.model.rpartition('/')[2]}-{plan.launch.engine}")
    documents = _pools(plan, name) if plan.pools else _replicas(plan, name)
    lines = [f"# {plan.headline}"]
    if plan.units > 1:
        lines.append(f"# one of {plan.units} equal pairs of pools: give each a name of its own")
    return "\n".join(lines) + "\n" + "\n---\n".join("\n".join(lines) for lines in documents)


def _replicas(plan: Deployed, name: str) -> list[list[str]]:
    command = launch_command(plan.launch)
    pod = _pod(plan, plan.launch, command, name)
    service = _service(name, name, 80, PORTS[plan.launch.engine])
    return [*_config_maps(name, command), _workload(plan.launch, plan.replicas, name, pod, "Deployment"), service]


def _pools(plan: Deployed, name: str) -> list[list[str]]:
    documents: list[list[str]] = []
    servers: list[list[str]] = []
    for launch, replicas in plan.pools:
        own, command = f"{name}-{launch.role}", launch_command(launch)
        pod = _pod(plan, launch, command, own)
        documents += _config_maps(own, command)
        documents.append(_workload(launch, replicas, own, pod, "StatefulSet"))
        documents.append([*_service(own, own, PORTS[launch.engine], PORTS[launch.engine]), "  clusterIP: None"])
        pattern = f"{name}-{{role}}-{{place}}.{name}-{{role}}"
        servers.append(servers_of(launch.engine, launch.role, replicas, pattern))
    router, own = router_command(plan.launch.engine, *servers), f"{name}-router"
    documents += _config_maps(own, router)
    documents.append(_router(plan.launch.engine, own, router))
    return [*documents, _service(name, own, 80, ROUTER_PORT)]


def _service(name: str, app: str, port: int, target: int) -> list[str]:
    return [
        "apiVersion: v1",
        "kind: Service",
        f"metadata: {{name: {name}}}",
        "spec:",
        f"  selector: {{app: {app}}}",
        f"  ports: [{{port: {port}, targetPort: {target}}}]",
    ]


def _workload(launch: Launch, replicas: int, name: str, pod: list[str], kind: str) -> list[str]:
    if launch.nodes == 1:
        return _of_one_host(name, replicas, pod, kind)
    followers = [_following(line, launch_command(launch)) for line in pod]
    template = ["leaderTemplate:", *_labelled(name, pod)]
    template += ["workerTemplate:", "  spec:", *_indented(followers, 2)]
    group = ["leaderWorkerTemplate:", f"  size: {launch.nodes}", *_indented(template, 1)]
    kinds = ["apiVersion: leaderworkerset.x-k8s.io/v1", "kind: LeaderWorkerSet"]
    return [*kinds, *_head(name, replicas), *_indented(group, 1)]


def _of_one_host(name: str, replicas: int, pod: list[str], kind: str) -> list[str]:
    """Pods that are a server each: a Deployment, or a StatefulSet where each has a name of its own."""
    own = [f"serviceName: {name}", "podManagementPolicy: Parallel"] if kind == "StatefulSet" else []
    body = [*own, f"selector: {{matchLabels: {{app: {name}}}}}", "template:", *_labelled(name, pod)]
    return ["apiVersion: apps/v1", f"kind: {kind}", *_head(name, replicas), *_indented(body, 1)]


def _head(name: str, replicas: int) -> list[str]:
    return [f"metadata: {{name: {name}, labels: {{app: {name}}}}}", "spec:", f"  replicas: {replicas}"]


def _labelled(name: str, pod: list[str]) -> list[str]:
    """What a template holds: the label by which a Service finds the pod, and the pod."""
    return [f"  metadata: {{labels: {{app: {name}}}}}", "  spec:", *_indented(pod, 2)]


def _following(line: str, command: Command) -> str:
    """A line of the leader's pod for the other hosts: with their flags, and no readiness of their own."""
    if "command: [" in line and command.follower:
        flags = ", ".join(json.dumps(name) for name, _ in command.follower)
        return f"{line[:-1]}, {flags}]"
    return line


def _pod(plan: Deployed, launch: Launch, command: Command, name: str) -> list[str]:
    port, resource = PORTS[launch.engine], RESOURCES.get(plan.vendor, RESOURCES["NVIDIA"])
    words, volumes, mounts = _mounted(command, name)
    volumes = ["volumes:", "- {name: shm, emptyDir: {medium: Memory}}", *volumes]
    mounts = ["volumeMounts:", "- {name: shm, mountPath: /dev/shm}", *mounts]
    for option, value in command.per_host:
        words += [option, (value or "").format(rank="$(LWS_WORKER_INDEX)", leader="$(LWS_LEADER_ADDRESS)")]
    container = [
        f"name: {launch.engine}",
        f"image: {IMAGES[launch.engine]}",
        f"command: {json.dumps([*words, '--host', '0.0.0.0', '--port', str(port)])}",
        *_environment(command),
        f"ports: [{{containerPort: {port}}}]",
        f"readinessProbe: {{httpGet: {{path: /health, port: {port}}}, periodSeconds: 10, failureThreshold: 180}}",
        f"resources: {{limits: {{{resource}: {min(launch.gpus, launch.gpus_per_node)}}}}}",
        *mounts,
    ]
    listed = [f"- {container[0]}", *_indented(container[1:], 1)]
    return [f"nodeSelector: {{capplan.gpu: {plan.gpu}}}", "containers:", *listed, *volumes]


def _environment(command: Command) -> list[str]:
    """Variables; a server's own address is its pod's."""
    if not command.environment:
        return []
    pod = "valueFrom: {fieldRef: {fieldPath: status.podIP}}"
    return ["env:", *(f"- {{name: {name}, {pod}}}" for name, _ in command.environment)]


def _router(engine: str, name: str, command: Command) -> list[str]:
    """The router as a Deployment; vLLM's is a package of its own, which the engine's container lacks."""
    words, volumes, mounts = _mounted(command, name)
    if engine == "vllm":
        words = ["sh", "-c", 'pip install vllm-router && exec "$@"', "sh", *words]
    container = [
        "name: router",
        f"image: {IMAGES[engine]}",
        f"command: {json.dumps(words)}",
        f"ports: [{{containerPort: {ROUTER_PORT}}}]",
        *(["volumeMounts:", *mounts] if mounts else []),
    ]
    pod = [
        "containers:",
        f"- {container[0]}",
        *_indented(container[1:], 1),
        *(["volumes:", *volumes] if volumes else []),
    ]
    return _of_one_host(name, 1, pod, "Deployment")


def _mounted(command: Command, name: str) -> tuple[list[str], list[str], list[str]]:
    """A command's words, with the volume and the mount of the file that it reads."""
    words = list(command.arguments)
    if not command.config:
        return words, [], []
    file = config_name(command)
    words = [f"/config/{word}" if word == file else word for word in words]
    return words, [f"- {{name: config, configMap: {{name: {name}}}}}"], ["- {name: config, mountPath: /config}"]


def _config_maps(name: str, command: Command) -> list[list[str]]:
    """The file that a command reads; none: no documents."""
    if not command.config:
        return []
    lines = yaml_of(command).split("\n")
    head = ["apiVersion: v1", "kind: ConfigMap", f"metadata: {{name: {name}}}", "data:", f"  {config_name(command)}: |"]
    return [[*head, *_indented(lines, 2)]]


def _indented(lines: list[str], steps: int) -> list[str]:
    return [f"{INDENT * steps}{line}" for line in lines]


def _label(text: str) -> str:
    """A name as Kubernetes takes it, with room behind it: lower case letters, digits and hyphens, 50 at most."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in text.lower())
    return plain[:50].strip("-")
