"""One clear answer where torch is wanted and not installed."""

from __future__ import annotations

from importlib.util import find_spec

from capplan.errors import NotFoundError

EXTRA = "pip install 'capplan[calibrate]'"


def require_torch(command: str = "capplan calibrate") -> None:
    """Return if torch can be imported.

    Raises:
        NotFoundError: it can't; the hint installs it.
    """
    if find_spec("torch") is None:
        raise NotFoundError(f"{command} measures with torch, which is not installed", hint=EXTRA)


def require_scipy(command: str = "capplan calibrate fit") -> None:
    """Return if numpy and scipy can be imported.

    Raises:
        NotFoundError: they can't; the hint installs them.
    """
    missing = [name for name in ("numpy", "scipy") if find_spec(name) is None]
    if missing:
        raise NotFoundError(f"{command} needs {' and '.join(missing)}, which is not installed", hint=EXTRA)
