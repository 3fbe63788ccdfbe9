"""The figures of an introduction about bandwidth, compute, attention kernels and parallelism, on its own inputs.

See docs/textbook-figures.md. Source: "The complete guide to LLM inference optimisation" (Japanese, kept as plain text by
the project's maintainers). Figures are computed again; where one is wrong, both stand here with the reason; claims are
compared with what capplan counts, and not asserted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import capplan
from capplan.memory.tensors import Split, Tensor
from capplan.questions.setting import resolve_setting
from capplan.timing.roofline import operator_bound
from capplan.work.attention_traffic import Access, flash_attention, naive_attention, tiled_attention
from capplan.work.sharding import Sharding, rank_matrix
from capplan.work.step import Decode, Prefill, Step, ledger

SEED_GPU = {"gpu_memory": "80GiB", "memory_bandwidth": "2TB/s", "tflops": "312"}
"""The guide's A100: 2 TB/s and 312 TFLOP/s, whatever the model of the card."""

HIDDEN, LAYERS, COLUMNS, VOCABULARY = 4096, 32, 11008, 32000
GUIDE_BYTES = 12 * HIDDEN**2 * LAYERS * 2
"""What the guide takes for the weights of Llama-2-7B: 12.88 GB."""


# --- bandwidth and compute --------------------------------------------------------------------------------------


def test_the_memory_bound_of_llama2_7b() -> None:
    """155.2 tokens/s on the guide's weights; 151.3 on the model's, whose head and SwiGLU it leaves out."""
    assert f"{2.0e12 / GUIDE_BYTES:.1f}" == "155.2"
    step = capplan.decode("llama2-7b", context=1, **SEED_GPU).result.step
    layer = 4 * HIDDEN**2 + 3 * HIDDEN * COLUMNS + 2 * HIDDEN
    read = 2 * (LAYERS * layer + HIDDEN + VOCABULARY * HIDDEN + HIDDEN)  # the head, and one row of the token table
    assert step.weight_bytes == read
    assert f"{1 / step.memory_seconds:.1f}" == "151.3"


def test_the_cache_is_read_too() -> None:
    """The guide counts 1.07 GB of cache for 2,048 tokens, and leaves it out of the bound: 140.0 tokens/s with it."""
    step = capplan.decode("llama2-7b", context=2048, **SEED_GPU).result.step
    assert step.kv_bytes == (2048 + 1) * 524_288  # the last position is written, and then read as well
    assert f"{1 / step.memory_seconds:.1f}" == "140.0"


def test_the_compute_bound_takes_two_flops_a_weight_not_a_byte() -> None:
    """312 TFLOP/s over 2 FLOPs for each *byte* is 12,107 tokens/s; a weight has two bytes, so that 24,214 is right."""
    assert f"{312e12 / (2 * GUIDE_BYTES):,.0f}" == "12,107"
    assert f"{312e12 / (2 * GUIDE_BYTES / 2):,.0f}" == "24,214"
    step = capplan.decode("llama2-7b", context=1, **SEED_GPU).result.step
    weights = LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * COLUMNS) + VOCABULARY * HIDDEN
    attention = 4 * LAYERS * HIDDEN  # one position that sees itself
    assert step.flops == 2 * weights + attention
    assert f"{1 / step.compute_seconds:,.0f}" == "23,610"  # on the model's own weights


def test_the_bottleneck_is_memory_by_a_factor_of_156() -> None:
    """The guide says memory, and it is; the ratio is P/BW, since a 16-bit weight has two FLOPs for two bytes."""
    answer = capplan.decode("llama2-7b", context=1, **SEED_GPU)
    step = answer.result.step
    assert step.limit == "memory"
    assert step.memory_seconds / step.compute_seconds == pytest.approx(312e12 / 2.0e12, rel=2e-3)
    assert "bounds alone" in answer.warnings[0]


# --- engines compared -------------------------------------------------------------------------------------------

