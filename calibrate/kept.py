"""What a profile keeps of its file when a part is measured or imported anew: all that the new part does not replace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibrate.profile_text import hardware_lines
from capplan.describe.profile import Profile, read_profile
from capplan.describe.profile_table import KINDS, KernelFit, write_table


def with_what_was_there(profile: Profile, path: Path) -> tuple[Profile, str]:
    """A profile with what the file that it will replace has besides, and what of it could not be kept, in words.

    Kernels of other engines stay, since their constants are shares of the same figures of the device; where these
    differ they would mean other seconds, and are dropped. So do the terms of other engines, and the errors of carrying.
    The closed loop and the provenance are of torch's kernels, and stay with them.

    Args:
        profile: what was measured or imported now.
        path: the file that it will be written to.

    Raises:
        InvalidFileError: the file is there and no profile.
    """
    if not path.is_file():
        return profile, ""
    earlier = read_profile(path)
    fits = profile.all_fits()
    engines = {fit.key.engine for fit in fits}
    others = [fit for fit in earlier.all_fits() if fit.key.engine not in engines]
    whole = replace(
        profile,
        aliases=profile.aliases or earlier.aliases,
        engine_times={**earlier.engine_times, **profile.engine_times},
        carried_errors=profile.carried_errors or earlier.carried_errors,
    )
    if others and hardware_lines(earlier.hardware) != hardware_lines(profile.hardware):
        names = ", ".join(sorted({fit.key.engine for fit in others}))
        return whole, f"the kernels of {names} that {path.name} had: they are shares of other figures of the device"
    kept = not any(engine.startswith("torch") for engine in engines)
    return replace(
        whole,
        tables=tables_of([*fits, *others]),
        provenance=earlier.provenance if kept else profile.provenance,
        closed_loop=earlier.closed_loop if kept else profile.closed_loop,
    ), ""


def tables_of(fits: Sequence[KernelFit]) -> dict[Any, str]:
    """The fits as a profile's tables."""
    return {
        name: write_table(kind, [fit for fit in fits if fit.kind == name])
        for name, kind in KINDS.items()
        if any(fit.kind == name for fit in fits)
    }
