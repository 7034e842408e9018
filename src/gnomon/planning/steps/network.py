"""One step of an encoder, an encoder-decoder, a model with a vision tower or a diffusion transformer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gnomon.cost.lines import by_name
from gnomon.cost.machine import Machine
from gnomon.cost.step import Piece, StepPrice
from gnomon.engines import Deployment, Engine, MemoryUse, module_engine
from gnomon.engines.base import Networks
from gnomon.errors import InputError
from gnomon.planning.deploy import ReplicaSpec, dtype_of, running_in, said_degrees, title_of, title_words
from gnomon.planning.steps.batches import MOST_STEPS, check_size, prefill_steps
from gnomon.planning.steps.network_words import PHASES, NetworkWork, network_work
from gnomon.planning.steps.parallel import parallel
from gnomon.planning.steps.prediction import prediction
from gnomon.planning.unmodelled import in_files, with_unmodelled
from gnomon.spec import Batch, Model, NetworkStep, Strategy
from gnomon.spec.answers import Prediction
from gnomon.spec.questions.step import PredictQuestion

KINDS = tuple(PHASES)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRun:
    """A step under an engine, with the degrees it runs in."""

    title: str
    strategy: Strategy
    label: str
    dtype: str
    kv_dtype: str
    pieces: tuple[Piece, ...]
    memory: MemoryUse
    parallel: Mapping[str, Any] = field(default_factory=dict)


def predict_network(replica: ReplicaSpec, question: PredictQuestion) -> Prediction:
    """Seconds, memory, energy and dollars of a step. Data-parallel ranks have equal shares of a batch."""
    work = network_work(replica.model, question)
    replica = replace(replica, dtype=replica.dtype or dtype_of(replica.model, replica.pool))

    def answer(found: NetworkRun) -> Prediction:
        said = {
            "model": replica.reference, "on": replica.on, **said_degrees(replica.strategy), "dtype": found.dtype,
            "kv_dtype": found.kv_dtype, "engine": found.label, "settings": dict(replica.settings),
            "kind": replica.model.kind, "phase": work.phase, "batch": question.sequences, "context": question.context,
        }  # fmt: skip
        unit = {"unit": "sample"} if replica.model.kind == "diffusion" else {}
        clock = replica.pool.limit_inputs | question.clock_inputs
        return _prediction(found, work, said | work.filled | unit | clock)

    if replica.torch is not None:
        return replace(answer(_under_torch(replica, work)), not_modelled=in_files(replica.pool, replica.model))
    engine, deployment = replica.engine, deployed(replica)
    return with_unmodelled(engine, deployment, replica.settings, lambda one: answer(_served(engine, one, work)))


def _under_torch(replica: ReplicaSpec, work: NetworkWork) -> NetworkRun:
    from gnomon.engines.torch import networks as torch_networks
    from gnomon.engines.torch.eager.lower import host

    model, pool, strategy, settings = replica.model, replica.pool, replica.strategy, dict(replica.settings)
    assert replica.torch is not None and replica.dtype is not None
    version, dtype = replica.torch.version, replica.dtype
    torch_networks.check(model, strategy, dtype, settings, pool.chip)
    step = work.step
    if step.context and not step.decode:
        raise InputError("prompts over cached tokens are not priced for torch", where="--context")
    _check_length(model, step)
    if replica.kv_dtype not in (None, dtype):
        raise InputError(f"'{replica.kv_dtype}' is not priced for torch: it keeps {dtype}", where="--kv-dtype")
    launch = settings.get("launch", "eager")
    machine = Machine(pool, replica.binding.profile, "torch")
    how = "in a CUDA graph" if launch == "graph" else "eager"
    title = title_words(model, dtype, pool, strategy, f"PyTorch {version}, {how}")
    return NetworkRun(
        title=f"{title}: {work.what}",
        strategy=strategy,
        label=f"torch@{version}",
        dtype=dtype,
        kv_dtype=dtype,
        pieces=torch_networks.pieces(model, step, dtype, launch, host(replica.binding.overheads), machine),
        memory=torch_networks.memory(model, step, dtype, pool.chip),
    )


def _check_length(model: Model, step: NetworkStep) -> None:
    longest = step.context + step.tokens
    if model.kind != "diffusion" and longest > model.max_context:
        message = f"{longest:,} tokens are more than the maximum of {model.max_context:,} per sequence"
        raise InputError(message, where="--tokens, --context")


def _served(engine: Engine, deployment: Deployment, wanted: NetworkWork) -> NetworkRun:
    model, strategy = deployment.model, deployment.strategy
    step = replace(wanted.step, sequences=-(-wanted.step.sequences // strategy.dp))
    check_size(engine, deployment, step.sequences, step.tokens, step.context)
    steps = _steps(model, step, engine.capacity(deployment.settings).step_tokens)
    if not engine.host(deployment).dp_padded(steps):
        deployment = replace(deployment, dp_load_ratio=wanted.step.sequences / (step.sequences * strategy.dp))
    own = replace(deployment, model=deployment.model.alone)
    tokens = float(wanted.step.sequences * step.tokens)
    cut = f", in {steps.size:,} steps" if steps.size > 1 else ""
    networks = networks_of(engine)
    use = networks.memory(engine, deployment, step)
    kept = step.sequences * use.sequence_bytes(step.context + step.tokens, step.tokens)
    parts = {part: size for part, size in use.parts.items() if part != "kv"}
    return NetworkRun(
        title=f"{title_of(engine, deployment)}: {wanted.what}{cut}",
        strategy=deployment.strategy,
        label=f"{engine.name}@{engine.version}",
        dtype=deployment.dtype,
        kv_dtype=deployment.kv_dtype,
        pieces=networks.pieces(engine, deployment, step, steps),
        memory=replace(use, parts=parts | ({"kv": kept} if kept else {})),
        parallel={} if model.kind == "encoder" else parallel(engine, own, steps, tokens),
    )


def not_served(engine: Engine, model: Model) -> str:
    """Why an engine does not run a network; empty where it does, and for a plain decoder."""
    if model.kind not in KINDS:
        return ""
    return (
        f"{engine.title} serves plain decoders alone" if engine.networks is None else engine.networks.not_served(model)
    )


def check_served(engine: Engine, model: Model) -> None:
    """Raise for a network that an engine does not run."""
    if why := not_served(engine, model):
        hint = f"Use --engine {module_engine()}."
        raise InputError(f"{model.name} does not run on {engine.name}: {why}", where="--engine", hint=hint)


def networks_of(engine: Engine) -> Networks:
    """What an engine says of networks, which `check_served` found it to have."""
    assert engine.networks is not None
    return engine.networks


def deployed(replica: ReplicaSpec) -> Deployment:
    """A replica of the full network, its decoder checked as any other. Errors name the flags of a command, and what
    they propose has been tried."""
    return replica.mended(_deployed)


def _deployed(replica: ReplicaSpec) -> Deployment:
    model, pool, binding, dtype = replica.model, replica.pool, replica.binding, replica.dtype
    check_served(binding.engine, model)
    if model.kind != "encoder":
        own = binding.deploy(replace(replica.draft(), model=model.alone))
        return replace(own, model=running_in(model, own.dtype, pool))
    assert dtype is not None
    if replica.kv_dtype not in (None, dtype):
        raise InputError(f"'{replica.kv_dtype}' is given, but {model.name} has no KV cache", where="--kv-dtype")
    found = Deployment(
        model=model,
        pool=pool,
        strategy=replica.strategy,
        dtype=dtype,
        kv_dtype=replica.kv_dtype or dtype,
        settings=binding.engine.settings(dict(replica.settings), model, pool),
        profile=binding.profile,
        overheads=binding.overheads,
    )
    networks_of(binding.engine).check(found)
    return found


def _steps(model: Model, step: NetworkStep, budget: int) -> Batch:
    """The steps that a serving engine runs; an encoder's sequences are never chunked."""
    if step.decode:
        return Batch.decode(step.sequences, step.context)
    if model.kind != "encoder":
        return prefill_steps(step.sequences, step.tokens, step.context, budget)
    together = max(1, budget // step.tokens)
    full, rest = divmod(step.sequences, together)
    if full > MOST_STEPS:
        raise InputError(f"{step.sequences:,} sequences are too many for one prediction", where="--batch")
    sizes = [together] * full + ([rest] if rest else [])
    return Batch.prefill(sizes, step.tokens)


def _prediction(run: NetworkRun, wanted: NetworkWork, inputs: Mapping[str, Any]) -> Prediction:
    first, *others = (_priced(piece, wanted.repeats) for piece in run.pieces)
    price = sum(others, first)
    return prediction(
        price.sustained if inputs.get("sustained") else price,
        run.strategy,
        run.memory,
        title=f"{run.title}{', sustained' if inputs.get('sustained') else ''}",
        made=_made(wanted, inputs),
        parallel=run.parallel,
        inputs=inputs,
        cached=(-(-wanted.step.sequences // run.strategy.dp), wanted.step.context + wanted.step.tokens),
    )


def _priced(piece: Piece, times: int) -> StepPrice:
    """The price of a piece, with one line for an operator that several kinds of layers share."""
    model, steps = piece
    price = model.price(Batch.stack([steps] * times))
    return replace(price, operators=tuple(by_name(price.operators)))


def _made(wanted: NetworkWork, inputs: Mapping[str, Any]) -> float:
    """Samples of a diffusion transformer; tokens of other networks, image tokens included."""
    step = wanted.step
    return float(step.sequences if inputs.get("unit") == "sample" else step.sequences * step.tokens)