ENGINES = {
    "HuggingFace (FP16)": (52, 1924),
    "HuggingFace (Flash Attn 2)": (78, 1280),
    "vLLM": (120, 832),
    "vLLM + AWQ 4bit": (165, 606),
    "TensorRT-LLM": (180, 555),
}
"""(tokens/s, ms for 100 tokens) of Llama-2-7B on an A100 80GB at batch 1, as the guide prints them."""


@pytest.mark.parametrize("engine", ENGINES)
def test_throughput_and_latency_agree(engine: str) -> None:
    """100 tokens in that many milliseconds, to a third of a percent."""
    throughput, latency_ms = ENGINES[engine]
    assert 100 / (latency_ms / 1e3) == pytest.approx(throughput, rel=3e-3)


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "a100-pcie-80gb"])
def test_tensorrt_llm_is_above_what_the_bandwidth_allows(gpu: str) -> None:
    """13.2 GB of 16-bit weights cannot be read 180 times a second at 2.04 TB/s: whatever ran was not 16-bit."""
    bound = capplan.decode("llama2-7b", gpu, context=1).result.output_throughput_bound
    assert bound < 155
    assert ENGINES["TensorRT-LLM"][0] > bound
    assert all(ENGINES[name][0] < bound for name in ("HuggingFace (FP16)", "HuggingFace (Flash Attn 2)", "vLLM"))
    eight_bit = capplan.decode("llama2-7b", gpu, context=1, weight_dtype="int8").result.output_throughput_bound
    assert ENGINES["TensorRT-LLM"][0] < eight_bit


def test_predictions_stand_between_the_table_and_the_bound() -> None:
    """Compared: vLLM's 120 tokens/s against a prediction below the bound, with an interval."""
    result = capplan.decode("llama2-7b", "a100-sxm-80gb", context=100).result
    assert result.output_throughput is not None
    assert result.tpot_ms_low is not None
    assert 80 < result.output_throughput < 1e3 / result.tpot_ms_low < result.output_throughput_bound


def test_four_bit_weights_are_under_their_own_claim() -> None:
    """ "1.5-2x" against the guide's own table (1.375x), the bound's 3.6x, and a prediction in between."""
    assert ENGINES["vLLM + AWQ 4bit"][0] / ENGINES["vLLM"][0] == 1.375
    plain, awq = (
        capplan.decode("llama2-7b", "a100-sxm-80gb", context=100, weight_dtype=dtype).result
        for dtype in (None, "awq-int4-g128")
    )
    assert f"{plain.tpot_bound_ms / awq.tpot_bound_ms:.1f}" == "3.6"
    assert plain.tpot_ms is not None
    assert awq.tpot_ms is not None
    assert 1.3 < plain.tpot_ms / awq.tpot_ms < 3.6


# --- attention kernels ------------------------------------------------------------------------------------------

GUIDE_LIST = [("Q, K", "read", "N·d"), ("S", "write", "N²"), ("S", "read", "N²"), ("P", "write", "N²"), ("P", "read", "N²"), ("O", "write", "N·d")]  # fmt: skip
"""The guide's accesses of standard attention, in its order."""


def test_the_list_of_standard_attention() -> None:
    """The guide's six lines, and the one that it forgets: ``P @ V`` reads V, too."""
    accesses = naive_attention(2048, 2048, 64, 64, 2)
    orders = {"n·D": "N·d", "s·D": "N·d", "s·Dv": "N·d", "n·Dv": "N·d", "n·s": "N²"}
    counted = [(access.tensor, access.direction, orders[access.order]) for access in accesses]
    joined = [("Q, K", "read", "N·d") if line[0] == "Q" else line for line in counted if line[0] != "K"]
    assert [line for line in joined if line[0] != "V"] == GUIDE_LIST
    assert ("V", "read", "N·d") in counted


def test_standard_attention_is_quadratic() -> None:
    total = [sum(access.bytes for access in naive_attention(n, n, 64, 64, 2)) for n in (4096, 8192)]
    assert 3.9 < total[1] / total[0] < 4


