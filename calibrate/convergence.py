"""Whether residuals and a Jacobian are those of an optimum: criteria apart from any method of descent.

Needs numpy (the ``fit`` extra).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

ROUNDING = 1e4 * 2.0**-52
"""Residuals below this share of the data are rounding, and say nothing about convergence."""


def relative_offset(residuals: Array, jacobian: Array, magnitude: float = 0.0) -> float:
    """How much of the residuals the constants could still explain, against what they can't.

    offset = (‖Qᵀr‖/√p) / (‖r − QQᵀr‖/√(n − p)), Q an orthonormal basis of the Jacobian's p columns

    Args:
        residuals: r, n of them.
        jacobian: n × p.
        magnitude: of the data: residuals that are rounding do not count below.
    """
    import numpy as np

    n, p = jacobian.shape
    if p == 0:
        return 0.0
    if n <= p:
        return math.inf
    basis, _ = np.linalg.qr(jacobian / column_lengths(jacobian))
    explained = basis.T @ residuals
    left = residuals - basis @ explained
    floor = max(float(np.linalg.norm(left)) / math.sqrt(n - p), ROUNDING * magnitude)
    return float(np.linalg.norm(explained)) / math.sqrt(p) / floor if floor > 0 else 0.0


def condition(jacobian: Array) -> float:
    """Ratio of the greatest to the least singular value, columns scaled to length 1."""
    import numpy as np

    if jacobian.shape[1] == 0:
        return 1.0
    values = np.linalg.svd(jacobian / column_lengths(jacobian), compute_uv=False)
    return float(values[0] / values[-1]) if values[-1] > 0 else math.inf


def column_lengths(jacobian: Array) -> Array:
    """Euclidean length of each column; 1 for one of zeros."""
    import numpy as np

    lengths = np.linalg.norm(jacobian, axis=0)
    return cast("Array", np.where(lengths > 0, lengths, 1.0))
