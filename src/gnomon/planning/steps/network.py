"""One step of an encoder, an encoder-decoder, a model with a vision tower or a diffusion transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gnomon.cost.profile import profile_for
from gnomon.engines import Deployment, Engine, MemoryUse, training_engine
from gnomon.engines import engine as engine_of
from gnomon.engines.base import NetworkPiece
from gnomon.engines.vllm import networks as vllm_networks
from gnomon.errors import InputError
from gnomon.load import parse_pool
from gnomon.planning.deploy import (
    Binding,
    dtype_of,
    flagged,
    running_in,
    said_degrees,
    spanning,
    title_of,
    title_words,
)
from gnomon.planning.proposals import mend_degrees
from gnomon.planning.shortage import shortage
from gnomon.planning.steps.energy import carbon_g
from gnomon.planning.steps.lines import (
    MOST_STEPS,
    bound_of,
    check_size,
    engines_line,
    joules,
    piece_lines,
    prefill_steps,
)
from gnomon.planning.steps.network_words import PHASES, Asked, Words, asked
from gnomon.planning.steps.parallel import parallel
from gnomon.planning.unmodelled import in_files, told
from gnomon.spec import Batch, Estimate, Model, NetworkStep, Pool, Strategy
from gnomon.spec.answers import OperatorTime, Prediction, Resolved
from gnomon.techniques import DeploymentDraft

KINDS = tuple(PHASES)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRun:
    """A step under an engine, in the degrees that it has it in."""

    title: str
    strategy: Strategy
    label: str
    dtype: str
    kv_dtype: str
    pieces: tuple[NetworkPiece, ...]
    memory: MemoryUse
    parallel: Mapping[str, Any] = field(default_factory=dict)


def default_engine(model: Model) -> str:
    """vLLM where it runs the model, else PyTorch with the model's published code."""
    return "torch" if vllm_networks.not_served(model) else "vllm"


def predict_network(
    model: Model,
    words: Words,
    *,
    name: str,
    on: str,
    dtype: str | None,
    kv_dtype: str | None,
    engine: str | None,
    degrees: Mapping[str, Any],
    settings: Mapping[str, Any] | None,
) -> Prediction:
    """Seconds, memory, energy and dollars of what `words` ask for. Data-parallel ranks have equal shares of a batch."""
    pool, wanted = parse_pool(on), asked(model, words)
    label, given = engine or default_engine(model), dict(settings or {})
    strategy, dtype = strategy_of(pool, label, degrees), dtype or dtype_of(model, pool)

    def answer(found: NetworkRun) -> Prediction:
        said = {
            "model": name, "on": on, **said_degrees(strategy), "dtype": found.dtype, "kv_dtype": found.kv_dtype,
            "engine": found.label, "settings": given, "kind": model.kind, "phase": wanted.phase,
            "batch": words.batch, "context": words.context,
        }  # fmt: skip
        unit = {"unit": "sample"} if model.kind == "diffusion" else {}
        made = _prediction(found, pool, wanted, said | wanted.filled | unit)
        return replace(made, resolved=Resolved.of(model, pool))

    if label.partition("@")[0] == "torch":
        found = answer(_under_torch(model, pool, strategy, wanted, label, dtype, kv_dtype, given))
        return replace(found, not_modelled=in_files(pool, model))
    chosen, deployment = deployed_on(model, pool, degrees, label, dtype, kv_dtype, given)
    return told(chosen, deployment, given, lambda one: answer(_under_vllm(chosen, one, wanted)))


def strategy_of(pool: Pool, label: str, degrees: Mapping[str, Any]) -> Strategy:
    """As under vLLM, which is asked for every degree; what PyTorch's one chip cannot have, it refuses by the same."""
    return spanning(pool, engine_of("vllm" if label.partition("@")[0] == "torch" else label), **degrees)