def loop_of_the_guide(length: int, width: int, block: int) -> dict[tuple[str, str], int]:
    """The guide's ``flash_attention_v1``, counting the elements of every slice that its loops read and write."""
    counts: dict[tuple[str, str], int] = {}

    def count(tensor: str, direction: str, elements: int) -> None:
        counts[tensor, direction] = counts.get((tensor, direction), 0) + elements

    blocks = (length + block - 1) // block
    for j in range(blocks):
        keys = min((j + 1) * block, length) - j * block
        count("K", "read", keys * width)
        count("V", "read", keys * width)
        for i in range(blocks):
            rows = min((i + 1) * block, length) - i * block
            count("Q", "read", rows * width)
            for name, size in (("O", width), ("L", 1), ("M", 1)):
                count(name, "read", rows * size)
                count(name, "write", rows * size)
    return counts


@pytest.mark.parametrize(("length", "block"), [(2048, 64), (1000, 64)])
def test_the_list_of_flash_attention(length: int, block: int) -> None:
    """The same list out of `tiled_attention`: K and V once, Q and O and both statistics with every block of keys."""
    counts = loop_of_the_guide(length, 64, block)
    accesses = tiled_attention(length, length, 64, 64, 2, block)

    def bytes_of(access: Access) -> int:
        if access.tensor == "maximum and sum":  # two fp32 numbers a query
            return 4 * (counts["L", access.direction] + counts["M", access.direction])
        return 2 * counts[access.tensor, access.direction]

    assert [access.bytes for access in accesses] == [bytes_of(access) for access in accesses]


def test_flash_attention_stores_no_square() -> None:
    """O(N) memory: what is written is N·d and one number a query; the traffic of the first algorithm is not O(N)."""
    written = [sum(a.bytes for a in flash_attention(n, n, 64, 64, 2) if a.direction == "write") for n in (1024, 8192)]
    assert written[1] == 8 * written[0]
    traffic = [sum(a.bytes for a in tiled_attention(n, n, 64, 64, 2, 64)) for n in (1024, 8192)]
    assert traffic[1] > 50 * traffic[0]


def test_the_speed_of_flash_attention_against_its_claim() -> None:
    """ "2-4x" on an A100: the roofline allows 9.9x for 2,048 queries of 64 elements, from 33 times the bytes.

    The naive kernel is memory-bound (its scores cross memory four times), the tiled one compute-bound.
    """
    setting = resolve_setting("llama2-7b", "a100-sxm-80gb")
    bounds = {}
    for kernel in ("naive", "flash"):
        work = ledger(setting.spec, Step(prefill=(Prefill(2048),)), attention=kernel)  # type: ignore[arg-type]
        (operator,) = work.of_kind("prefill_attention")
        bounds[kernel] = operator_bound(operator, setting.gpu)
    assert bounds["naive"].limit == "memory"
    assert bounds["flash"].limit == "compute"
    assert 4 < bounds["naive"].seconds / bounds["flash"].seconds < 12
    naive = sum(access.bytes for access in naive_attention(2048, 2048, 64, 64, 2))
    flash = sum(access.bytes for access in flash_attention(2048, 2048, 64, 64, 2))
    assert f"{naive / flash:.0f}" == "33"


# --- tensor parallelism -----------------------------------------------------------------------------------------


