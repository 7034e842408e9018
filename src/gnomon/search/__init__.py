"""Search over plans, exact under its evaluator's bounds: spaces, bounds, objectives, verdicts, Pareto sets."""

from gnomon.search.base import Bounds, Candidate, Evaluator, Family, Level, Score
from gnomon.search.best_first import Found, highest_rate, search
from gnomon.search.objectives import OBJECTIVES, Job, Objective, objective
from gnomon.search.pareto import pareto
from gnomon.search.space import degrees, families

__all__ = [
    "OBJECTIVES",
    "Bounds",
    "Candidate",
    "Evaluator",
    "Family",
    "Found",
    "Job",
    "Level",
    "Objective",
    "Score",
    "degrees",
    "families",
    "highest_rate",
    "objective",
    "pareto",
    "search",
]
