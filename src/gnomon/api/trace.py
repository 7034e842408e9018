"""Any torch module: traced without weights and without a GPU, then priced on any chip."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from gnomon.cost.machine import Machine
from gnomon.engines.torch.eager import Lowered, Precision, lower, peak
from gnomon.engines.torch.eager.lower import host, host_model
from gnomon.engines.torch.eager.price import PricedStep, priced
from gnomon.engines.torch.engine import RUNTIME_BYTES, SPARE
from gnomon.errors import InputError, MissingExtraError, named_by, unknown_name
from gnomon.load import parse_pool
from gnomon.load.overheads import own_overheads
from gnomon.load.profiles import profile_for
from gnomon.planning.shortage import shortage
from gnomon.spec import Chip, Estimate
from gnomon.spec.answers import ModulePrediction, Resolved
from gnomon.spec.traced import Traced

PHASES = ("forward", "train")


def trace(
    module: Any,
    inputs: Any,
    *,
    on: str,
    phase: str = "forward",
    dtype: str | None = None,
    autocast: str | None = None,
    batch: int | None = None,
    loss: Callable[[Any], Any] | None = None,
    optimizer: str | Callable[[Any], Any] = "adamw",
    launch: str = "eager",
    tf32: bool = False,
    sustained: bool = False,
) -> ModulePrediction:
    """Seconds, memory, energy and dollars of one forward pass or one training step of any `torch.nn.Module`.

    `inputs` are what it is called with: a tensor, a tuple, or a mapping of arguments by name; only their shapes and
    formats count, and module and inputs may be on the meta device. `dtype` casts both as `module.to` would,
    `autocast` runs fp32 weights under it; `batch` replaces the inputs' first dimension. Training runs backward from
    `loss(outputs)`, from the outputs' own `loss`, or from all outputs, then `optimizer`: a name or a function of the
    parameters. `launch` is `eager` or `graph`, a captured CUDA graph; `tf32` allows it for matrix products;
    `sustained` holds the clock to the power limit.
    """
    if phase not in PHASES:
        raise unknown_name("phase", str(phase), PHASES, where="--phase")
    pool = parse_pool(on)
    if pool.count != 1:
        raise InputError(f"'{on}' is more than the one chip a traced module runs on", where="--on")
    traced = _traced(
        module,
        inputs,
        phase=phase,
        dtype=dtype,
        autocast=autocast,
        batch=batch,
        loss=loss,
        optimizer=optimizer,
        captured=launch == "graph",
    )
    lowered = lower(traced, _precision(pool.chip, tf32), host(own_overheads("transformers")))
    host_s = lowered.host_s(launch)
    if not lowered.launched:
        raise InputError("launches no kernel on these inputs: there is nothing to time", where="module")
    machine = Machine(pool, profile_for(pool.chip, "torch"), "torch")
    with named_by("--dtype"):
        step = priced(lowered, machine, idle_s=lambda busy: max(host_s - busy, 0.0), sustained=sustained)
    asked = {"phase": phase, "launch": launch, "tf32": tf32, "sustained": sustained, "autocast": autocast}
    words = {"model": traced.name, "on": on, "dtype": traced.dtype, "batch": traced.samples, "unit": "sample"}
    return _prediction(traced, lowered, step, host_s, words | asked | {"arithmetic": step.arithmetic})


def _precision(chip: Chip, tf32: bool) -> Precision:
    """As PyTorch sets it: fp32 convolutions round to tf32 where the chip has it, products only if they may."""
    if tf32 and "tf32" not in chip.rates_flops:
        raise InputError(f"{chip.name} has none", where="tf32", hint="Leave it out.")
    return Precision(products="tf32" if tf32 else "fp32", convolutions="tf32" if "tf32" in chip.rates_flops else "fp32")


def _traced(module: Any, inputs: Any, **options: Any) -> Traced:
    if find_spec("torch") is None:
        raise MissingExtraError("torch", "torch", "tracing a module")
    from gnomon.load.tracing import trace_module

    return trace_module(module, inputs, **options)


def _prediction(
    traced: Traced, lowered: Lowered, step: PricedStep, host_s: float, inputs: dict[str, Any]
) -> ModulePrediction:
    chip, host = step.machine.chip, host_model(host_s, lowered.host)
    price = step.price(host, lambda one, _: _place(one.module, one.phase))
    total, (bound, share) = price.time_s, price.bound
    parts = dict(peak(traced).parts) | {"runtime": RUNTIME_BYTES}
    needed, usable = sum(parts.values()), chip.memory_bytes * (1 - SPARE)
    return ModulePrediction(
        title=_title(traced, chip, inputs),
        time_s=total,
        memory_bytes=Estimate.exact(needed, "tensors alive at the fullest moment, and the runtime"),
        energy_j=price.joules,
        cost_usd=total * (chip.price_usd_h / 3600),
        tokens_per_s=traced.samples / total.value,
        bound=bound,
        bound_share=share,
        fits=needed <= usable,
        cause=shortage(parts, usable, sequences=traced.samples),
        memory_parts=parts,
        memory_total_bytes=chip.memory_bytes,
        memory_usable_bytes=usable,
        breakdown=price.lines,
        inputs=inputs,
        resolved=Resolved.of(None, step.machine.pool),
        operators=tuple(step.groups(lambda _, op: op.name).values()),
        parameters=traced.parameters,
        flops=price.flops,
        kernels=lowered.kernels,
        host_s=host_s,
        unknown=tuple(sorted(lowered.unknown)),
        traced=traced,
    )


def _place(module: str, phase: str) -> str:
    path = module or ("optimizer" if phase == "optimizer" else "(itself)")
    return f"{path} backward" if phase == "backward" else path


def _title(traced: Traced, chip: Chip, inputs: dict[str, Any]) -> str:
    how = "PyTorch in a CUDA graph" if inputs["launch"] == "graph" else "eager PyTorch"
    step = "one forward pass" if traced.phase == "forward" else "one training step"
    samples = "1 sample" if traced.samples == 1 else f"{traced.samples:,} samples"
    cast = f" under {inputs['autocast']} autocast" if inputs["autocast"] else ""
    return f"{traced.name}, {traced.dtype}{cast}, 1 x {chip.name}, {how}: {step} of {samples}"