def test_a_column_parallel_layer_has_its_share_of_the_outputs() -> None:
    """``out_features // world_size`` is right where it divides; 11,008 columns over 3 ranks lose one."""
    setting = resolve_setting("llama2-7b", "h100")
    (gate, *_) = [
        op
        for op in ledger(setting.spec, Step(decode=(Decode(1, 1),)), Sharding(tp=4)).operators
        if op.name == "gate_up_proj"
    ]
    assert gate.shape.n == 2 * COLUMNS // 4  # type: ignore[union-attr]
    tensor = Tensor("mlp.gate_proj.weight", "mlp", (COLUMNS, HIDDEN), split=Split(0, COLUMNS), linear=True)
    assert rank_matrix(tensor, 3) == (3670, HIDDEN)
    assert 3 * (COLUMNS // 3) == COLUMNS - 1


def test_a_row_parallel_layer_saves_the_gather() -> None:
    """The guide gathers after each layer; engines pair columns with rows, and sum once: two messages a layer."""
    setting = resolve_setting("llama2-7b", "h100")
    work = ledger(setting.spec, Step(decode=(Decode(1, 1),)), Sharding(tp=4))
    messages = {op.name: op.count for op in work.of_kind("collective")}
    assert messages["all-reduce after o_proj"] == messages["all-reduce after down_proj"] == LAYERS
    assert sum(messages.values()) == 2 * LAYERS + 2  # and one each for the embedding and the logits


def test_scaling_is_linear_in_the_bound_alone() -> None:
    """ "Linear throughput scaling": eight H100 are 8.0x one in the bound of Llama-2-70B, and well under it corrected."""
    one, eight = (
        capplan.decode("llama2-70b", "h100-sxm-80gb", context=4096, tensor_parallel_size=tp).result for tp in (1, 8)
    )
    assert one.tpot_bound_ms / eight.tpot_bound_ms == pytest.approx(8, rel=1e-3)
    assert one.tpot_ms is not None
    assert eight.tpot_ms is not None
    assert 3 < one.tpot_ms / eight.tpot_ms < 7


# --- mixtures of experts ----------------------------------------------------------------------------------------


def test_few_active_parameters_are_fast_for_one_token_only() -> None:
    """ "35B-A3B is as fast as a dense 3B" is a hypothesis to the other introduction: true of one token's bytes alone."""
    ratios = {}
    for batch in (1, 64):
        experts, dense = (
            capplan.decode(model, "h100-sxm-80gb", context=2048, batch=batch).result
            for model in ("qwen3.5-35b-a3b", "qwen2.5-3b")
        )
        ratios[batch] = experts.tpot_bound_ms / dense.tpot_bound_ms
        assert experts.tpot_ms is not None
        assert dense.tpot_ms is not None
        assert experts.tpot_ms > dense.tpot_ms
    assert 0.9 < ratios[1] < 1.1
    assert ratios[64] > 6


def test_the_page_has_these_figures() -> None:
    """docs/textbook-figures.md prints what capplan computes today; predictions to a fifth."""
    page = (Path(__file__).parents[2] / "docs" / "textbook-figures.md").read_text(encoding="utf-8")

    def throughput(gpu: str, **options: Any) -> tuple[float, float]:
        result = capplan.decode("llama2-7b", gpu, context=1, **options).result
        assert result.output_throughput is not None
        return result.output_throughput_bound, result.output_throughput

    sxm, pcie = throughput("a100-sxm-80gb"), throughput("a100-pcie-80gb")
    awq = throughput("a100-sxm-80gb", weight_dtype="awq-int4-g128")
    assert f"{sxm[0]:.1f} tokens/s on the SXM card (2.04 TB/s; {pcie[0]:.1f} on the PCIe card)" in page
    assert f"| {awq[0]:.0f} |" in page
    predicted = re.search(r"capplan predicts about (\d+) \|", page)
    quicker = re.search(r"capplan predicts about ([\d.]+)×", page)
    scaled = re.search(r"about (\d+) times predicted", page)
    assert predicted is not None
    assert quicker is not None
    assert scaled is not None
    assert sxm[1] == pytest.approx(float(predicted[1]), rel=0.2)
    assert awq[1] / sxm[1] == pytest.approx(float(quicker[1]), rel=0.2)
    one, eight = (
        capplan.decode("llama2-70b", "h100-sxm-80gb", context=4096, tensor_parallel_size=tp).result.tpot_ms
        for tp in (1, 8)
    )
    assert one is not None
    assert eight is not None
    assert one / eight == pytest.approx(float(scaled[1]), rel=0.2)
