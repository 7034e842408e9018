"""What `gnomon plan train` can look for: one file each, whose `OBJECTIVE` says which of two plans is the better one."""

from __future__ import annotations

from gnomon.planning.training.objectives import (
    cheapest,
    fastest,
    fewest_gpus,
    largest_model,
    longest_context,
    most_tokens,
)
from gnomon.planning.training.objectives.base import BestPlan, PlanQuery, RankedPlans, Site, TrainingObjective

__all__ = ["OBJECTIVES", "BestPlan", "PlanQuery", "RankedPlans", "Site", "TrainingObjective"]
OBJECTIVES: dict[str, TrainingObjective] = {
    one.OBJECTIVE.name: one.OBJECTIVE
    for one in (fastest, fewest_gpus, cheapest, most_tokens, longest_context, largest_model)
}
