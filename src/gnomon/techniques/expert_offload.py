"""Experts in host memory, with a cache of some on the chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gnomon.cost.host_link import HANDOVER_S, cpu_bytes_s, cpu_flops_s, host_bytes_s
from gnomon.engines.base import MemoryUse, RankBytes, ServingCase
from gnomon.graph.host_ops import HostExperts, HostRates
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.ops import Experts, Op
from gnomon.graph.popularity import ASSUMED_SKEW, MOST_SKEW
from gnomon.graph.tape import TapeNode
from gnomon.spec import Block, Model, MoeFfn
from gnomon.spec.formats import plain
from gnomon.techniques.base import SERVING, Parameter, Rejection, Technique, Trial, Values, bandwidth
from gnomon.techniques.hosts import no_host

POPULAR, ANY = "popular", "any"
CPU, COPY, BOTH = "cpu", "copy", "both"
MATRICES = "expert_"
"""How the roles of experts' matrices begin."""


class ExpertOffload(Technique[ServingCase]):
    name = "expert-offload"
    work = (SERVING,)
    title = "Experts in host memory, some cached on the chip"
    idea = (
        "Experts lie in host memory and the chip caches a share of each layer's; what is visited and not cached is "
        "copied to the chip, or computed by the host's processors where it lies, or shared out between both: mixtures "
        "far larger than the chip run, and steps wait for what misses."
    )
    trials = (
        Trial(
            paper="hybrimoe",
            words="expert-offload:cached=0.25",
            against="expert-offload:cached=0.25,misses=cpu,keeps=any",
        ),
        Trial(
            paper="expertflow",
            words="expert-offload:cached=0.125,misses=copy",
            note="Experts that are predicted before they are needed count as hits: `skew` says how well.",
        ),
    )
    parameters = (
        Parameter("cached", "share of each layer's experts on the chip", default=0.5, high=1.0, tried=(0.25, 0.5)),
        Parameter(
            "misses", "experts that are not cached are copied, computed by the host, or shared out", default=BOTH,
            choices=(BOTH, COPY, CPU),
        ),
        Parameter("keeps", "whether the cache has the experts chosen most, or any", default=POPULAR,
                  choices=(POPULAR, ANY)),
        Parameter("skew", "exponent of the power law by which experts are chosen; the default is assumed",
                  default=ASSUMED_SKEW, high=MOST_SKEW),
        bandwidth("link_gb_s", "bandwidth of one chip's copies; 0 for the link's bandwidth"),
        bandwidth("cpu_gb_s", "bytes of experts that the host multiplies per second; 0 for its memory's bandwidth"),
        Parameter("cpu_tflop_s", "FLOPs of the host's processors; 0 for what their cores do", default=0.0, high=1000.0,
                  floor=0.001),
    )  # fmt: skip
    changes = frozenset({"weight bytes"})
    excludes = (
        "low-rank-weights", "sparse-weights", "rotated-fp4", "dequantize-on-the-fly", "grouped-adapters",
        "streamed-layers",
    )  # fmt: skip

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        yield not case.model.is_moe, f"{case.model.name} has no experts"
        yield True, no_host(case.pool)
        yield (
            case.strategy.ep > 1 or case.strategy.dp > 1,
            "experts of expert- or data-parallel ranks are not kept on the host: use tensor parallelism",
        )

    def program(self, case: ServingCase, values: Values) -> NodePass:
        rates = _rates(case, values)

        def offloaded(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            if part != "layer":
                return nodes
            return [
                replace(node, forward=tuple(_offloaded(op, values, rates) for op in node.forward)) for node in nodes
            ]

        return offloaded

    def memory(self, used: RankBytes, case: ServingCase, values: Values) -> RankBytes:
        """All experts are on the host, and the cached ones on the chip too."""
        ranks = case.strategy.tp * case.strategy.pp
        every = [block.count * _expert_bytes(block, case.model) / ranks for block in case.model.blocks]
        kept = [_cached(block.ffn.experts, values) / block.ffn.experts if isinstance(block.ffn, MoeFfn) else 1.0
                for block in case.model.blocks]  # fmt: skip
        gone = sum(size * (1 - share) for size, share in zip(every, kept, strict=True))
        return replace(used, weights=used.weights - gone, host=used.host + sum(every))

    def metrics(self, used: MemoryUse, case: ServingCase, values: Values) -> Mapping[str, float]:
        """Of a hundred visits, those to cached experts, over the layers with experts."""
        ffns = [block.ffn for block in case.model.blocks if isinstance(block.ffn, MoeFfn)]
        rates = [_hosted(_visited(one), values, _rates(case, values)).hit_rate for one in ffns]
        return {"hits_percent": 100 * sum(rates) / len(rates)}

    def assumed(self, case: ServingCase, values: Values) -> str:
        by_host = values["misses"] != COPY
        if not by_host or (values["cpu_gb_s"] and values["cpu_tflop_s"]):
            return ""
        return "the host's processors multiply weights at 80% of its memory's bandwidth, 40 GFLOP/s a core at most"


def _offloaded(op: Op, values: Values, rates: HostRates) -> Op:
    return _hosted(op, values, rates) if isinstance(op, Experts) else op


def _hosted(op: Experts, values: Values, rates: HostRates) -> HostExperts:
    return HostExperts(
        name=op.name,
        op=replace(op, count=1),
        cached=_cached(op.experts, values),
        skew=float(values["skew"]),
        popular=values["keeps"] == POPULAR,
        copied=values["misses"] != CPU,
        computed=values["misses"] != COPY,
        rates=rates,
        count=op.count,
    )


def _cached(experts: int, values: Values) -> int:
    return round(float(values["cached"]) * experts)


def _visited(ffn: MoeFfn) -> Experts:
    """Experts as a hit rate sees them, whose sizes do not matter."""
    return Experts(name="experts", tokens=1, hidden=1, inner=1, experts=ffn.experts, topk=ffn.topk, dtype="bf16")


def _rates(case: ServingCase, values: Values) -> HostRates:
    host = case.pool.machine
    assert host is not None  # checked by `reject`
    sharing = min(case.strategy.ranks, case.pool.machine_chips)
    return HostRates(
        link_bytes_s=float(values["link_gb_s"]) * 1e9 or host_bytes_s(host, sharing),
        cpu_bytes_s=float(values["cpu_gb_s"]) * 1e9 / sharing or cpu_bytes_s(host, sharing),
        cpu_flops_s=float(values["cpu_tflop_s"]) * 1e12 / sharing or cpu_flops_s(host, sharing),
        handover_s=HANDOVER_S,
    )


def _expert_bytes(block: Block, model: Model) -> float:
    """Of all experts of one layer."""
    formats, rest = dict(block.formats), plain(model.working_dtype)
    return sum(
        tensor.copies * formats.get(tensor.role, rest).bytes(tensor.rows, tensor.columns)
        for tensor in block.tensors(model.hidden)
        if tensor.role.startswith(MATRICES)
    )


TECHNIQUES = (ExpertOffload(),)
