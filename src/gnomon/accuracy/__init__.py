"""How far off predictions are, on data that nothing was fitted to: operators, chips, steps, deployments, runs."""

from __future__ import annotations

from gnomon.accuracy.result import Accuracy, accuracy

__all__ = ["Accuracy", "accuracy"]
