"""The closed form of `estimate` against the simulated loop, two derivations of the same server.

Tolerances: TPOT 3 %, TTFT 20 %. The closed form smooths over what the loop counts: how many prompts share a step, which
requests happen to arrive together, the first wave's own order. Where lengths are fixed a closed loop stays in step (all
requests end and come together), which the closed form does not see; such loads are left to the simulator.
"""

from __future__ import annotations

import pytest

import capplan
from capplan.questions.estimate import LoadRequest
from capplan.questions.simulate_request import SimulatedLoad

SERVERS = [
    ("llama3.1-70b", "h200", 4, "vllm"),
    ("qwen3-235b-a22b", "h200", 8, "vllm"),
    ("gpt-oss-120b", "h200", 2, "trtllm"),
    ("llama3.1-8b", "h100_sxm", 1, "sglang"),
]


@pytest.mark.parametrize(("model", "gpu", "tp", "engine"), SERVERS)
@pytest.mark.parametrize("concurrency", [4, 16, 64])
def test_two_ways_to_one_server(model: str, gpu: str, tp: int, engine: str, concurrency: int) -> None:
    """Ten waves of prompts and outputs of 820 to 1,024 tokens, as the usual serving benchmark draws them."""
    load = SimulatedLoad(isl="820-1024", osl="820-1024", concurrency=concurrency, requests=10 * concurrency)
    loop = capplan.simulate(model, gpu, load=load, engine=engine, tensor_parallel_size=tp).result
    form = capplan.estimate(
        model, gpu, load=LoadRequest(922, 922, concurrency, waves=10), engine=engine, tensor_parallel_size=tp
    ).result
    assert loop.mean_tpot_ms == pytest.approx(form.mean_tpot_ms, rel=0.03)
    assert loop.mean_ttft_ms == pytest.approx(form.mean_ttft_ms, rel=0.20)
    assert loop.output_throughput == pytest.approx(form.output_throughput, rel=0.10)
