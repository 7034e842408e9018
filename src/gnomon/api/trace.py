"""Any torch module: traced without weights and without a GPU, then priced on any chip."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.cost.machine import Machine
from gnomon.load.files import as_path
from gnomon.load.overheads import own_overheads
from gnomon.load.profiles import profile_for
from gnomon.load.tracing.script_words import file_question, one_chip, script_question, scripted, traced_module
from gnomon.load.tracing.trace_file import read_trace, write_trace
from gnomon.planning.steps.traced import price_traced
from gnomon.spec import Pool
from gnomon.spec.answers import ModulePrediction
from gnomon.spec.questions.running import TraceQuestion
from gnomon.spec.questions.step import PredictQuestion
from gnomon.spec.questions.values import check_value
from gnomon.spec.traced import Traced


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
    fused: bool = False,
    steps: int = 1,
    out: str | Path | None = None,
) -> ModulePrediction:
    """Seconds, memory, energy and dollars of one forward pass or one training step of any `torch.nn.Module`.

    `inputs` are what it is called with: a tensor, a tuple, or a mapping of arguments by name; only their shapes and
    formats count, and module and inputs may be on the meta device. `dtype` casts both as `module.to` would,
    `autocast` runs fp32 weights under it; `batch` replaces the inputs' first dimension. Training runs backward from
    `loss(outputs)`, from the outputs' own `loss`, or from all outputs, then `optimizer`: a name or a function of the
    parameters. `launch` is `eager` or `graph`, a captured CUDA graph; `tf32` allows it for matmuls;
    `sustained` holds the clock to the power limit; `fused` joins chains of memory-bound kernels as `torch.compile`
    does; `steps` forward passes are run one after the other, as a diffusion model's are. `out`, a name that ends in
    `.trace.json` or `.trace.json.gz`, keeps the trace: `gnomon.predict` prices such a file on any chip, without
    PyTorch.
    """
    check_value(out, "str | Path | None", "out")
    question = TraceQuestion(
        on=on, phase=phase, dtype=dtype, autocast=autocast, batch=batch, loss=loss, optimizer=optimizer, launch=launch,
        tf32=tf32, sustained=sustained, fused=fused, steps=steps,
    )  # fmt: skip
    found = answer(module, inputs, question)
    if out is not None and found.traced is not None:
        write_trace(found.traced, out)
    return found


def answer(module: Any, inputs: Any, question: TraceQuestion) -> ModulePrediction:
    """One step of a module as a question asks for it."""
    one_chip(question)
    return answer_traced(traced_module(module, inputs, question), question)


def answer_traced(traced: Traced, question: TraceQuestion) -> ModulePrediction:
    """A step that was traced, on the chip of a question."""
    pool = one_chip(question)
    machine = Machine(pool, profile_for(pool.chip, "torch"), "torch")
    return price_traced(traced, question, machine, own_overheads("transformers"))


def predict_script(question: PredictQuestion) -> ModulePrediction:
    """The module that the user's own function builds, traced and priced. What the user's code prints goes to stderr."""
    asked = script_question(question)
    with redirect_stdout(sys.stderr):
        module, inputs, asked = scripted(str(question.model), asked)
        found = answer(module, inputs, asked)
    return _of_file(found, question)


def predict_trace_file(question: PredictQuestion) -> ModulePrediction:
    """The trace of a file, priced."""
    traced = read_trace(as_path(str(question.model)))
    return _of_file(answer_traced(traced, file_question(question, traced)), question)


def _of_file(found: ModulePrediction, question: PredictQuestion) -> ModulePrediction:
    """An answer whose inputs name the file that it was made of."""
    given: dict[str, Any] = {name: getattr(question, name) for name in ("dtype", "batch", "steps")}
    given["settings"] = dict(question.settings or {})
    return replace(found, inputs=dict(found.inputs) | {"model": str(question.model), "asked": given})
