"""What all training engines share: a step's seconds and bytes from an engine's traits, for many plans at once."""

from gnomon.engines.training.grid import Grid
from gnomon.engines.training.memory import RankMemory, rank_memory
from gnomon.engines.training.step_table import Sizes, StepTable, figures, sizes
from gnomon.engines.training.traits import Optimizer, Traits, Update

__all__ = [
    "Grid",
    "Optimizer",
    "RankMemory",
    "Sizes",
    "StepTable",
    "Traits",
    "Update",
    "figures",
    "rank_memory",
    "sizes",
]
