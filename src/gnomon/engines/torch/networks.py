"""Networks in PyTorch as their published code runs them: kernel by kernel, or captured as one CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.cost.machine import Machine
from gnomon.cost.step import Piece, StepModel
from gnomon.engines.base import MemoryUse
from gnomon.engines.torch.eager.lower import LAUNCHES, EagerHost, host_model
from gnomon.engines.torch.eager.price import SPREAD
from gnomon.engines.torch.engine import RUNTIME_BYTES, SPARE
from gnomon.engines.torch.published import published
from gnomon.engines.working import working_bytes
from gnomon.errors import InputError, unknown_name
from gnomon.graph import Graph
from gnomon.graph.dtypes import width
from gnomon.graph.networks import decoder_graph, diffusion_graph, encoder_graph, tower_graph
from gnomon.graph.support import check_network
from gnomon.spec import Batch, Chip, Model, NetworkStep, Strategy

FORMATS = ("bf16", "fp16", "fp32")


def check(model: Model, strategy: Strategy, dtype: str, settings: Mapping[str, Any], chip: Chip) -> None:
    """Raise InputError for what is not priced in PyTorch."""
    check_network(model)
    if strategy.ep > 1:
        message = f"experts over {strategy.ep} ranks are not priced for torch"
        raise InputError(message, where="--ep", hint="Leave it out.")
    if strategy.ranks > 1:
        hint = "Use one chip, and --batch for more work."
        raise InputError(f"{strategy.ranks} chips for one network are not priced for torch", where="--tp", hint=hint)
    there = [name for name in FORMATS if name in chip.rates_flops]
    if dtype not in there:
        hint = f"What runs there: {', '.join(there)}."
        raise InputError(f"'{dtype}' is not priced for torch on {chip.name}", where="--dtype", hint=hint)
    for name in settings:
        if name != "launch":
            raise unknown_name("setting of torch", name, ("launch",), where="--set")
    if settings.get("launch", LAUNCHES[0]) not in LAUNCHES:
        raise unknown_name("way to launch", str(settings["launch"]), LAUNCHES, where="--set launch")


def pieces(
    model: Model, step: NetworkStep, dtype: str, launch: str, launches: EagerHost, machine: Machine
) -> tuple[Piece, ...]:
    """The cost models of a step: the tower, where it has inputs, and the rest of the network."""
    found = []
    if step.taken is not None and step.towered:
        tower = model.towers[0]
        graph = tower_graph(tower, step.taken, published(model, tower, dtype), Strategy(), dtype)
        found.append(tower_piece(graph, step, launch, launches, machine))
    n = step.sequences
    batch = Batch.decode(n, step.context) if step.decode else Batch.prefill(n, step.tokens)
    return (*found, eager_piece(_graph(model, step, dtype), batch, launch, launches, machine))


def tower_piece(graph: Graph, step: NetworkStep, launch: str, launches: EagerHost, machine: Machine) -> Piece:
    """All inputs of a step through a tower, in one batch."""
    assert step.taken is not None
    return eager_piece(graph, Batch.prefill(step.towered, step.taken.positions), launch, launches, machine)


def eager_piece(graph: Graph, batch: Batch, launch: str, launches: EagerHost, machine: Machine) -> Piece:
    """A graph whose kernels the host launches one by one, or as one CUDA graph."""
    calls = sum(op.count for op in graph.ops if op.bytes(batch)[0] > 0)
    launch_s = launches.graph_s if launch == "graph" else calls * launches.forward_s
    return StepModel(graph=graph, machine=machine, host=host_model(launch_s, launches), spread=SPREAD), batch


def memory(model: Model, step: NetworkStep, dtype: str, chip: Chip) -> MemoryUse:
    """Memory of all weights, the peak of the pass, and the cache of tokens and of a source."""
    value, tokens = width(dtype), step.sequences * (1 if step.decode else step.tokens)
    working = working_bytes(model.blocks, model.hidden, tokens, dtype)
    if step.towered:
        tower, taken = model.towers[0], step.taken
        assert taken is not None
        working = max(working, working_bytes(tower.blocks, tower.hidden, step.towered * taken.positions, dtype))
    logits = tokens * model.vocab * value if model.has_head and model.kind != "multimodal" else 0.0
    kept = step.sequences * (step.context + step.tokens) * model.kv_bytes_per_token(value)
    kept += step.sequences * step.source * model.source_bytes_per_token(value)
    parts = {"weights": model.parameters * value, "activations": max(working, logits), "runtime": RUNTIME_BYTES}
    return MemoryUse(
        total_bytes=chip.memory_bytes,
        usable_bytes=chip.memory_bytes * (1 - SPARE),
        parts=parts | ({"kv": kept} if kept else {}),
        kv_blocks=0,
        kv_bytes_per_token=model.kv_bytes_per_token(value),
    )


def _graph(model: Model, step: NetworkStep, dtype: str) -> Graph:
    style = published(model, model, dtype)
    if model.kind == "encoder":
        return encoder_graph(model, style, step.tokens, dtype, head=True)
    if model.kind == "diffusion":
        return diffusion_graph(model, style, step.tokens, step.source, dtype)
    return decoder_graph(model, style, step.tokens, step.source, dtype)
