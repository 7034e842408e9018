"""Plans with techniques as files of other programs: refused as where they are priced, and nothing left unsaid."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.export.training import a_training_plan

import gnomon
from gnomon.api.launch import launch
from gnomon.errors import InputError
from gnomon.execution.measured_serving import measure
from gnomon.export import target
from gnomon.spec import EngineChoice, Plan, Recipe, ServingLoad, Strategy


def serving(*names: str, dtype: str = "bf16", model: str = "llama-3.1-8b") -> Plan:
    return Plan(
        model=model,
        chip="H100-SXM-80GB",
        replicas=1,
        strategy=Strategy(techniques=names),
        dtype=dtype,
        kv_dtype="bf16",
        engine=EngineChoice(name="vllm"),
        load=ServingLoad(input_tokens=64, output_tokens=64, rate_per_s=1.0, requests=10),
    )


def training(*names: str, recipe: Recipe | None = None, **degrees: int) -> Plan:
    return a_training_plan(recipe or Recipe(), strategy=Strategy(techniques=names, **degrees))


REFUSED = [
    (("no-such-idea",), "unknown technique 'no-such-idea'"),
    (("int4-weights", "int4-weights"), "int4-weights is given twice"),
    (("int4-weights", "unpacked-weights"), "cannot be combined"),
    (("int4-weights:group=-1",), "0 to 65536"),
    (("gpipe",), "gpipe is a training technique, not a serving technique"),
]


@pytest.mark.parametrize(("names", "message"), REFUSED, ids=lambda value: "+".join(value) if len(value) < 4 else "")
def test_serving_refuses(names: tuple[str, ...], message: str) -> None:
    for name in ("vllm", "kubernetes"):
        with pytest.raises(InputError, match=message):
            gnomon.export(serving(*names, dtype="int4"), name)
    with pytest.raises(InputError, match=message):
        launch(serving(*names, dtype="int4"), dry_run=True)


@pytest.mark.parametrize("dtype", ["bf16", "int8", "fp8"])
def test_a_format_that_a_technique_does_not_mean_is_refused(dtype: str) -> None:
    for act in (gnomon.export, lambda plan: launch(plan, dry_run=True), measure):
        with pytest.raises(InputError, match=f"int4-weights does not apply: the weights' dtype is set to {dtype}"):
            act(serving("int4-weights", dtype=dtype))


def test_what_the_format_says_is_not_said_again() -> None:
    plan = replace(serving("int4-weights", dtype="int4"), checkpoint="org/llama-int4")
    for lines in (gnomon.export(plan).not_expressed, launch(plan, dry_run=True).not_expressed):
        assert any("org/llama-int4: that they are llama-3.1-8b in int4 was not checked" in line for line in lines)
        assert not any("the technique" in line for line in lines)
    narrow = gnomon.export(serving("int4-weights:bits=3", dtype="int3"), force=True).not_expressed
    assert "the technique int4-weights:bits=3" in narrow


def test_a_host_is_known_where_a_technique_asks_for_one() -> None:
    assert "the technique swapped-sessions" in gnomon.export(serving("swapped-sessions")).not_expressed


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("no-such-idea",), "unknown technique"),
        (("gpipe", "gpipe"), "gpipe is given twice"),
        (("gpipe", "interleaved"), "cannot be combined"),
        (("gpipe:stages=1",), "2 to 1024"),
        (("int4-weights",), "int4-weights is a serving technique, not a training technique"),
    ],
)
def test_training_refuses(names: tuple[str, ...], message: str) -> None:
    for name in ("megatron", "torchrun"):
        with pytest.raises(InputError, match=message):
            gnomon.export(training(*names), name)


@pytest.mark.parametrize(
    ("name", "degrees", "other", "recipe"),
    [
        ("gpipe:stages=4", {"pp": 4}, {"pp": 2}, Recipe(schedule="gpipe", recompute="full")),
        ("interleaved", {"pp": 4, "vp": 2}, {"vp": 4}, Recipe(schedule="interleaved")),
        ("ring-attention", {"cp": 2}, {"cp": 4}, Recipe()),
    ],
)
def test_what_degrees_and_schedule_say_is_not_said_again(
    name: str, degrees: dict[str, int], other: dict[str, int], recipe: Recipe
) -> None:
    def left(**changed: int) -> bool:
        plan = training(name, "checkpoints", recipe=recipe, **{**degrees, **changed})
        lines = target("megatron").render(plan).not_expressed
        assert any(line.startswith("mode=lazy of async-checkpointing") for line in lines)
        return f"the technique {name}" in lines

    assert not left()
    assert left(**other)


def said(*names: str, recipe: Recipe | None = None, **degrees: int) -> tuple[str, tuple[str, ...]]:
    """The script of a plan for Megatron-LM, and what it does not say."""
    rendered = target("megatron").render(training(*names, recipe=recipe or Recipe(zero=1), **degrees))
    return rendered.files["run.sh"], rendered.not_expressed


def test_states_on_the_host_are_an_option_of_megatron() -> None:
    script, unsaid = said("offload-optimizer:share=0.5", dp=8)
    for words in ("--optimizer-cpu-offload", "--optimizer-offload-fraction 0.5", "--use-precision-aware-optimizer"):
        assert f"\n  {words}\n" in script
    assert "--use-distributed-optimizer" in script
    assert not any("offload" in line for line in unsaid)
    _, unsaid = said("offload-optimizer:stride=2", dp=8)
    assert "stride=2.0 of offload-optimizer: Megatron-LM updates what it offloads on the host alone" in unsaid


@pytest.mark.parametrize("zero", [0, 2, 3])
def test_only_states_that_are_shared_out_are_offloaded(zero: int) -> None:
    with pytest.raises(InputError, match=f"and zero is {zero}. Use 1"):
        said("offload-optimizer", recipe=Recipe(zero=zero), dp=8)


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous", "lazy"])
def test_checkpoints_are_options_of_megatron(mode: str) -> None:
    script, unsaid = said(f"checkpoints:every=50,mode={mode}", dp=8)
    assert "\n  --save checkpoints\n  --save-interval 50\n" in script
    assert ("--async-save" in script) == (mode != "synchronous")
    assert any("mode=lazy" in line for line in unsaid) == (mode == "lazy")
    assert "saves nothing" not in script
    sharded, unsaid = said(f"checkpoints:every=50,mode={mode}", recipe=Recipe(zero=3), dp=8)
    assert "--async-save" not in sharded
    assert any("Megatron-FSDP saves them while training waits" in line for line in unsaid) == (mode != "synchronous")


def test_the_command_of_a_plan_says_its_techniques() -> None:
    report = gnomon.plan_training(
        "llama-3.1-8b", cluster="H100:8", seq=4096, global_batch=64, techniques=["checkpoints:every=50"]
    )
    assert "--save-interval 50 " in report.command
