"""Reads NIST's nonlinear reference data sets, and has their models."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import arctan, cos, exp, log, pi, sin

FOLDER = Path(__file__).parents[1] / "data" / "nist_strd"

Model = Callable[[Any, Any], Any]


def _enso(b: Any, x: Any) -> Any:
    year = b[1] * cos(2 * pi * x / 12) + b[2] * sin(2 * pi * x / 12)
    second = b[4] * cos(2 * pi * x / b[3]) + b[5] * sin(2 * pi * x / b[3])
    return b[0] + year + second + b[7] * cos(2 * pi * x / b[6]) + b[8] * sin(2 * pi * x / b[6])


def _gauss(b: Any, x: Any) -> Any:
    first = b[2] * exp(-((x - b[3]) ** 2) / b[4] ** 2)
    return b[0] * exp(-b[1] * x) + first + b[5] * exp(-((x - b[6]) ** 2) / b[7] ** 2)


def _lanczos(b: Any, x: Any) -> Any:
    return b[0] * exp(-b[1] * x) + b[2] * exp(-b[3] * x) + b[4] * exp(-b[5] * x)


def _cubic_over_cubic(b: Any, x: Any) -> Any:
    return (b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3) / (1 + b[4] * x + b[5] * x**2 + b[6] * x**3)


def _chwirut(b: Any, x: Any) -> Any:
    return exp(-b[0] * x) / (b[1] + b[2] * x)


MODELS: dict[str, Model] = {
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "BoxBOD": lambda b, x: b[0] * (1 - exp(-b[1] * x)),
    "Chwirut1": _chwirut,
    "Chwirut2": _chwirut,
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "ENSO": _enso,
    "Eckerle4": lambda b, x: b[0] / b[1] * exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": _gauss,
    "Gauss2": _gauss,
    "Gauss3": _gauss,
    "Hahn1": _cubic_over_cubic,
    "Kirby2": lambda b, x: (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2),
    "Lanczos1": _lanczos,
    "Lanczos2": _lanczos,
    "Lanczos3": _lanczos,
    "MGH09": lambda b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda b, x: b[0] * exp(b[1] / (x + b[2])),
    "MGH17": lambda b, x: b[0] + b[1] * exp(-x * b[3]) + b[2] * exp(-x * b[4]),
    "Misra1a": lambda b, x: b[0] * (1 - exp(-b[1] * x)),
    "Misra1b": lambda b, x: b[0] * (1 - (1 + b[1] * x / 2) ** -2),
    "Misra1c": lambda b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** -0.5),
    "Misra1d": lambda b, x: b[0] * b[1] * x / (1 + b[1] * x),
    "Nelson": lambda b, x: b[0] - b[1] * x[0] * exp(-b[2] * x[1]),
    "Rat42": lambda b, x: b[0] / (1 + exp(b[1] - b[2] * x)),
    "Rat43": lambda b, x: b[0] / (1 + exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Roszman1": lambda b, x: b[0] - b[1] * x - arctan(b[2] / (x - b[3])) / pi,
    "Thurber": _cubic_over_cubic,
}


@dataclass(frozen=True)
class Reference:
    """One data set: what is observed, where to begin, and the certified end."""

    name: str
    level: str
    starts: tuple[np.ndarray, np.ndarray]
    certified: np.ndarray
    residual_sum: float
    x: np.ndarray
    y: np.ndarray


def read(name: str) -> Reference:
    """The data set called `name`."""
    lines = (FOLDER / f"{name}.dat").read_text().splitlines()
    text = "\n".join(lines[:60])
    level = re.search(r"(\w+) Level of Difficulty", text)
    total = re.search(r"Residual Sum of Squares:\s+(\S+)", text)
    assert level
    assert total
    rows = re.findall(r"^\s*b\d+ =\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)", text, re.MULTILINE)
    table = np.array([[float(cell) for cell in row] for row in rows])
    data = np.array([[float(cell) for cell in line.split()] for line in lines[60:] if line.strip()])
    y, x = data[:, 0], data[:, 1:].T
    if name == "Nelson":
        y = log(y)
    return Reference(
        name, level[1], (table[:, 0], table[:, 1]), table[:, 2], float(total[1]), x if len(x) > 1 else x[0], y
    )