def _under_torch(
    model: Model, pool: Pool, strategy: Strategy, wanted: Asked, label: str, dtype: str, kv_dtype: str | None,
    settings: dict[str, Any],
) -> NetworkRun:  # fmt: skip
    from gnomon.engines.torch import networks as torch_networks

    runs = training_engine(label)
    torch_networks.check(model, strategy, dtype, settings, pool.chip)
    step = wanted.step
    if step.context and not step.decode:
        raise InputError("prompts over cached tokens are not priced for torch", where="--context")
    _check_length(model, step)
    if kv_dtype not in (None, dtype):
        raise InputError(f"'{kv_dtype}' is not priced for torch: it keeps {dtype}", where="--kv-dtype")
    launch = settings.get("launch", "eager")
    how = "in a CUDA graph" if launch == "graph" else "eager"
    title = title_words(model, dtype, pool, strategy, f"PyTorch {runs.version}, {how}")
    return NetworkRun(
        title=f"{title}: {wanted.what}",
        strategy=strategy,
        label=f"torch@{runs.version}",
        dtype=dtype,
        kv_dtype=dtype,
        pieces=torch_networks.pieces(model, step, dtype, launch),
        memory=torch_networks.memory(model, step, dtype, pool.chip),
    )


def _check_length(model: Model, step: NetworkStep) -> None:
    longest = step.context + step.tokens
    if model.kind != "diffusion" and longest > model.max_context:
        message = f"{longest:,} tokens are more than the {model.max_context:,} a sequence may have"
        raise InputError(message, where="--tokens, --context")


