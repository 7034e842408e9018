"""Names end at the edge: an answer looks each chip, engine and model up once, and asks for the user's folder a few
times, however many plans it tries."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gnomon

LOOKUPS = {
    ("load/chips.py", "find"): "ref",
    ("load/hf.py", "model"): "ref",
    ("engines/__init__.py", "engine"): "name",
    ("paths.py", "home"): "",
}
"""Where names become objects, and the argument that has the name."""
SERVED = {"rate": 5, "input": 300, "output": 20, "requests": 400}

Answer = Callable[[], Any]
ANSWERS: dict[str, Answer] = {
    "predict decode": lambda: gnomon.predict("llama-3.1-8b", on="H100", batch=32, context=1024),
    "predict prefill": lambda: gnomon.predict("qwen3-30b-a3b", on="H200:2", phase="prefill", tokens=500),
    "fit": lambda: gnomon.fit("llama-3.1-8b", on="L4"),
    "simulate": lambda: gnomon.simulate_serving("llama-3.1-8b", on="L40S", **SERVED),
    "plan": lambda: gnomon.plan_serving("llama-3.1-8b", fleet="H100:2", slo="ttft_p90=1s,tpot_p90=80ms", **SERVED),
    "plan over two chips": lambda: gnomon.plan_serving(
        "llama-3.1-8b", fleet="H100:2,L4:4", slo="ttft_p90=1s,tpot_p90=80ms", **SERVED
    ),
}


def lookups(answer: Answer) -> Counter[tuple[str, str]]:
    """How often each name was looked up, by kind."""
    found: Counter[tuple[str, str]] = Counter()
    root = Path(gnomon.__file__).parent
    places = {(str(root / path), name): (path, argument) for (path, name), argument in LOOKUPS.items()}

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            place = places.get((frame.f_code.co_filename, frame.f_code.co_name))
            if place and not _writes_a_command(frame):
                found[place[0], str(frame.f_locals.get(place[1], ""))] += 1

    sys.setprofile(watch)
    try:
        answer()
    finally:
        sys.setprofile(None)
    return found


def _writes_a_command(frame: Any) -> bool:
    """Whether an engine's launch command is written, which is done of a plan as its file has it."""
    while frame is not None:
        if frame.f_code.co_filename.endswith("launch.py"):
            return True
        frame = frame.f_back
    return False


@pytest.mark.parametrize("name", ANSWERS)
def test_each_name_is_resolved_once(name: str) -> None:
    ANSWERS[name]()  # what is read once for the whole process is not an answer's own
    found = lookups(ANSWERS[name])
    assert found, "the places are named wrongly"
    homes = found.pop(("paths.py", ""), 0)
    assert homes <= 8
    assert {key: count for key, count in found.items() if count > 1} == {}
