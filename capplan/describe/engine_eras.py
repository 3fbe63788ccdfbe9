"""What older versions of an engine added to every step, and left of the pool: ``engine_eras.yaml``, with sources."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from capplan.describe.engine import engine_rules, version_key
from capplan.describe.engine_times import EngineTimes
from capplan.describe.model import LatentAttention, ModelSpec
from capplan.describe.parts import Part, hydrated
from capplan.describe.yaml_file import read_yaml
from capplan.errors import UsageError

_FILE = Path(__file__).parent / "engine_eras.yaml"


@dataclass(frozen=True, kw_only=True)
class Era(Part):
    """The versions of an engine before one of them."""

    engine: str
    before: str
    """The first version that no longer belongs to it."""
    latent: bool = False
    """Whether it holds for models with latent attention alone."""
    rocm: bool = False
    """Whether it holds for builds on ROCm alone."""
    per_step: float = 0.0
    """Seconds of every step."""
    per_layer: float = 0.0
    """Seconds of every step for each layer."""
    pool_share: float = 1.0
    """KV pool over that of today's version."""
    graph_context: int | None = None
    """Positions beyond which decode steps are not replayed as graphs; None: any."""
    eager_layer: float = 0.0
    """Seconds of the host for each layer of such a step."""
    source: str

    def times(self, times: EngineTimes, layers: int) -> EngineTimes:
        """Today's terms and what the era adds to them: ``per_step + per_layer · layers``."""
        return replace(
            times,
            per_step=times.per_step + self.per_step + self.per_layer * layers,
            graph_context=self.graph_context,
            eager_layer=self.eager_layer,
        )


@lru_cache(maxsize=1)
def _eras() -> tuple[Era, ...]:
    return tuple(hydrated(Era, fields) for fields in read_yaml(_FILE).data["eras"])


ON_ROCM = " on ROCm"
"""What follows the version in the name of an era of builds on ROCm."""


@lru_cache(maxsize=1024)
def era_before(engine: str, version: str, date: str = "") -> str:
    """The name of the nearest era that a version belongs to: its `before`, and whether it is one of builds on ROCm.

    Empty: none, or not a version.

    Args:
        engine: the engine.
        version: as its table has it; what cannot be read is passed over.
        date: of the measurement, where the version says nothing.
    """
    rocm = "rocm" in version.lower()
    for text in (version, date):
        if not text:
            continue
        try:
            known = version_key(engine_rules(engine, text).version)
        except UsageError:
            continue
        later = [
            era for era in _eras() if era.engine == engine and era.rocm <= rocm and known < version_key(era.before)
        ]
        nearest = min(later, key=lambda era: (version_key(era.before), not era.rocm), default=None)
        return "" if nearest is None else nearest.before + (ON_ROCM if nearest.rocm else "")
    return ""


def era_of(engine: str, name: str, spec: ModelSpec) -> Era | None:
    """The era of a model on an engine; None for today's versions.

    Args:
        engine: the engine.
        name: as `era_before` says it; empty: today.
        spec: the model.
    """
    if not name:
        return None
    before, rocm = name.removesuffix(ON_ROCM), name.endswith(ON_ROCM)
    latent = any(isinstance(mixer, LatentAttention) for block in spec.blocks.values() for mixer in block.mixer)
    found = [
        era
        for era in _eras()
        if era.engine == engine
        and era.latent <= latent
        and era.rocm <= rocm
        and version_key(before) <= version_key(era.before)
    ]
    return min(
        found,
        key=lambda one: (one.latent != latent, version_key(one.before), one.rocm != rocm),
        default=None,
    )