def _under_vllm(engine: Engine, deployment: Deployment, wanted: Asked) -> NetworkRun:
    model, strategy = deployment.model, deployment.strategy
    step = replace(wanted.step, sequences=-(-wanted.step.sequences // strategy.dp))
    check_size(engine, deployment, step.sequences, step.tokens, step.context)
    steps = _steps(model, step, int(deployment.settings["max_num_batched_tokens"]))
    if not engine.step_parts(deployment, steps).evened:
        deployment = replace(deployment, fill=wanted.step.sequences / (step.sequences * strategy.dp))
    own = replace(deployment, model=deployment.model.alone)
    tokens = float(wanted.step.sequences * step.tokens)
    cut = f", in {steps.size:,} steps" if steps.size > 1 else ""
    use = vllm_networks.memory(engine, deployment, step)
    kept = step.sequences * use.sequence_bytes(step.context + step.tokens, step.tokens)
    parts = {part: size for part, size in use.parts.items() if part != "kv"}
    return NetworkRun(
        title=f"{title_of(engine, deployment)}: {wanted.what}{cut}",
        strategy=deployment.strategy,
        label=f"{engine.name}@{engine.version}",
        dtype=deployment.dtype,
        kv_dtype=deployment.kv_dtype,
        pieces=vllm_networks.pieces(engine, deployment, step, steps),
        memory=replace(use, parts=parts | ({"kv": kept} if kept else {})),
        parallel={} if model.kind == "encoder" else parallel(engine, own, steps, tokens),
    )


def check_served(model: Model) -> None:
    """Raise for a network that vLLM does not run."""
    why = vllm_networks.not_served(model) if model.kind in KINDS else ""
    if why:
        raise InputError(f"{model.name} does not run on vllm: {why}", where="--engine", hint="Use --engine torch.")


def deployed_on(
    model: Model, pool: Pool, degrees: Mapping[str, Any], label: str, dtype: str, kv_dtype: str | None,
    settings: dict[str, Any],
) -> tuple[Engine, Deployment]:  # fmt: skip
    """The same with the degrees of a command, whose flags errors name; what they propose has been tried."""

    def one(other: Mapping[str, Any]) -> tuple[Engine, Deployment]:
        there = parse_pool(other["on"]) if "on" in other else pool
        said = {name: other.get(name, degree) for name, degree in degrees.items()}
        return deployed(model, there, strategy_of(there, label, said), label, dtype, kv_dtype, settings)

    with flagged(lambda error: mend_degrees(error, pool, degrees, one)):
        return one({})


def deployed(
    model: Model, pool: Pool, strategy: Strategy, label: str, dtype: str, kv_dtype: str | None, settings: dict[str, Any]
) -> tuple[Engine, Deployment]:
    """A replica of the whole network; what is not its tower is checked as any decoder is."""
    binding = Binding.of(pool, label)
    check_served(model)
    if model.kind != "encoder":
        draft = DeploymentDraft(
            model=model.alone, pool=pool, strategy=strategy, dtype=dtype, kv_dtype=kv_dtype, settings=settings
        )
        own = binding.deploy(draft)
        return binding.engine, replace(own, model=running_in(model, own.dtype, pool))
    if kv_dtype not in (None, dtype):
        raise InputError(f"'{kv_dtype}' is asked for, and {model.name} keeps no cache", where="--kv-dtype")
    found = Deployment(
        model=model,
        pool=pool,
        strategy=strategy,
        dtype=dtype,
        kv_dtype=kv_dtype or dtype,
        settings=binding.engine.settings(settings, model, pool),
        profile=binding.profile,
        overheads=binding.overheads,
    )
    vllm_networks.check(found)
    return binding.engine, found


def _steps(model: Model, step: NetworkStep, budget: int) -> Batch:
    """The steps that vLLM takes; an encoder's sequences are never cut."""
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


def _prediction(run: NetworkRun, pool: Pool, wanted: Asked, inputs: Mapping[str, Any]) -> Prediction:
    chip, profile, ranks = pool.chip, profile_for(pool.chip), run.strategy.ranks
    lines = [one for piece in run.pieces for one in piece_lines(piece, pool, profile)]
    lines.append(engines_line(Estimate.total([one.time_s for one in lines]), run.pieces))
    lines = [_repeated(one, wanted.repeats) for one in lines]
    total = Estimate.total([one.time_s for one in lines])
    flops, moved = sum(one.flops for one in lines), sum(one.bytes for one in lines)
    lines.sort(key=lambda one: -one.time_s.value)
    bound, share = bound_of(lines, total.value)
    used, pp = sum(run.memory.parts.values()), run.strategy.pp
    waiting_w = (pp - 1) * profile.power["idle_w"]
    energy = total.map(lambda s: ranks / pp * (joules(profile.power, chip, s, flops, moved) + waiting_w * s))
    return Prediction(
        title=run.title,
        time_s=total,
        memory_bytes=Estimate.exact(used, "weights, what is kept of tokens, and the largest working set"),
        energy_j=energy,
        co2_g=carbon_g(pool, energy),
        cost_usd=total * (ranks * chip.price_usd_h / 3600),
        tokens_per_s=_made(wanted, inputs) / total.value,
        bound=bound,
        bound_share=share,
        fits=used <= run.memory.usable_bytes,
        cause=shortage(
            run.memory.parts,
            run.memory.usable_bytes,
            sequences=-(-wanted.step.sequences // run.strategy.dp),
            tokens=wanted.step.context + wanted.step.tokens,
        ),
        memory_parts=run.memory.parts,
        memory_total_bytes=run.memory.total_bytes,
        memory_usable_bytes=run.memory.usable_bytes,
        breakdown=tuple(_shown(lines)),
        parallel=run.parallel,
        inputs=inputs,
    )


def _made(wanted: Asked, inputs: Mapping[str, Any]) -> float:
    """Samples of a diffusion transformer, tokens of all others, pictures' included."""
    step = wanted.step
    return float(step.sequences if inputs.get("unit") == "sample" else step.sequences * step.tokens)


def _repeated(one: OperatorTime, times: int) -> OperatorTime:
    if times == 1:
        return one
    return replace(
        one, time_s=one.time_s * times, count=one.count * times, flops=one.flops * times, bytes=one.bytes * times
    )


def _shown(lines: Sequence[OperatorTime]) -> list[OperatorTime]:
    """Without those that take no time."""
    return [one for one in lines if one.time_s.value > 0]
