"""A plan, for what starts it, and the pieces that commands and manifests share."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from capplan.planner.launch import Command, Launch

INDENT = "  "


@dataclass(frozen=True)
class Deployed:
    """A plan, for what starts it.

    Args:
        launch: one replica.
        replicas: how many; of pools, all of them.
        gpu: the device's name in the catalog.
        vendor: who makes it.
        headline: the plan in a line, for a comment.
        prefill: replicas of a unit that only prefill; 0: each replica does both.
        decode: replicas of a unit that only decode.
        units: equal pairs of pools.
    """

    launch: Launch
    replicas: int
    gpu: str
    vendor: str
    headline: str
    prefill: int = 0
    decode: int = 0
    units: int = 1

    @property
    def pools(self) -> tuple[tuple[Launch, int], ...]:
        """What one replica of each pool is told, and how many there are; nothing where each replica does both."""
        if not self.prefill:
            return ()
        return (replace(self.launch, role="prefill"), self.prefill), (replace(self.launch, role="decode"), self.decode)


def yaml_of(command: Command) -> str:
    """The YAML file of a command: dotted names nested."""
    lines: list[str] = []
    open_section = ""
    for name, value in command.config:
        section, _, key = name.rpartition(".")
        if section and section != open_section:
            lines.append(f"{section}:")
        open_section = section
        lines.append(f"{INDENT if section else ''}{key}: {json.dumps(value)}")
    return "\n".join(lines)


def config_name(command: Command) -> str:
    """The file that a command reads its configuration from."""
    return next(value or "" for name, value in command.options if name in ("--config", "-c"))
