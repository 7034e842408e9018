"""The nouns. Frozen data, no hardware knowledge, no I/O; every other package speaks in these.

Each is imported when it is first used, so that reading a command line loads no array library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnomon.spec.answers import NotModelled
    from gnomon.spec.chip import Chip, Link
    from gnomon.spec.cluster import Cluster, Node, Pool, PowerGrid, Price
    from gnomon.spec.estimate import Estimate, Provenance
    from gnomon.spec.ffn import DenseFfn, MoeFfn
    from gnomon.spec.formats import Format, Formats
    from gnomon.spec.host import Host
    from gnomon.spec.mixers import AttentionMixer, CrossAttention, Indexer, LatentAttention
    from gnomon.spec.model import Block, Ffn, Mixer, Model, Tower
    from gnomon.spec.network import NetworkStep
    from gnomon.spec.parts import ConvolutionLayer, Embedding, Linear, Modulation, Norm, Part, Tensor
    from gnomon.spec.plan import EngineChoice, Plan, PlanPool, Strategy
    from gnomon.spec.preprocessor import ImageTokens, VisionPreprocessor
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
    "ImageTokens",
    "Indexer",
    "LatentAttention",
    "LightningAttention",
    "Linear",
    "Link",
    "Mamba",
    "Mamba2",
    "Mixer",
    "Model",
    "Modulation",
    "MoeFfn",
    "NetworkStep",
    "Node",
    "Norm",
    "NotModelled",
    "Part",
    "Plan",
    "PlanPool",
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
    "Tensor",
    "Tower",
    "TrainingLoad",
    "VisionPreprocessor",
]  # fmt: skip

_HOMES = {
    "answers": "NotModelled",
    "chip": "Chip, Link",
    "cluster": "Cluster, Node, Pool, PowerGrid, Price",
    "estimate": "Estimate, Provenance",
    "ffn": "DenseFfn, MoeFfn",
    "formats": "Format, Formats",
    "host": "Host",
    "preprocessor": "ImageTokens, VisionPreprocessor",
    "mixers": "AttentionMixer, CrossAttention, Indexer, LatentAttention",
    "model": "Block, Ffn, Mixer, Model, Tower",
    "network": "NetworkStep",
    "parts": "ConvolutionLayer, Embedding, Linear, Modulation, Norm, Part, Tensor",
    "plan": "EngineChoice, Plan, PlanPool, Strategy",
    "recurrent": "GatedDelta, LightningAttention, Mamba, Mamba2, ShortConvolution",
    "serving": "ServingLimits",
    "training": "Recipe, TrainingLoad",
    "workload": "Batch, Goal, Requests, ServingLoad",
}
"""The names of each module."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    home = next((module for module, names in _HOMES.items() if name in names.split(", ")), None)
    if home is None:
        raise AttributeError(f"module 'gnomon.spec' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(f"gnomon.spec.{home}"), name)
    return found
