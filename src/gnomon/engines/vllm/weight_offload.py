"""Weights in the host's memory (`cpu_offload_gb`, `offload_group_size`), as `vllm/model_executor/offloader` has them.

UVA: parameters are taken layer by layer, in the order of a layer's modules (attention, feed-forward, norms), until the
bytes given are reached or passed; kernels read them over the host link in every step. Prefetch: all parameters of the
last `offload_num_in_group` of every `offload_group_size` layers; `offload_prefetch_step` buffers on the chip take
turns, and copies run on a stream of their own. Each rank does so with the layers of its own stage; embeddings, heads
and towers stay on the chip. A matrix and its scales are two parameters.

vLLM 0.24 does it on its first model runner alone: on the second the settings are ignored without a word (issue 51396 of
vllm-project/vllm). Plans that offload weights are taken to run on the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gnomon.cost.host_link import LINK_SPREAD, ROOM, host_bytes_s
from gnomon.cost.prefetch import CopySchedule, PrefetchCost
from gnomon.engines.base import Deployment, StageWork
from gnomon.engines.techniques import NO_TECHNIQUES
from gnomon.engines.vllm.degrees import stage_work
from gnomon.engines.vllm.drafts import NONE
from gnomon.engines.vllm.offloaders import PREFETCH, UVA, backend
from gnomon.engines.vllm.weights import StageWeights, cut_tensor, padding, stages
from gnomon.errors import InputError
from gnomon.graph import Graph
from gnomon.graph.dtypes import gemm_format
from gnomon.graph.host_ops import HostRead
from gnomon.graph.ops import Experts, Gemm, Op
from gnomon.spec import AttentionMixer, Block, DenseFfn, Model, MoeFfn, Strategy
from gnomon.spec.formats import plain
from gnomon.units import format_bytes

GIB = 1024.0**3
OPS = {
    "q": ("self_attn.qkv_proj", "attention.qkv"),
    "k": ("self_attn.qkv_proj", "attention.qkv"),
    "v": ("self_attn.qkv_proj", "attention.qkv"),
    "out": ("self_attn.o_proj", "attention.out"),
    "gate": ("mlp.gate_up_proj", "ffn.up"),
    "up": ("mlp.gate_up_proj", "ffn.up"),
    "down": ("mlp.down_proj", "ffn.down"),
    "router": ("mlp.gate", "ffn.router"),
    "expert_gate": ("mlp.experts.w13", "ffn.experts"),
    "expert_up": ("mlp.experts.w13", "ffn.experts"),
    "expert_down": ("mlp.experts.w2", "ffn.experts"),
    "shared_gate": ("mlp.shared_experts.gate_up_proj", "ffn.shared_up"),
    "shared_up": ("mlp.shared_experts.gate_up_proj", "ffn.shared_up"),
    "shared_down": ("mlp.shared_experts.down_proj", "ffn.shared_down"),
}
"""The module that has a matrix, by the matrix's role, and the operator that reads it."""
COPY_SPREAD = 2 * LINK_SPREAD
"""Log standard deviation of copies beside kernels: twice that of copies alone, as an assumption. The one load that was
measured (qwen2.5-14b, measurements/h200-2026-11-18-weight-offload/prefetch-14b.json.gz) is 0.4% off."""
OF_EXPERTS = {"mlp.experts.w13": 2 / 3, "mlp.experts.w2": 1 / 3}
"""Share of the experts' weights that each of their two parameters holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParameter:
    """One parameter of a layer on one rank."""

    name: str
    bytes: float
    op: str = ""
    """The operator whose time it decides; none for what is small."""

    @property
    def host_bytes(self) -> float:
        """Pinned memory, which PyTorch's allocator rounds up to a power of two (issue 56410 of vllm-project/vllm)."""
        return float(1 << (int(self.bytes) - 1).bit_length()) if self.bytes >= 1 else 0.0


Layers = dict[int, tuple[LayerParameter, ...]]
"""Parameters of layers that the host holds, by their place in the stage."""


def parameters(block: Block, model: Model, strategy: Strategy, architecture: str = "") -> list[LayerParameter]:
    """Of one layer on one rank, in the order of vLLM's modules."""
    formats, rest = dict(block.formats), plain(model.working_dtype)
    found: dict[str, LayerParameter] = {}
    module = ""

    def add(name: str, size: float, op: str = "") -> None:
        known = found.get(name)
        found[name] = LayerParameter(name=name, bytes=size + (known.bytes if known else 0.0), op=op)

    *tensors, norms = block.tensors(model.hidden, model.norm_parameters)
    for tensor in tensors:
        module, op = OPS.get(tensor.role, (module, ""))
        format = formats.get(tensor.role, rest)
        for cut in cut_tensor(tensor, block, strategy, padding(format, architecture)):
            values = cut.copies * cut.rows * cut.columns * format.bits / 8
            add(f"{module}.{'weight' if op else 'bias'}", values, op)
            if scales := cut.copies * format.bytes(cut.rows, cut.columns) - values:
                add(f"{module}.weight_scale", scales)
    for norm in range(block.stream_norms):
        add(f"norm.{norm}.weight", norms.rows / block.stream_norms * rest.bits / 8)
    return [one for one in found.values() if one.bytes > 0]


