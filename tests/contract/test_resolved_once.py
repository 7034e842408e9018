"""Names end at the edge: an answer looks each chip, profile, engine, model, technique and trace up once, and asks for
the user's folder a few times, however many plans it tries."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import gnomon

ROOT = Path(gnomon.__file__).parent
LOOKUPS = {
    ("load/chips.py", "find"): "ref",
    ("load/hf.py", "model"): "ref",
    ("load/profiles.py", "resolve"): "chip",
    ("load/traces.py", "read_trace"): "path",
    ("load/recipe.py", "recipe_of"): "",
    ("load/training.py", "job_of"): "",
    ("engines/__init__.py", "engine"): "label",
    ("engines/__init__.py", "training_engine"): "label",
    ("techniques/__init__.py", "_told"): "text",
    ("paths.py", "home"): "",
}
"""Where names become objects, and the argument that has the name."""
SERVED = {"rate": 5, "input": 2000, "output": 4, "requests": 400}
FIXED = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
TRAINED = {"seq": 2048, "global_batch": 16}

Answer = Callable[[], Any]
TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{i / 4},{2000 + i % 7},4\n" for i in range(500))
ANSWERS: dict[str, Answer] = {
    "predict decode": lambda: gnomon.predict("llama-3.1-8b", on="H100", batch=32, context=1024),
    "predict prefill": lambda: gnomon.predict("qwen3-30b-a3b", on="H200:2", phase="prefill", tokens=500),
    "fit": lambda: gnomon.fit("llama-3.1-8b", on="L4"),
    "simulate": lambda: gnomon.simulate_serving("llama-3.1-8b", on="L40S", **SERVED),
    "predict a network": lambda: gnomon.predict("qwen2.5-vl-7b", on="H200", phase="prefill", tokens=100),
    "predict with a technique": lambda: gnomon.predict(
        "llama-3.1-8b", on="H100", batch=4, context=100, techniques=["int4-weights"]
    ),
    "fit an encoder": lambda: gnomon.fit("bert-base", on="L4"),
    "simulate a trace": lambda: gnomon.simulate_serving("llama-3.1-8b", on="L40S", trace="trace.csv"),
    "plan for a trace": lambda: gnomon.plan_serving("llama-3.1-8b", fleet="H100:1", trace="trace.csv", settings=FIXED),
    "plan": lambda: gnomon.plan_serving(
        "llama-3.1-8b", fleet="H100:2", slo="ttft_p90=1s,tpot_p90=80ms", **SERVED, settings=FIXED
    ),
    "plan over two chips": lambda: gnomon.plan_serving(
        "llama-3.1-8b", fleet="H100:2,L40S:2", slo="ttft_p90=1s,tpot_p90=80ms", **SERVED, settings=FIXED
    ),
    "simulate train": lambda: gnomon.simulate_training("llama-3.1-8b", on="H100:8", pp=2, **TRAINED),
    "simulate train with a technique": lambda: gnomon.simulate_training(
        "llama-3.1-8b", on="H100:8", zero=1, techniques=["offload-optimizer"], **TRAINED
    ),
    "plan train": lambda: gnomon.plan_training("llama-3.1-8b", cluster="H100:8", **TRAINED),
    "predict train": lambda: gnomon.predict("llama-3.2-1b", on="H100:2", phase="train", tokens=512, batch=8),
    "try": lambda: gnomon.try_idea("gpipe", model="llama-3.1-8b", on="H100:8", seq=2048),
}


@cache
def place_of(code: CodeType) -> tuple[str, str] | None:
    """A function that makes names into objects."""
    path = Path(code.co_filename)
    place = (path.relative_to(ROOT).as_posix(), code.co_name) if path.is_relative_to(ROOT) else ("", "")
    return place if place in LOOKUPS else None


def lookups(answer: Answer) -> Counter[tuple[str, str]]:
    """How often each name was looked up, by kind."""
    found: Counter[tuple[str, str]] = Counter()

    def watch(frame: Any, event: str, _: Any) -> None:
        place = place_of(frame.f_code) if event == "call" else None
        if place and not _writes_a_command(frame):
            asked = frame.f_locals.get(LOOKUPS[place], "")
            found[place[0], str(getattr(asked, "name", asked))] += 1

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


@pytest.mark.heavy
@pytest.mark.parametrize("name", ANSWERS)
def test_each_name_is_resolved_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.csv").write_text(TRACE)
    ANSWERS[name]()  # what is read once for the whole process is not an answer's own
    found = lookups(ANSWERS[name])
    assert found, "the places are named wrongly"
    homes = found.pop(("paths.py", ""), 0)
    assert homes <= 8
    assert {key: count for key, count in found.items() if count > 1} == {}
