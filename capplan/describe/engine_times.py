"""What an engine adds to its kernels in every step, as named constants with their sources."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, overload

from capplan.describe.parts import Part, hydrated
from capplan.describe.yaml_file import read_yaml

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Quantity = float | npt.NDArray[np.float64]

_FILE = Path(__file__).parent / "engine_times.yaml"


@dataclass(frozen=True, kw_only=True)
class EngineTimes(Part):
    """Seconds and shares that stand beside the laws of the large kernels.

    Args of a step::

        step = kernel_share · Σ bodies + Σ launches + small_kernel · N + per_sequence · B + per_step

    With prompt tokens the bodies take ``prompt_ratio`` times as long, and the host launches what no graph replays::

        step >= host_layer · layers + host_launches · Σ launches
    """

    kernel_share: float = 1.0
    """Time of a kernel's body inside a step that only decodes over that of the kernel measured alone."""
    prompt_ratio: float = 1.0
    """The same share in steps with prompt tokens over `kernel_share`; 1/kernel_share where they gain nothing."""
    small_kernel: float = 3e-6
    """Seconds of a norm, rotation, cache write or activation function beside its bytes."""
    small_kernel_bandwidth: float = 0.7
    """Share of the memory bandwidth that such kernels reach."""
    per_sequence: float = 0.0
    """Seconds of scheduling, sampling and detokenising a sequence in every step."""
    per_step: float = 0.0
    """Seconds of a step beside its kernels and its sequences."""
    host_launch: float = 5e-6
    """Seconds that the host takes to launch one kernel when no graph is replayed."""
    graph_context: int | None = None
    """Positions of a sequence beyond which its decode steps are not replayed as graphs; None: any."""
    eager_layer: float = 0.0
    """Seconds of the host for each layer of such a step."""
    fused: tuple[str, ...] = ()
    """Small kernels, by the operators' names, that the engine runs inside another, with no launch of their own."""
    fuses_quantising: bool = False
    """Whether activations are quantised inside the kernel before a product, so that it costs no launch of its own."""
    prefill_joins_decode: bool = True
    """Whether a prompt's prefill shares steps with running sequences (chunked prefill) or stops them."""
    held_output: float = 0.5
    """Share of its output that a running request holds in the pool on average, or that is kept free for it."""
    host_layer: float = 0.0
    """Seconds of the host for each layer of a prefill step whose layers are launched one by one."""
    host_launches: float = 0.0
    """Time of the host for each kernel of a prefill step over the kernel's launch in a replayed graph."""
    first_token: float = 0.0
    """Seconds of the front end before a request reaches the scheduler and after its first token leaves it."""
    per_input_token: float = 0.0
    """Seconds of the front end (tokenising, hashing) for each input token; prompts pass it one after another."""
    first_token_steps: float = 0.0
    """Decode steps between a request's arrival, its prefill and the delivery of its first token."""
    tpot_low: float = 0.8
    """10th percentile of measured over predicted time per output token, on models left out of the fit."""
    tpot_high: float = 1.3
    """Its 90th percentile."""
    ttft_low: float = 0.6
    """10th percentile of measured over predicted time to the first token, on models left out of the fit."""
    ttft_high: float = 1.6
    """Its 90th percentile."""
    sources: dict[str, str] = field(default_factory=dict)

    def body_share(self, *, prompts: bool) -> float:
        """Time of kernels' bodies in a step, with prompt tokens or without, over that of the kernels alone."""
        return self.kernel_share * (self.prompt_ratio if prompts else 1.0)

    @overload
    def prompt_host(self, layers: float, launches: float) -> float: ...

    @overload
    def prompt_host(self, layers: Quantity, launches: Quantity) -> Quantity: ...

    def prompt_host(self, layers: Quantity, launches: Quantity) -> Quantity:
        """Seconds that the host needs at least for prefill steps: ``host_layer · layers + host_launches · Σ launches``.

        Args:
            layers: layers of the steps.
            launches: seconds of their kernels' launches in a replayed graph.
        """
        return self.host_layer * layers + self.host_launches * launches

    @overload
    def around_prefill(self, isl: float, step: float) -> float: ...

    @overload
    def around_prefill(self, isl: Quantity, step: Quantity) -> Quantity: ...

    def around_prefill(self, isl: Quantity, step: Quantity) -> Quantity:
        """Seconds of a first token beside waiting and prefill: ``t0 + tok · L + kx · step``.

        Args:
            isl: L, tokens of the prompt.
            step: seconds of a decode step, or of an output token.
        """
        return self.first_token + self.per_input_token * isl + self.first_token_steps * step


@lru_cache(maxsize=1)
def _all_times() -> dict[str, EngineTimes]:
    data = read_yaml(_FILE).data
    return {name: hydrated(EngineTimes, fields) for name, fields in data["engines"].items()}


def engine_times(engine: str) -> EngineTimes:
    """The terms of an engine; those of ``default`` for one that was not fitted."""
    known = _all_times()
    return known.get(engine, known["default"])