def offloaded(deployment: Deployment, stage: StageWeights) -> Layers:
    """What the host holds of one rank of a stage."""
    settings, how = deployment.settings, backend(deployment.settings)
    if not how:
        return {}
    chip = deployment.pool.chip.architecture
    known: dict[int, list[LayerParameter]] = {}

    def of(layer: Block) -> list[LayerParameter]:
        if id(layer) not in known:
            known[id(layer)] = parameters(layer, deployment.model, deployment.strategy, chip)
        return known[id(layer)]

    if how == PREFETCH:
        group, kept = settings["offload_group_size"], settings["offload_group_size"] - settings["offload_num_in_group"]
        return {place: tuple(of(layer)) for place, layer in enumerate(stage.layers) if place % group >= kept}
    found: Layers = {}
    most, taken = int(settings["cpu_offload_gb"] * GIB), 0.0
    for place, layer in enumerate(stage.layers):
        for one in of(layer):
            if taken >= most:
                return found
            found[place] = (*found.get(place, ()), one)
            taken += one.bytes
    return found


def device_bytes(deployment: Deployment, stage: StageWeights) -> float:
    """What a rank of a stage has less on the chip: the parameters, without the buffers that copies go into."""
    layers = offloaded(deployment, stage)
    moved = sum(one.bytes for layer in layers.values() for one in layer)
    if backend(deployment.settings) != PREFETCH:
        return moved
    each = {(one.name, one.bytes) for layer in layers.values() for one in layer}
    return moved - int(deployment.settings["offload_prefetch_step"]) * sum(size for _, size in each)


def host_bytes(deployment: Deployment) -> float:
    """Memory of a host that the weights of all its chips take together; stages may hold different layers."""
    ranks = [
        sum(one.host_bytes for layer in offloaded(deployment, stage).values() for one in layer)
        for stage in stages(deployment.model, deployment.strategy.pp)
    ]
    return max(ranks) * readers(deployment)


def readers(deployment: Deployment) -> int:
    """Ranks that share one host: all of its chips that are there do the same, be they of this replica or of others."""
    return deployment.pool.machine_chips


def check(deployment: Deployment) -> None:
    """Refuse what vLLM does not run so, what is not priced, and a host that is not known or too small."""
    settings, how = deployment.settings, backend(deployment.settings)
    if not how:
        return
    where = f"setting {'offload_group_size' if how == PREFETCH else 'cpu_offload_gb'}"
    why = _not_priced(deployment) or _no_host(deployment)
    if why:
        raise InputError(why, where=where, hint="Leave the setting out, or what stands against it.")
    machine = deployment.pool.machine
    assert machine is not None
    weights, blocks = host_bytes(deployment), settings["kv_offloading_size"] * GIB
    if weights + blocks > ROOM * machine.memory_bytes:
        beside = f" and KV blocks {format_bytes(blocks)}" if blocks else ""
        raise InputError(
            f"weights on the host take {format_bytes(weights)} of its memory, pinned in powers of two,{beside} and of "
            f"the {format_bytes(machine.memory_bytes)} of {machine.name} a job can use {ROOM:.0%}",
            where=where,
            hint="Keep fewer there.",
        )


def _no_host(deployment: Deployment) -> str:
    chip = deployment.pool.chip
    if chip.unified:
        return f"{chip.name} shares one memory with its host"
    return f"the host of {chip.name} is not known" if deployment.pool.machine is None else ""


def _not_priced(deployment: Deployment) -> str:
    settings, how = deployment.settings, backend(deployment.settings)
    if settings["speculative_method"] != NONE:
        return "weights on the host are not priced with drafts"
    if settings["enable_eplb"]:
        return "weights on the host are not priced with enable_eplb"
    if deployment.techniques.brings_gemm_kernels:
        return "weights on the host are not priced with GEMM kernels of a technique"
    if deployment.techniques.streams_weights:
        return "a technique streams the weights already"
    if deployment.techniques and _read_otherwise(deployment, counted=how == UVA):
        return "a technique changes the operators that read the weights"
    if how == PREFETCH and settings["enable_lora"]:
        return "vLLM does not prefetch weights of layers that adapters are added to"
    if how == PREFETCH and deployment.strategy.dp > 1:
        return "prefetched weights of data-parallel ranks that wait for each other are not priced"
    if not all(_plain(block) for block in deployment.model.blocks):
        name = deployment.model.name
        return f"weights on the host are priced for layers of softmax attention, and {name} has others"
    return ""


