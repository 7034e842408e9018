"""Pipelines over clusters whose networks do not meet: stages are joined by a slower link, reductions stay inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np

from gnomon.engines.training import StepTable
from gnomon.engines.training.case import TrainingCase
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Trial, Values, bandwidth

WORKING_BYTES = 2.0
"""Bytes of a value between stages."""
ETHERNET_GB_S = 3.125
"""A bond of 25 Gb/s per node, as Holmes's clusters have between them."""


class ClusterPipeline(Technique[TrainingCase]):
    name = "cluster-pipeline"
    work = (TRAINING,)
    searched = False
    title = "Pipeline stages in clusters joined by a slower link"
    idea = (
        "Every cluster holds consecutive stages of a pipeline, so that gradients are reduced over its own network and "
        "only activations and their gradients cross the slower link between clusters, which all ranks of a node share."
    )
    trials = (
        Trial(
            paper="holmes",
            words="cluster-pipeline",
            note="The plan without it has one network for all chips. What Holmes compares with sends everything over "
            "the slower link: a cluster file with that as `scaleout`.",
        ),
    )
    parameters = (
        Parameter("clusters", "clusters in a row", default=2.0, low=2.0, high=64.0, whole=True),
        bandwidth("between_gb_s", "what one node sends to another cluster; 0 for 25 Gb/s Ethernet"),
        Parameter("latency_us", "latency of the link between clusters", default=50.0, low=0.0, high=1e6),
    )
    follows: ClassVar = {"pipeline_s": "activations cross the link between clusters at every stage boundary"}

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        plans, clusters, pool = case.plans, int(values["clusters"]), case.pool
        yield plans.pp == 1, "there is no pipeline to lie over clusters (pp is 1)"
        yield (
            plans.pp % clusters != 0,
            lambda row: f"{plans.pp[row]} stages cannot be divided over {clusters} clusters",
        )
        yield (
            (plans.ranks // clusters) % pool.per_node != 0,
            lambda row: f"{plans.ranks[row]} chips are not {clusters} clusters of full nodes of {pool.per_node}",
        )

    def costs(self, found: StepTable, case: TrainingCase, values: Values) -> StepTable:
        """Every send as slow as those between clusters: a pipeline runs at the rate of its slowest boundary."""
        grid = found.grid
        payload = WORKING_BYTES * case.tokens * case.model.hidden
        payload = payload / np.where((grid.sequence_parallel == 1) | case.traits.split_sends, grid.tp, 1)
        senders = np.minimum(case.pool.per_node, grid.ranks // grid.pp)
        node_bytes_s = 1e9 * (float(values["between_gb_s"]) or ETHERNET_GB_S)
        between = 1e-6 * float(values["latency_us"]) + senders * payload / node_bytes_s
        return replace(found, send_s=np.maximum(found.send_s, between))

    def assumed(self, case: TrainingCase, values: Values) -> str:
        if float(values["between_gb_s"]):
            return ""
        return f"{ETHERNET_GB_S:g} GB/s per node between clusters (25 Gb/s Ethernet)"


TECHNIQUES = (ClusterPipeline(),)
