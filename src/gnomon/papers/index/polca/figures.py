"""POLCA (Patel et al. 2023): power of GPUs by phase, what lower clocks save of it, and servers in one power budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import gnomon
from gnomon.load import model as load_model
from gnomon.papers.base import Ours
from gnomon.spec import Model

CHIP, ENGINE = "A100-SXM-80GB", "vllm@0.2"
BLOOM, LLAMA = "bloom-176b", "llama-2-70b"
TITLES = {BLOOM: "BLOOM-176B", LLAMA: "Llama-2-70B"}
OUTPUT, LONGEST, READ_S, PERCENT = 128, 8192 + 128, 0.1, 100.0
HIGHEST, LOW_PRIORITY, HIGH_PRIORITY = 1410, 1110, 1305
"""MHz."""
PEAK, OF_SERVER, PROMPT = 0.79, 0.5, 2048
"""Of a row's power that its servers take together at their peak, and of a server's its GPUs'."""
SAVED, LOST = 0.2, 0.07
CLOCKS = tuple(one / 100 for one in range(98, 28, -2))
PEAKS = ((BLOOM, 8, 512, 1), (BLOOM, 8, 512, 8), (BLOOM, 8, 2048, 1), (LLAMA, 2, 512, 1), (LLAMA, 4, 128, 1),
         (LLAMA, 4, 512, 1), (LLAMA, 8, 128, 1), (LLAMA, 8, 512, 1), (LLAMA, 8, 512, 8))  # fmt: skip
AVERAGES = ((BLOOM, 8, 512, 1), (BLOOM, 8, 512, 8), (BLOOM, 8, 2048, 1), (BLOOM, 8, 8192, 1), (LLAMA, 2, 512, 1),
            (LLAMA, 4, 512, 1), (LLAMA, 8, 512, 1))  # fmt: skip


@cache
def _model(name: str) -> Model:
    """For the longest prompts of the table, which BLOOM's positions are not limited to."""
    return replace(load_model(name), max_context=LONGEST)


class Phase(NamedTuple):
    seconds: float
    joules: float
    """Of one GPU."""

    @property
    def watts(self) -> float:
        return self.joules / self.seconds


@cache
def _phase(model: str, gpus: int, phase: str, tokens: int, batch: int, clock: float) -> Phase:
    """A prompt, or a decode step in the middle of the output, at a share of the highest clock."""
    words: dict[str, Any] = {"phase": phase, "batch": batch, "settings": {"max_model_len": LONGEST}}
    words |= {"tokens": tokens} if phase == "prefill" else {"context": tokens + OUTPUT // 2}
    limit = [f"clock-limit:share={clock:g}"] if clock < 1 else []
    found = gnomon.predict(_model(model), on=f"{CHIP}:{gpus}", tp=gpus, engine=ENGINE, techniques=limit, **words)
    return Phase(found.time_s.value, found.energy_j.value / gpus)


def _peak_w(model: str, gpus: int, prompt: int, batch: int, clock: float = 1.0) -> float:
    """The highest reading: of the prompt, with the decode steps after it where it is shorter than a reading."""
    first, after = (_phase(model, gpus, phase, prompt, batch, clock) for phase in ("prefill", "decode"))
    inside = min(first.seconds / READ_S, 1.0)
    return inside * first.watts + (1 - inside) * after.watts


def _request(model: str, gpus: int, prompt: int, batch: int, clock: float = 1.0) -> Phase:
    first, each = (_phase(model, gpus, phase, prompt, batch, clock) for phase in ("prefill", "decode"))
    return Phase(first.seconds + (OUTPUT - 1) * each.seconds, first.joules + (OUTPUT - 1) * each.joules)


def _more_servers() -> float:
    """Per cent, with half of the servers at either clock."""
    full = _request(BLOOM, 8, PROMPT, 1).watts
    lower = sum(_request(BLOOM, 8, PROMPT, 1, mhz / HIGHEST).watts for mhz in (LOW_PRIORITY, HIGH_PRIORITY)) / 2
    return PERCENT * (1 / (PEAK * (1 - OF_SERVER * (1 - lower / full))) - 1)


def _worth_it() -> float:
    """Whether a clock that takes a fifth of the peak power costs so little."""
    plain, allowed = _request(BLOOM, 8, PROMPT, 1), (1 - SAVED) * _peak_w(BLOOM, 8, PROMPT, 1)
    clock = next((one for one in CLOCKS if _peak_w(BLOOM, 8, PROMPT, 1, one) <= allowed), CLOCKS[-1])
    return float(plain.seconds / _request(BLOOM, 8, PROMPT, 1, clock).seconds >= 1 - LOST)


def figures() -> Iterator[Ours]:
    yield "more servers in a row's power", _more_servers()
    yield "BLOOM-176B loses at most 7% for 20% of peak power (1 for yes)", _worth_it()
    (chip,) = gnomon.chips(CHIP).chips
    for what, cases in (("peak", PEAKS), ("average", AVERAGES)):
        for model, gpus, prompt, batch in cases:
            prompts = f"{batch} of {prompt}" if batch > 1 else str(prompt)
            watts = (
                _peak_w(model, gpus, prompt, batch) if what == "peak" else _request(model, gpus, prompt, batch).watts
            )
            yield f"{TITLES[model]} on {gpus}, {prompts} tokens: {what}", PERCENT * watts / chip["tdp_w"]
