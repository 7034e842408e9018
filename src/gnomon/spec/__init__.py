"""The nouns. Frozen data, no hardware knowledge, no I/O; every other package speaks in these."""

from gnomon.spec.chip import Chip, Link
from gnomon.spec.cluster import Cluster, Grid, Node, Pool, Price
from gnomon.spec.estimate import Estimate, Provenance
from gnomon.spec.host import Host
from gnomon.spec.model import Attention, Block, DenseFfn, Model, MoeFfn
from gnomon.spec.plan import EngineChoice, Plan, Strategy
from gnomon.spec.serving import ServingLimits
from gnomon.spec.training import Recipe, TrainingLoad
from gnomon.spec.workload import Batch, Goal, Requests, ServingLoad

__all__ = [
    "Attention",
    "Batch",
    "Block",
    "Chip",
    "Cluster",
    "DenseFfn",
    "EngineChoice",
    "Estimate",
    "Goal",
    "Grid",
    "Host",
    "Link",
    "Model",
    "MoeFfn",
    "Node",
    "Plan",
    "Pool",
    "Price",
    "Provenance",
    "Recipe",
    "Requests",
    "ServingLimits",
    "ServingLoad",
    "Strategy",
    "TrainingLoad",
]
