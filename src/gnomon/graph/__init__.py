"""Operators of a step, without any hardware: what is computed, moved and exchanged."""

from gnomon.graph.base import Graph
from gnomon.graph.lower import lower, lower_cut, paged_cut
from gnomon.graph.ops import Attention, Collective, Elementwise, Experts, Gemm, Op, Rows

__all__ = [
    "Attention",
    "Collective",
    "Elementwise",
    "Experts",
    "Gemm",
    "Graph",
    "Op",
    "Rows",
    "lower",
    "lower_cut",
    "paged_cut",
]
