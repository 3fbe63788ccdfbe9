"""One thing that could be built, and what the search has learnt of it so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from capplan.cost.hire import Hire
from capplan.describe.gpu import GpuSpec
from capplan.memory.budget import MemoryBudget
from capplan.planner.bounds import Bound
from capplan.planner.capacity import Capacity
from capplan.planner.pools import Pair
from capplan.planner.space import Shape
from capplan.questions.drafting import DraftRequest
from capplan.questions.plan_formats import FormatChoice
from capplan.questions.pools import PoolsChoice
from capplan.questions.setting import Setting
from capplan.serving.replica import Replica
from capplan.serving.speculation import expected_tokens

Stage = Literal["priced", "bounded", "fitted", "solved"]


@dataclass(frozen=True)
class Option:
    """A device, an engine, formats, and how they share the model.

    Args:
        gpu: the device.
        engine: the engine.
        format: how the weights are stored.
        kv: format of the KV cache.
        shape: the parallel sizes.
        budget: tokens of a step.
        draft: how it drafts; None: it does not.
        pools: how prefill and decode are kept apart; None: each replica does both.
    """

    gpu: GpuSpec
    engine: str
    format: FormatChoice
    kv: str
    shape: Shape
    budget: int
    draft: DraftRequest | None = None
    pools: PoolsChoice | None = None

    @property
    def least_replicas(self) -> int:
        """The fewest that can be hired."""
        return self.pools.replicas if self.pools else 1

    @property
    def per_round(self) -> float:
        """Tokens of a sequence that a decode step gives, on average."""
        return expected_tokens(self.draft.acceptance, self.draft.tokens) if self.draft else 1.0

    @property
    def label(self) -> str:
        """The option in a few words."""
        shape = self.shape
        sizes = [f"tp{shape.tp}"]
        sizes += [f"pp{shape.pp}"] if shape.pp > 1 else []
        sizes += [f"dp{shape.dp}"] if shape.dp > 1 else []
        sizes += ["ep"] if shape.ep else []
        kv = f", {self.kv} KV" if self.kv != "auto" else ""
        drafts = f", drafts of {self.draft.tokens}" if self.draft else ""
        pools = f", pools {self.pools.label}" if self.pools else ""
        return f"{shape.gpus} × {self.gpu.name} {' '.join(sizes)} {self.engine} {self.format.label}{kv}{drafts}{pools}"


@dataclass(frozen=True)
class Candidate:
    """An option on its way through the search.

    Args:
        option: what it is.
        stage: how far it has come.
        cost: dollars an hour: exact once it is solved, a lower bound before.
        seconds: of a token: what candidates of one cost are tried in the order of.
        replicas: likewise exact or a lower bound.
        hire: what that many replicas stand on.
        setting: the option, looked up.
        bound: what the roofline allows.
        budget: where its memory goes.
        replica: the server.
        capacity: how much it takes, if it does both prefill and decode.
        pair: its pools.
    """

    option: Option
    stage: Stage
    cost: Fraction
    seconds: float = 0.0
    replicas: int = 1
    hire: Hire | None = None
    setting: Setting | None = field(default=None, repr=False)
    bound: Bound | None = field(default=None, repr=False)
    budget: MemoryBudget | None = field(default=None, repr=False)
    replica: Replica | None = field(default=None, repr=False)
    capacity: Capacity | None = field(default=None, repr=False)
    pair: Pair | None = field(default=None, repr=False)

    @property
    def key(self) -> tuple[Fraction, bool, float]:
        """By cost; of equal ones those that are solved first, then the faster."""
        return self.cost, not self.solved, self.seconds

    @property
    def solved(self) -> bool:
        """Whether the cost is exact."""
        return self.stage == "solved"

    @property
    def family(self) -> str:
        """The device: further plans on it are variations."""
        return self.option.gpu.name
