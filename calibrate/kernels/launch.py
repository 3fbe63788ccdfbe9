"""What launching a kernel costs: many tiny ones in a row, launched one by one and replayed as one CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from calibrate.device import Device
from calibrate.kernels.kernel import TOLERANCE, Call, Case, Kernel, Setting, Tensor, Work, normal

WIDTH = 32


def cases(device: Device) -> Sequence[Case]:
    """1 and 200 launches, eager and as a graph."""
    modes = ("eager", "graph") if device.kind == "cuda" else ("eager",)
    return [Case("launch", {"mode": mode}, {"launches": count}, "warm") for mode in modes for count in (1, 200)]


def missing(device: Device, case: Case) -> str:
    """Graphs are CUDA's."""
    return "a CPU has no CUDA graphs" if case.key["mode"] == "graph" and device.kind == "cpu" else ""


def work(case: Case) -> Work:
    """Next to nothing."""
    return Work(0.0, 4.0 * WIDTH * case.shape["launches"])


def set_bytes(case: Case) -> int:
    """One small vector."""
    return 2 * WIDTH


def prepare(case: Case, setting: Setting) -> Call:
    """A vector to which 2^-6 is added again and again, in a buffer that a graph can be captured on."""
    count = case.shape["launches"]
    start = normal(setting, WIDTH, format="fp32")
    total = start.clone()

    def body() -> Tensor:
        for _ in range(count):
            total.add_(2.0**-6)
        return total

    def reset() -> None:
        total.copy_(start)

    replay = captured(body) if case.key["mode"] == "graph" else body

    def run(index: int) -> Tensor:
        replay()
        return total

    def expected(index: int, output: Tensor) -> tuple[Tensor, Tensor]:
        return output, start.double() + count * 2.0**-6

    return Call(run, expected, TOLERANCE["fp32"], reset)


def captured(body: Any) -> Any:
    """The work of `body` as a CUDA graph: a function that replays it.

    It is run twice on a stream of its own first, as capturing asks for.

    Source: PyTorch documentation, CUDA semantics, "CUDA Graphs".
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        body()
        body()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph.replay


KERNEL = Kernel("launch", None, cases, work, set_bytes, prepare, missing, natural="warm")
