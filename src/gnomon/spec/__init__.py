"""The nouns. Frozen data, no hardware knowledge, no I/O; every other package speaks in these."""

from gnomon.spec.answers import NotModelled
from gnomon.spec.chip import Chip, Link
from gnomon.spec.cluster import Cluster, Grid, Node, Pool, Price
from gnomon.spec.estimate import Estimate, Provenance
from gnomon.spec.ffn import DenseFfn, MoeFfn
from gnomon.spec.formats import Format, Formats
from gnomon.spec.host import Host
from gnomon.spec.intake import Intake, Taken
from gnomon.spec.mixers import Attention, CrossAttention, Indexer, LatentAttention
from gnomon.spec.model import Block, Ffn, Mixer, Model, Tower
from gnomon.spec.network import NetworkStep
from gnomon.spec.parts import Convolution, Linear, Norm, Part, Table, Tensor
from gnomon.spec.plan import EngineChoice, Plan, Strategy
from gnomon.spec.recurrent import GatedDelta, LightningAttention, Mamba, Mamba2, ShortConvolution
from gnomon.spec.serving import ServingLimits
from gnomon.spec.training import Recipe, TrainingLoad
from gnomon.spec.workload import Batch, Goal, Requests, ServingLoad

__all__ = [
    "Attention",
    "Batch",
    "Block",
    "Chip",
    "Cluster",
    "Convolution",
    "CrossAttention",
    "DenseFfn",
    "EngineChoice",
    "Estimate",
    "Ffn",
    "Format",
    "Formats",
    "GatedDelta",
    "Goal",
    "Grid",
    "Host",
    "Indexer",
    "Intake",
    "LatentAttention",
    "LightningAttention",
    "Linear",
    "Link",
    "Mamba",
    "Mamba2",
    "Mixer",
    "Model",
    "MoeFfn",
    "NetworkStep",
    "Node",
    "Norm",
    "NotModelled",
    "Part",
    "Plan",
    "Pool",
    "Price",
    "Provenance",
    "Recipe",
    "Requests",
    "ServingLimits",
    "ServingLoad",
    "ShortConvolution",
    "Strategy",
    "Table",
    "Taken",
    "Tensor",
    "Tower",
    "TrainingLoad",
]
