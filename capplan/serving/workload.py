"""What clients ask of a server: lengths, and how many requests at once or how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from capplan.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Workload:
    """A closed loop of `concurrency` clients, or requests that arrive at `request_rate`.

    Args:
        isl: mean input tokens of a request.
        osl: mean output tokens of a request.
        concurrency: clients that each send the next request when the last is answered; None: an open loop.
        request_rate: requests a second of an open loop; None: a closed loop.
        waves: requests a client sends one after the other; with few, the first wave, which comes at once, weighs in
            the means. None: a steady load.
        prefix_hit_rate: share of the input whose cache is there already.
        isl_variation: squared coefficient of variation of the input, ``variance / mean²``; 0: all alike.
        osl_variation: of the output.
    """

    isl: float
    osl: float
    concurrency: float | None = None
    request_rate: float | None = None
    waves: int | None = None
    prefix_hit_rate: float = 0.0
    isl_variation: float = 0.0
    osl_variation: float = 0.0

    @property
    def residing_osl(self) -> float:
        """Mean output of the sequences that run at a moment: ``E[O²] / E[O]``, since long ones stay longer."""
        return self.osl * (1 + self.osl_variation)

    def __post_init__(self) -> None:
        if (self.concurrency is None) == (self.request_rate is None):
            raise UsageError("give either a concurrency or a request rate", where="--concurrency")
        if self.isl < 1 or self.osl < 1:
            raise UsageError("a request has at least one input and one output token", where="--isl")
        if not 0 <= self.prefix_hit_rate < 1:
            raise UsageError(f"must be at least 0 and under 1, not {self.prefix_hit_rate}", where="--prefix-hit-rate")
        for flag, value in (("--concurrency", self.concurrency), ("--request-rate", self.request_rate)):
            if value is not None and not value > 0:
                raise UsageError(f"must be above 0, not {value}", where=flag)


@dataclass(frozen=True)
class Workloads:
    """Closed loops of a sweep, one element of each array a workload.

    Args:
        isl: mean input tokens of a request.
        osl: mean output tokens of a request.
        concurrency: clients.
        prefix_hit_rate: share of the input whose cache is there already.
        isl_variation: squared coefficient of variation of the input.
        waves: None: steady loads.
    """

    isl: npt.NDArray[np.float64]
    osl: npt.NDArray[np.float64]
    concurrency: npt.NDArray[np.float64]
    prefix_hit_rate: float = 0.0
    isl_variation: float = 0.0
    waves: None = None
