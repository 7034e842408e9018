"""Fields of training plans: each acts, is refused by its name, or stands in the header of what is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.export.training import a_training_plan

import gnomon
from gnomon.api.launch import launch
from gnomon.api.verify import verify
from gnomon.engines import training_engines
from gnomon.errors import DoesNotFitError, InputError
from gnomon.spec import Plan, Recipe, Strategy, TrainingLoad

TEXT = """schema: gnomon.plan/1
model: llama-3.2-1b
chip: H100
replicas: 1
strategy: {pp: 4, dp: 2}
dtype: bf16
engine: {name: megatron, settings: {recompute: none}}
load: {seq: 2048, global_batch: 64}
"""
SERVES, UNKNOWN = "vllm does not train", "unknown engine"
ENGINES = {
    "name: vllm": f"engine.name: {SERVES}",
    "name: foo": f"engine.name: {UNKNOWN} 'foo'",
    "name: Megatron": f"engine.name: {UNKNOWN} 'Megatron'",
    "name: megatron@2026.08": f"engine.name: {UNKNOWN}",
    "name: torchrun": f"engine.name: {UNKNOWN}",
    "name: megatron, version: '9.9'": "engine.version: unknown version of megatron '9.9'",
    "name: torch, version: '1.0'": "engine.version: unknown version of torch '1.0'",
}
COMMANDS: dict[str, Any] = {
    "export": gnomon.export,
    "forced": lambda plan: gnomon.export(plan, force=True),
    "torchrun": lambda plan: gnomon.export(plan, "torchrun"),
    "verify": verify,
    "launch": launch,
}


def written(folder: Path, *changes: tuple[str, str]) -> str:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "plan.yaml").write_text(text)
    return str(folder / "plan.yaml")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_that_does_not_train_is_refused(tmp_path: Path, engine: str, command: str) -> None:
    with pytest.raises(InputError) as caught:
        COMMANDS[command](written(tmp_path, ("name: megatron", engine)))
    assert ENGINES[engine] in str(caught.value)


@pytest.mark.parametrize("engine", training_engines())
@pytest.mark.parametrize("to", ["megatron", "torchrun"])
def test_a_plan_of_one_training_engine_is_written_for_the_other(tmp_path: Path, engine: str, to: str) -> None:
    assert gnomon.export(written(tmp_path, ("name: megatron", f"name: {engine}"), ("pp: 4, dp: 2", "dp: 8")), to).files[
        "run.sh"
    ]


def test_verify_runs_serving_plans_of_its_own_engine_alone(tmp_path: Path) -> None:
    served = TEXT.replace("load: {seq: 2048, global_batch: 64}", "load: {input_tokens: 8, output_tokens: 8}")
    served = served.replace("{pp: 4, dp: 2}", "{tp: 1}").replace("{name: megatron, settings: {recompute: none}}", "%s")
    (tmp_path / "plan.yaml").write_text(served % "{name: foo}")
    with pytest.raises(InputError, match=r"engine\.name: the plan is for the engine 'foo', not for vllm"):
        verify(str(tmp_path / "plan.yaml"))


@pytest.mark.parametrize("line", ["kv_dtype: fp8", "kv_dtype: auto", "checkpoint: a/b", "router: random"])
def test_fields_of_serving_are_refused_by_name(tmp_path: Path, line: str) -> None:
    field = line.partition(":")[0]
    with pytest.raises(InputError, match=rf"field {field}: a plan for training .*\. Leave it out"):
        gnomon.export(written(tmp_path, ("dtype: bf16\n", f"dtype: bf16\n{line}\n")))


@pytest.mark.parametrize("field", ["router", "kv_dtype", "checkpoint"])
def test_and_of_plans_made_in_python(field: str) -> None:
    given: Any = {field: {"router": "least-requests"}.get(field, "fp8")}
    with pytest.raises(InputError, match=f"{field}: a plan for training"):
        gnomon.export(replace(a_training_plan(), **given))


IDLE = {
    "expert_tp 1: the model has no experts": (Recipe(expert_tp=1), Strategy(tp=2, dp=4)),
    "cp_comm a2a: one context-parallel rank has all keys": (Recipe(cp_comm="a2a"), Strategy(tp=2, dp=4)),
    "schedule gpipe: one pipeline rank has only one order of passes": (Recipe(schedule="gpipe"), Strategy(tp=2, dp=4)),
    "zero 1: one rank has no others to shard its states over": (Recipe(zero=1), Strategy(tp=8)),
}


@pytest.mark.parametrize("to", ["megatron", "torchrun"])
@pytest.mark.parametrize("said", IDLE)
def test_settings_without_effect_stand_in_the_header(said: str, to: str) -> None:
    recipe, strategy = IDLE[said]
    plan = a_training_plan(recipe, model="llama-3.2-1b", strategy=strategy, load=TrainingLoad(seq=2048, global_batch=8))
    found = gnomon.export(plan, to, force=True)
    assert said in found.not_expressed
    assert f"# not in these files: {said}" in found.files["run.sh"]
    usual = gnomon.export(replace(plan, engine=a_training_plan().engine), to, force=True)
    assert not [line for line in usual.not_expressed if line.split()[0] in ("expert_tp", "cp_comm", "schedule", "zero")]


def test_a_router_before_one_replica_stands_in_the_header(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "examples" / "plan.yaml").read_text()
    (tmp_path / "plan.yaml").write_text(text)
    plan = replace(gnomon.load.read_plan(tmp_path / "plan.yaml"), replicas=1, load=None, goals=())
    for to, file in (("vllm", "launch.sh"), ("kubernetes", "deployment.yaml")):
        alone = gnomon.export(replace(plan, router="least-requests"), to).files[file]
        assert "not in these files: the router least-requests: one replica has every request" in alone
        assert "the router" not in gnomon.export(plan, to).files[file]


def test_what_does_not_fit_is_sent_to_the_engine_of_the_target() -> None:
    large = a_training_plan(model="llama-3.1-405b", strategy=Strategy(tp=8))
    for to, engine in (("megatron", "megatron"), ("torchrun", "torch")):
        with pytest.raises(DoesNotFitError, match=f"`gnomon plan train --engine {engine}` finds a plan"):
            gnomon.export(large, to)


def test_the_learning_rate_of_a_script_is_told() -> None:
    found = gnomon.export(a_training_plan(Recipe(zero=1)), "megatron")
    script = found.files["run.sh"]
    rates = [line.split()[1] for line in script.splitlines() if line.split()[:1] in (["--lr"], ["--min-lr"])]
    (told,) = (line for line in found.not_expressed if "learning rate" in line)
    assert "learning rate of your own" in told
    assert f"a learning rate of {rates[0]} decaying to {rates[1]}" in told


BLAMED: dict[str, tuple[tuple[str, str], str]] = {
    "global_batch, odd": (("global_batch: 64", "global_batch: 63"), "load.global_batch"),
    "seq": (("seq: 2048", "seq: 1000000"), "load.seq"),
    "tokens": (("global_batch: 64", "global_batch: 64, tokens: 1e31"), "load.tokens"),
    "schedule": (("recompute: none", "schedule: interleaved"), "strategy.vp"),
    "recompute": (("recompute: none", "recompute: some"), "engine.settings.recompute"),
    "zero": (("recompute: none", "zero: 4"), "engine.settings.zero"),
    "optimizer": (("recompute: none", "optimizer: adafactor"), "engine.settings.optimizer"),
    "micro_batch": (("recompute: none", "micro_batch: 7"), "load.global_batch"),
    "pp": (("pp: 4", "pp: 64"), "strategy"),
    "vp": (("pp: 4", "pp: 4, vp: 3"), "strategy"),
    "dtype": (("bf16", "int8"), "dtype"),
}


@pytest.mark.parametrize("case", BLAMED)
def test_what_is_wrong_is_told_by_its_field(tmp_path: Path, case: str) -> None:
    change, field = BLAMED[case]
    with pytest.raises(InputError) as caught:
        gnomon.export(written(tmp_path, change))
    assert field in caught.value.where
    assert "--" not in str(caught.value)


def test_a_step_that_is_too_long_is_told_by_its_field(tmp_path: Path) -> None:
    changes = ("dp: 2", "dp: 1"), ("global_batch: 64", "global_batch: 1000000")
    with pytest.raises(InputError, match=r"plan\.yaml, load\.global_batch: a step of 1,000,000 micro-batches"):
        gnomon.export(written(tmp_path, *changes))
    with pytest.raises(InputError, match=r"load\.global_batch: a step of 1,000,000 micro-batches"):
        verify(written(tmp_path, *changes, ("llama-3.2-1b", "llama-3.1-8b")))


def test_names_in_a_plan_are_of_some_length(tmp_path: Path) -> None:
    for field in ("id", "model", "chip"):
        old = "dtype: bf16" if field == "id" else f"{field}: {'H100' if field == 'chip' else 'llama-3.2-1b'}"
        new = f"{field}: {'a' * 200_000}" + ("\ndtype: bf16" if field == "id" else "")
        with pytest.raises(InputError, match=rf"field {field}: .* has 200,000 letters, more than"):
            gnomon.export(written(tmp_path, (old, new)))


def _plan(text: str) -> Plan:
    from gnomon.load.files import parse_yaml

    return gnomon.load.plan_from_dict(parse_yaml(text, "plan.yaml"), "plan.yaml")


GIVEN = {
    "recompute": ("{pp: 4, dp: 2, techniques: ['gpipe:stages=4']}", "recompute: none", "engine.settings.recompute"),
    "schedule": ("{pp: 4, dp: 2, techniques: ['gpipe:stages=4']}", "schedule: 1f1b", "engine.settings.schedule"),
    "vp": ("{pp: 4, dp: 2, vp: 1, techniques: ['interleaved:parts=2']}", "zero: 0", "strategy.vp"),
    "dp": ("{dp: 8, techniques: ['gpipe:stages=4']}", "zero: 0", "strategy."),
    "dp of a ring": ("{dp: 8, techniques: ['ring-attention:ranks=2']}", "zero: 0", "strategy."),
    "cp_comm": ("{cp: 2, dp: 4, techniques: ['ring-attention:ranks=2']}", "cp_comm: a2a", "engine.settings.cp_comm"),
}


@pytest.mark.parametrize("case", GIVEN)
def test_techniques_set_nothing_that_a_file_gives(tmp_path: Path, case: str) -> None:
    strategy, setting, field = GIVEN[case]
    with pytest.raises(InputError, match=r"is given, but the technique .* sets .*\. Leave one of them out") as caught:
        gnomon.export(written(tmp_path, ("{pp: 4, dp: 2}", strategy), ("recompute: none", setting)), "torchrun")
    assert field in caught.value.where


def test_what_the_runner_does_not_run_is_said_where_a_file_does_not_contradict_itself(tmp_path: Path) -> None:
    strategy = "{pp: 4, dp: 2, techniques: ['gpipe:stages=4']}"
    open_plan = written(tmp_path, ("{pp: 4, dp: 2}", strategy), ("recompute: none", "zero: 0"))
    with pytest.raises(InputError, match="the built-in runner does not support the technique gpipe") as caught:
        gnomon.export(open_plan, "torchrun")
    assert "strategy.techniques" in caught.value.where


def test_what_a_file_leaves_open_techniques_set(tmp_path: Path) -> None:
    strategy = "{pp: 4, dp: 2, techniques: ['gpipe:stages=4']}"
    open_plan = written(tmp_path, ("{pp: 4, dp: 2}", strategy), ("recompute: none", "zero: 0"))
    ready = _plan(gnomon.export(open_plan, "megatron").files["plan.yaml"])
    assert (ready.engine.settings["schedule"], ready.engine.settings["recompute"]) == ("gpipe", "full")
    (tmp_path / "again.yaml").write_text(gnomon.export(open_plan, "megatron").files["plan.yaml"])
    assert _plan(gnomon.export(tmp_path / "again.yaml", "megatron").files["plan.yaml"]) == ready
