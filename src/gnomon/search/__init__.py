"""Search over plans, exact under its evaluator's bounds: spaces, bounds, objectives, verdicts, Pareto sets."""

from gnomon.search.base import Bounds, Candidate, Evaluator, Level, PlanFamily, Score
from gnomon.search.best_first import SearchResult, highest_rate, search
from gnomon.search.objectives import OBJECTIVES, Objective, SearchJob, objective
from gnomon.search.pareto import pareto
from gnomon.search.space import families

__all__ = [
    "OBJECTIVES",
    "Bounds",
    "Candidate",
    "Evaluator",
    "Level",
    "Objective",
    "PlanFamily",
    "Score",
    "SearchJob",
    "SearchResult",
    "families",
    "highest_rate",
    "objective",
    "pareto",
    "search",
]
