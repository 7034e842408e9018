"""Networks beside plain decoders under vLLM: which it runs, with which kernels, in which memory.

Encoders run as embedders: whole sequences, compiled, and no head. Towers run before the decoder, kernel by kernel, on
weights that are cut like the decoder's and stay in 16 bits; the decoder's steps are those of any decoder.
"""

from __future__ import annotations

from dataclasses import replace

from gnomon.cost.machine import Machine
from gnomon.cost.step import Piece, StepModel
from gnomon.engines.base import Deployment, Engine, MemoryUse
from gnomon.engines.vllm import reserve
from gnomon.engines.vllm.releases import release
from gnomon.engines.working import working_bytes
from gnomon.errors import InputError
from gnomon.graph import Graph
from gnomon.graph.dtypes import STATE, width
from gnomon.graph.networks import crossing_graph, encoder_graph, tower_graph
from gnomon.graph.style import NOTHING, STREAMING_EFFICIENCY, KernelStyle, Stream
from gnomon.graph.support import check_network, check_tower
from gnomon.spec import Batch, Model, NetworkStep, Strategy, Tower

FORMATS = ("bf16", "fp16")
NOT_SERVED = {
    "t5": "vLLM has no T5",
    "bart": "vLLM leaves BART to a plugin",
    "mllama": "vLLM dropped Llama 3.2 Vision in 0.11",
}
FUSED = Stream(2, 2, 0, 0)
COMPILED = KernelStyle(
    norm=FUSED,
    rope=Stream(1, 1, 0, 0),
    residual=NOTHING,
    gated=Stream(2, 1, 0, 0),
    plain=Stream(1, 1, 0, 0),
    loss=NOTHING,
    embedding=Stream(1, 1, 0, 0),
    rope_in_place=True,
    uncached=STREAMING_EFFICIENCY,
)
"""What torch.compile makes of a layer: a residual and the norm behind it are one kernel."""


def not_served(model: Model) -> str:
    """Why vLLM does not run it; empty where it does."""
    if model.kind == "diffusion":
        return "vLLM runs no diffusion transformer"
    return NOT_SERVED.get(model.family, "")


def check(deployment: Deployment) -> None:
    """Raise for an encoder that Gnomon cannot price under vLLM."""
    model, tp = deployment.model, deployment.strategy.tp
    check_network(model)
    if deployment.strategy != Strategy(tp=tp):
        raise InputError("encoders are cut by --tp alone", where="--pp, --ep, --cp, --dp", hint="Leave them at 1.")
    there = [name for name in FORMATS if name in deployment.pool.chip.rates_flops]
    if deployment.dtype not in there:
        message = f"'{deployment.dtype}' is not priced for encoders on vllm"
        raise InputError(message, where="--dtype", hint=f"What runs there: {', '.join(there)}.")
    check_tower(Tower(name="encoder", hidden=model.hidden, blocks=model.blocks), tp)


def pieces(engine: Engine, deployment: Deployment, step: NetworkStep, steps: Batch) -> tuple[Piece, ...]:
    """The tower, where something goes through it, and the decoder or encoder over its own steps."""
    model, machine = deployment.model, Machine(deployment.pool, deployment.profile)
    if model.kind == "encoder":
        graph = encoder_graph(model, COMPILED, step.tokens, deployment.dtype, head=False, strategy=deployment.strategy)
        return ((StepModel(graph=graph, machine=machine, host=engine.host(deployment)), steps),)
    found = [tower(deployment, step)] if step.taken is not None and step.towered else []
    own = engine.step_model(replace(deployment, model=model.alone))
    crossed = crossing_graph(model, COMPILED, deployment.strategy, deployment.dtype, step.source)
    crossing = Graph((*own.graph.ops, *crossed.ops))
    return (*found, (replace(own, graph=crossing), steps))


def tower(deployment: Deployment, step: NetworkStep) -> Piece:
    """All images of a step through the model's tower, kernel by kernel."""
    from gnomon.engines.torch.eager.lower import host
    from gnomon.engines.torch.networks import tower_piece

    assert step.taken is not None
    model, machine = deployment.model, Machine(deployment.pool, deployment.profile, "torch")
    found, launches = model.towers[0], host(deployment.overheads)
    graph = tower_graph(found, step.taken, _kernels(found, model), deployment.strategy, tower_dtype(deployment))
    return tower_piece(graph, step, "eager", launches, machine)


def check_images(deployment: Deployment) -> None:
    """Raise for images of a load that are not simulated under vLLM."""
    from gnomon.engines.vllm import images

    images.check(deployment)


def memory(engine: Engine, deployment: Deployment, step: NetworkStep) -> MemoryUse:
    """As of a decoder, whose weights and cache have the tower's among them; an encoder has no cache."""
    model, tp = deployment.model, deployment.strategy.tp
    total = deployment.pool.chip.memory_bytes
    usable = reserve.visible_bytes(deployment.pool.chip) * deployment.settings["gpu_memory_utilization"]
    if model.kind == "encoder":
        tokens = max(deployment.settings["max_num_batched_tokens"], step.tokens)
        parts = {
            "weights": model.parameters * width(deployment.dtype) / tp,
            "activations": working_bytes(model.blocks, model.hidden, tokens, deployment.dtype, tp),
            "runtime": reserve.runtime_bytes(
                model, deployment.settings, deployment.strategy, deployment.pool.chip, release(engine.version)
            ),
        }
        return MemoryUse(total_bytes=total, usable_bytes=usable, parts=parts, kv_blocks=0, kv_bytes_per_token=0.0)
    return _beside(engine.memory(deployment), deployment, step)


def _beside(use: MemoryUse, deployment: Deployment, step: NetworkStep) -> MemoryUse:
    """A decoder's memory where its tower may need more to work in than it does, which the cache makes room for."""
    if not step.towered or step.taken is None:
        return use
    tower, tp = deployment.model.towers[0], deployment.strategy.tp
    working = working_bytes(tower.blocks, tower.hidden, step.towered * step.taken.positions, STATE, tp)
    return with_activations(use, working)


def with_activations(use: MemoryUse, working: float) -> MemoryUse:
    """Memory where activations need so much, if that is more than they have; the cache makes room."""
    more = max(working - use.parts["activations"], 0.0)
    if not more:
        return use
    left = max(use.parts["kv"] - more, 0.0)
    parts = dict(use.parts) | {"activations": use.parts["activations"] + more, "kv": left}
    if use.kv_blocks <= 0:
        return replace(use, parts=parts)
    # One block beside those that sequences use is vLLM's own.
    block = use.parts["kv"] / (use.kv_blocks + 1)
    return replace(use, parts=parts, kv_blocks=max(int(left / block) - 1, 0))


def tower_dtype(deployment: Deployment) -> str:
    """The format a tower's weights keep, whatever the decoder's are in."""
    return deployment.dtype if width(deployment.dtype) == 2 else deployment.pool.chip.half


def _kernels(tower: Tower, model: Model) -> KernelStyle:
    """PyTorch's own, but for GEMMs that vLLM fuses, and its own kernels for rotary embedding and gating."""
    from gnomon.engines.torch.published import half_style

    own = half_style(replace(model, norm_bias=tower.norm_bias))
    return replace(own, joined=True, fused_activation=True, rope=COMPILED.rope, gated=COMPILED.gated)
