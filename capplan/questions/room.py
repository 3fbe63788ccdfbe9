"""Whether a step can run at all: weights, caches and states on one rank against the device's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from capplan.describe.engine import engine_rules
from capplan.identity import Same
from capplan.memory.sequence_memory import Lengths, sequence_memory
from capplan.memory.stage_weights import WeightLayout, stage_weights
from capplan.questions.setting import Setting
from capplan.work.formats import plain_plan


@dataclass(frozen=True)
class Room:
    """Memory that a step needs on the rank that holds most.

    Args:
        weight_bytes: weights of the largest stage.
        cache_bytes: caches and states of the step's sequences.
        device_bytes: the device's memory as an engine sees it.
    """

    weight_bytes: int
    cache_bytes: int
    device_bytes: int

    @property
    def missing_bytes(self) -> int:
        """What the device lacks; 0 where the step fits."""
        return max(0, self.weight_bytes + self.cache_bytes - self.device_bytes)

    @property
    def fits(self) -> bool:
        """Whether it fits before the engine takes its own share."""
        return self.missing_bytes == 0


def room(setting: Setting, sequences: Sequence[tuple[int, int]], *, source: int = 0) -> Room:
    """The memory of some sequences, each given as (how many, their context), on one rank of the largest stage.

    Leaves out activations, graphs and whatever else the engine keeps: ``capplan fit`` counts those.

    Args:
        setting: the model and what it runs on.
        sequences: (sequences, context) of each part of the step.
        source: positions of an encoder's input.
    """
    parallel = setting.deployment.parallel
    cache = sum(
        sequence_memory(
            setting.spec, Lengths(context, source), sequences=count, kv_dtype=setting.formats.kv_name
        ).rank_bytes(parallel.tp)
        for count, context in sequences
    )
    shared = parallel.pp * parallel.cp
    return Room(_weights(Same(setting)), -(-cache // shared), setting.gpu.engine_memory)


@lru_cache(maxsize=64)
def _weights(key: Same[Setting]) -> int:
    setting = key.value
    layout = WeightLayout(
        setting.formats.plan or plain_plan(setting.formats.dtype),
        engine_rules(setting.deployment.engine).rules,
        setting.deployment.parallel,
    )
    return max(stage.total for stage in stage_weights(setting.spec, layout))