def _read_otherwise(deployment: Deployment, *, counted: bool) -> bool:
    """Whether techniques change which operators read the weights of layers, or, where that is `counted`, how often."""

    def readers_of(one: Deployment) -> list[dict[str, list[int]]]:
        found: list[dict[str, list[int]]] = []
        for stage in stage_work(one):
            found.append({})
            for op in stage.graph.ops:
                if isinstance(op, Gemm | Experts):
                    found[-1].setdefault(op.name, []).append(op.count)
        return found

    own, plain = readers_of(deployment), readers_of(replace(deployment, techniques=NO_TECHNIQUES))
    return own != plain if counted else [set(each) for each in own] != [set(each) for each in plain]


def _plain(block: Block) -> bool:
    halves = isinstance(block.mixer, AttentionMixer) and isinstance(block.ffn, DenseFfn | MoeFfn)
    return halves and block.cross is None and not block.extras


def read_from_host(deployment: Deployment, work: tuple[StageWork, ...]) -> tuple[StageWork, ...]:
    """The operators of each stage, with those apart whose weights are read over the host link."""
    if backend(deployment.settings) != UVA:
        return work
    held = stages(deployment.model, deployment.strategy.pp)
    return tuple(
        replace(one, graph=Graph(tuple(_apart(one.graph, offloaded(deployment, stage), readers(deployment)))))
        for one, stage in zip(work, held, strict=True)
    )


def _apart(graph: Graph, layers: Layers, sharing: int) -> Iterator[Op]:
    """Layers of a kind are one operator that runs several times: those with weights on the host become another."""
    found: dict[str, Counter[tuple[float, float]]] = {}
    for layer in layers.values():
        each: dict[str, tuple[float, float]] = {}
        for one in layer:
            if one.op:
                share, size = each.get(one.op, (0.0, 0.0))
                each[one.op] = share + OF_EXPERTS.get(one.name.removesuffix(".weight"), 1.0), size + one.bytes
        for name, key in each.items():
            found.setdefault(name, Counter())[key] += 1
    for op in graph.ops:
        if not isinstance(op, Gemm | Experts) or op.name not in found:
            yield op
            continue
        alike = [other for other in graph.ops if isinstance(other, Gemm | Experts) and other.name == op.name]
        left = op.count
        for (share, size), count in found[op.name].items():
            if min(alike, key=lambda other: abs(_bytes(other) - size / share)) is op:
                left -= count
                alone, part = replace(op, count=1), min(share, 1.0)
                yield HostRead(name=f"{op.name}.from_host", op=alone, share=part, readers=sharing, count=count)
        if left:
            yield replace(op, count=left)


def _bytes(op: Gemm | Experts) -> float:
    """Bytes of all weights of an operator."""
    each = gemm_format(op.dtype).weights
    if isinstance(op, Experts):
        return 3 * op.hidden * op.inner * op.held * each
    assert isinstance(op.n, int) and isinstance(op.k, int)
    return op.n * op.k * each


def prefetch_cost(deployment: Deployment, only: int | None = None) -> PrefetchCost | None:
    """What steps wait for copies: of one stage by its place, or of all."""
    if backend(deployment.settings) != PREFETCH:
        return None
    machine = deployment.pool.machine
    assert machine is not None
    per_s = host_bytes_s(machine, readers(deployment))
    schedules, moved = [], 0.0
    held = stages(deployment.model, deployment.strategy.pp)
    held = held if only is None else [held[only]]
    for stage in held:
        layers = offloaded(deployment, stage)
        if not layers:
            continue
        sizes = {place: sum(each.bytes for each in layer) for place, layer in layers.items()}
        moved += sum(sizes.values())
        schedules.append(
            CopySchedule(
                layers=len(stage.layers),
                copies=tuple((place, size / per_s) for place, size in sizes.items()),
                ahead=deployment.settings["offload_prefetch_step"],
                before_attention=_before_attention(layers),
            )
        )
    if not schedules:
        return None
    return PrefetchCost(
        schedules=tuple(schedules),
        layers=sum(len(stage.layers) for stage in held),
        bytes=moved,
        spread=COPY_SPREAD,
        source=f"{machine.link.name} to the host's memory, at the rate of copies alone",
        least=per_s / machine.link.bandwidth_bytes_s,
    )


def _before_attention(layers: Layers) -> float:
    """Of a layer's weights, and so about of its time, the share of what makes queries, keys and values."""
    first = next(iter(layers.values()))
    return sum(one.bytes for one in first if one.op == "attention.qkv") / sum(one.bytes for one in first)
