"""The nouns. Frozen data, no hardware knowledge, no I/O; every other package speaks in these."""

from gnomon.spec.answers import NotModelled
from gnomon.spec.chip import Chip, Link
from gnomon.spec.cluster import Cluster, Node, Pool, PowerGrid, Price
from gnomon.spec.estimate import Estimate, Provenance
from gnomon.spec.ffn import DenseFfn, MoeFfn
from gnomon.spec.formats import Format, Formats
from gnomon.spec.host import Host
from gnomon.spec.intake import Intake, Taken
from gnomon.spec.mixers import AttentionMixer, CrossAttention, Indexer, LatentAttention
from gnomon.spec.model import Block, Ffn, Mixer, Model, Tower
from gnomon.spec.network import NetworkStep
from gnomon.spec.parts import ConvolutionLayer, Embedding, Linear, Norm, Part, Tensor
from gnomon.spec.plan import EngineChoice, Plan, Strategy
from gnomon.spec.recurrent import GatedDelta, LightningAttention, Mamba, Mamba2, ShortConvolution
from gnomon.spec.serving import ServingLimits
from gnomon.spec.training import Recipe, TrainingLoad
from gnomon.spec.workload import Batch, Goal, Requests, ServingLoad

__all__ = [
    "AttentionMixer",
    "Batch",
    "Block",
    "Chip",
    "Cluster",
    "ConvolutionLayer",
    "CrossAttention",
    "DenseFfn",
    "Embedding",
    "EngineChoice",
    "Estimate",
    "Ffn",
    "Format",
    "Formats",
    "GatedDelta",
    "Goal",
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
    "PowerGrid",
    "Price",
    "Provenance",
    "Recipe",
    "Requests",
    "ServingLimits",
    "ServingLoad",
    "ShortConvolution",
    "Strategy",
    "Taken",
    "Tensor",
    "Tower",
    "TrainingLoad",
]
