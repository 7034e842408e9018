"""One answer and more of every kind, asked for or made up, by the name of its class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory
from typing import Any

from tests.report import answers

import gnomon
from gnomon.accuracy import accuracy
from gnomon.calibrate.engine_overheads import EngineCalibrated
from gnomon.calibrate.profiles import Calibrated
from gnomon.calibrate.quick import QuickCalibrated
from gnomon.execution.checked import Checked
from gnomon.spec.answers import History, KeptRun, ModulePrediction, NotModelled, Result, Shortage
from gnomon.store import resolve_plan, save

PLAN = Path(__file__).parents[2] / "examples" / "plan.yaml"
GIB = 1024**3
SERVE = "vllm serve llama-3.2-1b --max-model-len 4k"
TUNED: dict[str, Any] = {"rate": 2, "input": 4000, "output": 2, "requests": 400}
RUNNING = "vllm serve llama-3.1-8b --max-model-len 8k"


def answering() -> set[str]:
    """Names of all classes of answers that have a schema, wherever they are."""
    for package in ("api", "accuracy", "papers", "lab", "spec"):
        for found in walk_packages(import_module(f"gnomon.{package}").__path__, f"gnomon.{package}."):
            if not found.name.startswith(("gnomon.papers.derived.", "gnomon.lab.")):
                import_module(found.name)
    found = list(Result.__subclasses__())
    for kind in found:
        found += kind.__subclasses__()
    return {kind.__name__ for kind in found if kind.SCHEMA}


def explained() -> Any:
    save("predict", answers.prediction().to_dict())
    return gnomon.explain("last")


def opened_operator() -> Any:
    save("predict", answers.prediction().to_dict())
    return gnomon.explain("last", op="qkv")


def cramped() -> Any:
    cause = Shortage(part="weights", needs_bytes=131.4 * GIB, left_bytes=73.2 * GIB)
    ignored = (NotModelled(option="--seed 3", why="nothing is drawn"),)
    return answers.prediction(fits=False, cause=cause, not_modelled=ignored)


def module(**changes: Any) -> ModulePrediction:
    """A traced module of some depth: times by kernel, and by module."""
    paths = [f"decoder.layers.{layer}.{name}.{part}" for layer in range(4) for name in "abcd" for part in "xy"]
    step = answers.prediction()
    base = {name: getattr(step, name) for name in step.__dataclass_fields__} | {
        "title": "net.py:make, bf16, 1 x H200, PyTorch 2.11: forward of 8 samples",
        "breakdown": tuple(answers.operator(path, 0.0002) for path in paths),
        "operators": (answers.operator("aten.addmm", 0.004), answers.operator("aten.gelu", 0.0003)),
        "inputs": {"model": "net.py:make", "on": "H200", "phase": "forward", "dtype": "bf16", "unit": "sample"}
        | {"batch": 8, "launch": "eager", "asked": {"batch": 8, "settings": {}}},
    }
    return ModulePrediction(**base | changes)


def calibrated() -> Calibrated:
    error = {"median": 0.031, "p90": 0.09, "rows": 90}
    return Calibrated(
        title="H200-SXM-141GB: 1,204 operators measured",
        chip="H200-SXM-141GB",
        table="calibration.csv",
        profile="profile.yaml",
        rows={"kept": 0, "measured": 1204, "failed": 0, "left": 17},
        families={"gemm.bf16": {"rows": 900, "held_out": error}},
        power={},
    )


def engine_calibrated() -> EngineCalibrated:
    return EngineCalibrated(
        title="vLLM 0.24.0 on this host",
        engine="vllm",
        version="0.24.0",
        host="a host",
        models=("llama-3.2-1b",),
        figures={"dense": {"step_us": 812.5}},
        table="engine.json",
        profile="overheads.yaml",
    )


def quick_calibrated() -> QuickCalibrated:
    return QuickCalibrated(
        title="H200: this card beside the shipped profile",
        chip="H200-SXM-141GB",
        table="quick.json",
        profile="cards/h200-sxm-141gb.yaml",
        factors={"compute": 0.99, "memory": 1.01, "energy": 1.02, "host": 0.9},
        spread={"compute": 0.01, "memory": 0.02, "host": 0.05},
        against="the same kernels on the card of the profile",
        skipped={"gemm_fp8": "no such kernel"},
        notes=("it is 20% busy with somebody else's work",),
    )


def checked() -> Checked:
    figures = {"ttft_s": 0.06, "tpot_s": 0.011, "output_tokens_per_s": 2041.0}
    return Checked(
        title="vllm bench serve beside its prediction",
        measured=figures,
        predicted={name: 1.1 * value for name, value in figures.items()},
        errors=dict.fromkeys(figures, 0.1),
        method="medians of 100 requests",
        kept="check.json",
    )


NO_LOSS = dict.fromkeys(("checkpoint_stalls", "lost_work", "detection", "restarts", "loading", "repairs"), 0.0)
BANDED = {"ttft_s": {"p90": (0.08, 0.11), "mean": (0.05, 0.07)}, "output_tokens_per_s": {"mean": (1990.0, 2090.0)}}
SERVED: dict[str, Callable[[], Any]] = {
    "served": answers.served,
    "served with intervals": lambda: answers.served(bands=BANDED),
    "served, with series": lambda: answers.served(**answers.SERIES),
    "overloaded": lambda: answers.served(overloaded=True, settled=False),
    "still filling": lambda: answers.served(settled=False),
    "a load without second tokens": lambda: answers.served(tpot_s=dict.fromkeys(("mean", "p50", "p90", "p99"), None)),
}


def trained_plan() -> Any:
    return gnomon.plan_training("llama-3.2-1b", cluster="H100:2", seq=512, global_batch=16).best.plan


def halved() -> Any:
    """The plan with half the tensor-parallel ranks."""
    plan = resolve_plan(PLAN)
    return replace(plan, id="halved", strategy=replace(plan.strategy, tp=2))


def swept(count: int = 4) -> Any:
    """Steps of several batches, one of which is refused."""
    asked = {
        "command": "predict",
        "fixed": {"model": "llama-3.2-1b", "on": "H100"},
        "over": {"batch": list(range(count)), "settings": [{"max_num_seqs": 256}]},
    }
    with TemporaryDirectory() as folder:
        return replace(gnomon.sweep(asked, out=Path(folder, "steps.jsonl")), out="steps.jsonl")


MADE: dict[str, dict[str, Callable[[], Any]]] = {
    "Prediction": {"a step": answers.prediction, "a step that does not fit": cramped},
    "ModulePrediction": {"a module": module},
    "Fit": {"fits": answers.fit, "does not fit": lambda: answers.fit(fits=False)},
    "ServingReport": SERVED,
    "PlanReport": {
        "planned": answers.planned,
        "planned, with other rates": lambda: answers.planned(by_rate=answers.BY_RATE),
        "planned, if inputs are otherwise": lambda: answers.planned(**answers.OTHERWISE),
        "no other plan": lambda: answers.planned(runner_up={"why": "none"}),
    },
    "TrainingReport": {
        "trained": answers.trained,
        "a step alone": lambda: answers.trained(run={}),
        "a run with failures": lambda: answers.trained(reliability=answers.interrupted()),
        "a run with hardly any": lambda: answers.trained(reliability=answers.interrupted(spares=0, lost=NO_LOSS)),
        "too large": lambda: answers.trained(fits=False, usable_memory_bytes=10.0 * GIB, host_bytes=3.0 * GIB),
    },
    "TrainingPlanReport": {"searched": answers.trained_plan, "alone": lambda: answers.trained_plan(runner_up={})},
    "Verified": {"served": answers.verified, "trained": answers.verified_training},
    "SweepReport": {"few": swept, "many": lambda: swept(40), "one": lambda: swept(1)},
    "ImportedPlan": {
        "a command": lambda: gnomon.import_plan(f"{SERVE} --port 80 --swap-space 4 --enable-lora", on="H100:2"),
        "a script": lambda: gnomon.import_plan(f"N=64; {SERVE} --max-num-seqs $N", on="H100"),
    },
    "TunedPlan": {
        "goals met": lambda: gnomon.tune(RUNNING, on="H100", slo="ttft_p90=1s", **TUNED),
        "goals missed": lambda: gnomon.tune(RUNNING, on="L40S", slo="ttft_p90=10us", **TUNED),
    },
    "SideBySide": {
        "plans": lambda: gnomon.compare(PLAN, halved()),
        "answers": lambda: gnomon.compare(answers.prediction(), answers.prediction(time_s=answers.estimate(0.004))),
    },
    "TechniqueComparison": {
        "served": lambda: gnomon.try_idea("gptq", model="llama-3.2-1b", on="H100"),
        "trained": lambda: gnomon.try_idea("zero-offload", model="llama-3.2-1b", on="H100:1", seq=512, global_batch=8),
    },
    "HelpfulTechniques": {
        "trained": lambda: gnomon.papers.apply(trained_plan()),
        "none": lambda: replace(gnomon.papers.apply(trained_plan()), pairs=(), techniques=(), best=()),
    },
    "Explanation": {"an answer": explained, "an operator": opened_operator},
    "History": {"a run": lambda: History(runs=(KeptRun(id="fit-1", kind="fit", saved_s=1.8e9, title="a fit"),))},
    "Exported": {"a plan": lambda: gnomon.export(PLAN)},
    "Launched": {"a dry run": lambda: gnomon.launch(PLAN, dry_run=True)},
    "Chips": {"all": gnomon.chips, "one": lambda: gnomon.chips("H100")},
    "NewChip": {"a chip": lambda: gnomon.new_chip("my-chip", like="H100")},
    "Models": {"all": gnomon.models, "one": lambda: gnomon.models("llama-3.1-8b")},
    "Techniques": {"all": gnomon.techniques},
    "PaperList": {"found": lambda: gnomon.papers.search("offload")},
    "PaperShown": {"one": lambda: gnomon.papers.show("zero-offload")},
    "PapersRun": {"one": lambda: gnomon.papers.run("zero-offload")},
    "PaperCitation": {"one": lambda: gnomon.papers.cite("zero-offload")},
    "NewPaper": {"one": lambda: gnomon.papers.new("a-paper")},
    "Calibrated": {"a chip": calibrated},
    "EngineCalibrated": {"an engine": engine_calibrated},
    "QuickCalibrated": {"a card": quick_calibrated},
    "Checked": {"a deployment": checked},
    "Accuracy": {"stored": accuracy},
}
CASES = [(kind, name) for kind, made in MADE.items() for name in made]
"""Every kind of answer, in every state that is shown differently."""


@functools.cache
def made(kind: str, name: str) -> Any:
    return MADE[kind][name]()
