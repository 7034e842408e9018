"""A traced torch module, priced on a chip."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gnomon.cost.machine import Machine
from gnomon.engines.own import MeasuredHosts
from gnomon.engines.torch.eager import Lowered, Precision, lower, peak
from gnomon.engines.torch.eager.lower import host, host_model
from gnomon.engines.torch.eager.price import PricedStep, priced
from gnomon.engines.torch.engine import RUNTIME_BYTES, SPARE
from gnomon.errors import InputError, named_by
from gnomon.planning.shortage import shortage
from gnomon.spec import Chip, Estimate
from gnomon.spec.answers import ModulePrediction, Resolved
from gnomon.spec.questions.running import TraceQuestion
from gnomon.spec.traced import Traced

SAID = ("phase", "launch", "tf32", "sustained", "autocast", "fused", "steps")
"""What of a question its answer repeats."""


def price_traced(traced: Traced, asked: TraceQuestion, machine: Machine, own: MeasuredHosts) -> ModulePrediction:
    """A traced step on one chip: its kernels, at the clock that the power limit allows, and the host's launches."""
    lowered = lower(traced, _precision(machine.chip, asked.tf32), host(own), fused=asked.fused)
    host_s = asked.steps * lowered.host_s(asked.launch)
    lowered = replace(lowered, launched=asked.steps * lowered.launched)
    if not lowered.launched:
        raise InputError("launches no kernel on these inputs: there is nothing to time", where="module")
    with named_by("--dtype"):
        step = priced(lowered, machine, idle_s=lambda busy: max(host_s - busy, 0.0), sustained=asked.sustained)
    said = {name: getattr(asked, name) for name in SAID}
    words = {
        "model": traced.name,
        "on": str(asked.on),
        "dtype": traced.dtype,
        "batch": traced.samples,
        "unit": "sample",
    }
    return _prediction(traced, lowered, step, host_s, words | said | {"arithmetic": step.arithmetic})


def _precision(chip: Chip, tf32: bool) -> Precision:
    """As PyTorch sets it: fp32 convolutions round to tf32 where the chip has it, GEMMs only if they may."""
    if tf32 and "tf32" not in chip.rates_flops:
        raise InputError(f"{chip.name} has no tf32", where="tf32", hint="Leave it out.")
    return Precision(gemms="tf32" if tf32 else "fp32", convolutions="tf32" if "tf32" in chip.rates_flops else "fp32")


def _prediction(
    traced: Traced, lowered: Lowered, step: PricedStep, host_s: float, inputs: dict[str, Any]
) -> ModulePrediction:
    chip, waits = step.machine.chip, host_model(host_s, lowered.host)
    price = step.price(waits, lambda one, _: _place(one.module, one.phase))
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
    how += " with fused chains" if inputs["fused"] else ""
    step = "one forward pass" if traced.phase == "forward" else "one training step"
    step = step if inputs["steps"] == 1 else f"{inputs['steps']:,} forward passes"
    samples = "1 sample" if traced.samples == 1 else f"{traced.samples:,} samples"
    cast = f" under {inputs['autocast']} autocast" if inputs["autocast"] else ""
    return f"{traced.name}, {traced.dtype}{cast}, 1 x {chip.name}, {how}: {step} of {samples}"
