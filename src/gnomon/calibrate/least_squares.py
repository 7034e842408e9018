"""Robust non-linear least squares for a handful of coefficients, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
STEP = 1e-3


def fit(
    residual: Callable[[dict[str, float]], Floats],
    ranges: Mapping[str, tuple[float, float, float]],
    *,
    scale: float = 0.05,
    rounds: int = 60,
) -> dict[str, float]:
    """Coefficients within their ranges (start, least, most) that make the residuals small; large ones count linearly.

    Levenberg-Marquardt with numeric derivatives on soft-L1 weights; deterministic.
    """
    names = list(ranges)
    x, low, high = np.array(list(ranges.values()), float).T
    damping = 1e-2

    def evaluate(point: Floats) -> tuple[Floats, float]:
        r = residual(dict(zip(names, point.tolist(), strict=True)))
        return r, float(np.sum(2 * (np.sqrt(1 + (r / scale) ** 2) - 1)))

    r, loss = evaluate(x)
    for _ in range(rounds):
        jacobian = _jacobian(lambda p: evaluate(p)[0], x, r, high - low, high)
        weight = 1 / np.sqrt(1 + (r / scale) ** 2)
        normal = jacobian.T @ (weight[:, None] * jacobian)
        gradient = jacobian.T @ (weight * r)
        for _ in range(8):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), -gradient)
            trial = np.clip(x + step, low, high)
            trial_r, trial_loss = evaluate(trial)
            if trial_loss < loss:
                break
            damping *= 4
        else:
            break
        gain = loss - trial_loss
        x, r, loss, damping = trial, trial_r, trial_loss, max(damping / 5, 1e-9)
        if gain < 1e-7 * loss:
            break
    return dict(zip(names, x.tolist(), strict=True))


def _jacobian(f: Callable[[Floats], Floats], x: Floats, r: Floats, span: Floats, high: Floats) -> Floats:
    columns = []
    for i in range(x.size):
        h = STEP * max(abs(x[i]), 0.05 * span[i])
        h = -h if x[i] + h > high[i] else h
        moved = x.copy()
        moved[i] += h
        columns.append((f(moved) - r) / h)
    return np.stack(columns, axis=1)
