"""What is given and moves no figure is listed: settings one by one and together, techniques, fields of a cluster."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

import gnomon
from gnomon.engines import engine
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.planning.unmodelled import figures
from gnomon.spec.answers import Fit, Prediction

SETTINGS: tuple[tuple[str, Any], ...] = (
    ("enforce_eager", True),
    ("max_cudagraph_capture_size", 64),
    ("max_num_seqs", 128),
    ("max_num_batched_tokens", 4096),
    ("gpu_memory_utilization", 0.8),
    ("async_scheduling", False),
    ("max_model_len", 8192),
    ("block_size", 32),
)
PAIRS = list(itertools.combinations(SETTINGS, 2))
STEPS: tuple[dict[str, Any], ...] = (
    {"phase": "decode"},
    {"phase": "decode", "batch": 100, "context": 500},
    {"phase": "prefill", "tokens": 3000},
)


def listed(answer: Prediction | Fit) -> set[str]:
    return {one.option.partition("=")[0] for one in answer.not_modelled}


@pytest.mark.battery(4)
@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "+".join(name for name, _ in pair))
def test_of_two_settings_those_that_move_nothing_are_listed(pair: Any, step: dict[str, Any]) -> None:
    """What is listed can be left out, all of it; what is not listed cannot, or says what the engine does anyway."""
    given = dict(pair)

    def ask(settings: dict[str, Any]) -> Prediction:
        return gnomon.predict("llama-3.1-8b", on="H100", settings=settings, **step)

    found = ask(given)
    idle = listed(found)
    kept = {name: value for name, value in given.items() if name not in idle}
    assert figures(ask(kept)) == figures(found)
    for name in kept:
        fewer = {other: value for other, value in kept.items() if other != name}
        assert figures(ask(fewer)) != figures(found), f"{name} is neither listed nor does it act"


def test_what_the_engine_does_anyway_is_not_listed() -> None:
    usual = engine("vllm").settings({}, load_model("llama-3.1-8b"), parse_pool("H100"))
    given = {name: usual[name] for name, _ in SETTINGS}
    assert gnomon.predict("llama-3.1-8b", on="H100", settings=given).not_modelled == ()


@pytest.mark.parametrize("eager", [{}, {"enforce_eager": True}])
def test_a_load_lists_what_another_setting_leaves_nothing_to_say(eager: dict[str, Any]) -> None:
    settings = eager | {"max_cudagraph_capture_size": 64}
    load: dict[str, Any] = {"input": 50, "output": 5, "requests": 3}
    found = gnomon.simulate_serving("llama-3.1-8b", on="H100", settings=settings, **load)
    assert ("max_cudagraph_capture_size=64" in [one.option for one in found.not_modelled]) == bool(eager)


@pytest.mark.parametrize("technique", ["kv-swap", "kv-swap:turn=100", "int4-weights", "dequantize-on-the-fly"])
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_technique_that_changes_no_figure_is_listed(technique: str, step: dict[str, Any]) -> None:
    found = gnomon.predict("llama-3.1-8b", on="H100", techniques=[technique], **step)
    same = figures(found) == figures(gnomon.predict("llama-3.1-8b", on="H100", **step))
    assert (f"--with {technique}" in [one.option for one in found.not_modelled]) == same
    assert same == (technique.startswith("kv-swap") and step["phase"] == "prefill")


FABRICS: tuple[dict[str, Any], ...] = (
    {"oversubscription": 1, "pod_nodes": 1},
    {"oversubscription": 4, "pod_nodes": 1000},
    {"oversubscription": 4, "pod_nodes": 1},
    {"oversubscription": 4, "pod_nodes": 2},
    {"oversubscription": 2},
)
ON: tuple[tuple[str, dict[str, int]], ...] = (
    ("llama-3.1-8b", {"tp": 8, "dp": 2}),
    ("llama-3.1-8b", {"tp": 8}),
    ("llama-3.1-8b", {"tp": 8, "pp": 2}),
    ("qwen3-30b-a3b", {"tp": 4, "dp": 4, "ep": 16}),
)


@pytest.mark.parametrize("fabric", FABRICS, ids=str)
@pytest.mark.parametrize(("model", "degrees"), ON, ids=str)
def test_a_network_that_no_step_uses_is_listed(
    tmp_path: Path, model: str, degrees: dict[str, int], fabric: dict[str, Any]
) -> None:
    def ask(**fields: Any) -> Prediction:
        path = tmp_path / "cluster.yaml"
        path.write_text(yaml.safe_dump({"schema": "gnomon.cluster/1", "chip": "H100", "count": 16} | fields))
        return gnomon.predict(model, on=str(path), batch=64, context=100, **degrees)

    found, plain = ask(**fabric), ask()
    fields = {one.option.rpartition(" ")[2] for one in found.not_modelled}
    assert fields == (set(fabric) if figures(found) == figures(plain) else set())
    assert not plain.not_modelled
