"""Any torch module: traced without weights and without a GPU, then priced on any chip."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

from gnomon.cost.machine import Machine
from gnomon.load.overheads import own_overheads
from gnomon.load.profiles import profile_for
from gnomon.load.tracing.script_words import one_chip, script_question, scripted, traced_module
from gnomon.planning.steps.traced import price_traced
from gnomon.spec import Pool
from gnomon.spec.answers import ModulePrediction
from gnomon.spec.questions.running import TraceQuestion
from gnomon.spec.questions.step import PredictQuestion


def trace(
    module: Any,
    inputs: Any,
    *,
    on: str | Pool,
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
    parameters. `launch` is `eager` or `graph`, a captured CUDA graph; `tf32` allows it for matmuls;
    `sustained` holds the clock to the power limit.
    """
    question = TraceQuestion(
        on=on, phase=phase, dtype=dtype, autocast=autocast, batch=batch, loss=loss, optimizer=optimizer, launch=launch,
        tf32=tf32, sustained=sustained,
    )  # fmt: skip
    return answer(module, inputs, question)


def answer(module: Any, inputs: Any, question: TraceQuestion) -> ModulePrediction:
    """One step of a module as a question asks for it."""
    pool = one_chip(question)
    traced = traced_module(module, inputs, question)
    machine = Machine(pool, profile_for(pool.chip, "torch"), "torch")
    return price_traced(traced, question, machine, own_overheads("transformers"))


def predict_script(question: PredictQuestion) -> ModulePrediction:
    """The module that the user's own function builds, traced and priced. What the user's code prints goes to stderr."""
    asked = script_question(question)
    with redirect_stdout(sys.stderr):
        module, inputs, asked = scripted(str(question.model), asked)
        found = answer(module, inputs, asked)
    given = {"dtype": question.dtype, "batch": question.batch, "settings": dict(question.settings or {})}
    return replace(found, inputs=dict(found.inputs) | {"model": str(question.model), "asked": given})
