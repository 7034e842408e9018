"""What cannot run is neither written nor started, by any target; forced, its file says so."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.export.random_plans import checkpoint
from tests.export.test_export import a_plan
from tests.export.training import a_training_plan

import gnomon
from gnomon.api.launch import launch
from gnomon.catalog import model_config_path
from gnomon.errors import DoesNotFitError, GnomonError, InputError
from gnomon.load.plan import plan_to_yaml
from gnomon.load.shapes import model_to_dict, shapes_to_yaml
from gnomon.spec import EngineChoice, Plan, Recipe, ServingLoad, Strategy, TrainingLoad


def serving(**changes: Any) -> Plan:
    base: dict[str, Any] = {"model": "llama-3.1-8b", "strategy": Strategy(), "dtype": "bf16", "kv_dtype": "bf16"}
    base |= {"replicas": 1, "goals": (), "engine": EngineChoice(settings={"max_model_len": 8192})}
    return a_plan(**base | changes)


def settings(**given: Any) -> EngineChoice:
    return EngineChoice(settings={"max_model_len": 8192} | given)


def equal(input: int, output: int) -> ServingLoad:
    return ServingLoad(input_tokens=input, output_tokens=output)


NOT_RUN: dict[str, tuple[Plan, type[GnomonError], str]] = {
    "too-large": (serving(model="llama-3.1-70b"), DoesNotFitError, "it does not fit: 133"),
    "too-large-cut": (serving(model="llama-3.1-405b", strategy=Strategy(tp=8)), DoesNotFitError, "weights"),
    "context": (serving(chip="RTX-4090", engine=EngineChoice()), DoesNotFitError, "room for a sequence of"),
    "little-memory": (serving(engine=settings(gpu_memory_utilization=0.0001)), DoesNotFitError, "does not fit"),
    "fp8-on-volta": (serving(chip="V100-SXM2-32GB", dtype="fp8"), InputError, "dtype: weights in fp8 do not run"),
    "fp16-on-volta": (serving(chip="V100-SXM2-32GB", dtype="fp16"), InputError, "chip: .*compute capability 7.5"),
    "bf16-on-turing": (serving(chip="T4"), InputError, "dtype: 'bf16' is not priced for vllm on T4"),
    "bf16-on-a770": (serving(chip="Arc-A770-16GB", strategy=Strategy(tp=4)), InputError, "vLLM refuses bfloat16"),
    "cache-format": (serving(kv_dtype="int4"), InputError, "kv_dtype: 'int4' is not priced"),
    "cache-nonsense": (serving(kv_dtype="banana"), InputError, "unknown number format 'banana'"),
    "weights-nonsense": (serving(dtype="banana"), InputError, "unknown number format 'banana'"),
    "no-experts": (serving(strategy=Strategy(tp=8, ep=8)), InputError, "strategy.ep: llama-3.1-8b has no experts"),
    "some-experts": (serving(model="qwen3-30b-a3b", strategy=Strategy(tp=4, ep=2)), InputError, "strategy.ep: vLLM"),
    "heads": (serving(strategy=Strategy(tp=3)), InputError, "strategy.tp: .*attention heads"),
    "cached-ranks": (serving(strategy=Strategy(tp=8, cp=2)), InputError, "strategy.cp: 2 ranks cannot share"),
    "stages": (serving(strategy=Strategy(pp=64)), InputError, "strategy.pp: 64 stages"),
    "blocks": (serving(model="minimax-m2", chip="H200", strategy=Strategy(tp=8), dtype="fp8"), InputError, "192"),
    "groups": (serving(model="qwen2.5-72b", strategy=Strategy(tp=4), dtype="int4"), InputError, "blocks of 128"),
    "unfilled": (serving(model="llama-3.1-70b", strategy=Strategy(tp=4, pp=3)), InputError, "12 chips does not fill"),
    "setting": (serving(engine=settings(max_num_sequences=3)), InputError, "unknown vLLM setting"),
    "setting-range": (serving(engine=settings(block_size=17)), InputError, "engine.settings.block_size"),
    "too-long": (serving(engine=settings(max_model_len=10**6)), InputError, "engine.settings.max_model_len"),
    "load": (serving(load=equal(8000, 1000)), InputError, "load: a request of 9,000 tokens is longer"),
    "load-nonsense": (serving(load=equal(10**9, 1)), InputError, "load.input_tokens: .* is more than"),
    "no-trace": (serving(load=ServingLoad(trace="nowhere.csv", requests=0)), InputError, "no such file"),
    "int4": (serving(dtype="int4"), InputError, "dtype: .* holds bf16, which vLLM does not quantize to int4"),
    "int8": (serving(dtype="int8"), InputError, r"does not quantize to int8 .*\(llm-compressor\)"),
    "nvfp4": (serving(chip="B200", dtype="nvfp4"), InputError, "does not quantize to nvfp4 .* ModelOpt"),
    "mxfp4": (serving(dtype="mxfp4"), InputError, "does not quantize to mxfp4"),
    "wide": (
        serving(model="gpt-oss-20b", dtype="bf16"),
        InputError,
        "holds mxfp4, which vLLM does not quantize to bf16",
    ),
    "version": (serving(engine=EngineChoice(version="0.32")), InputError, "0.32"),
    "model": (serving(model="llama-9"), InputError, "model: unknown model 'llama-9'"),
    "chip": (serving(chip="H1000"), InputError, "chip: unknown chip 'H1000'"),
    "technique": (serving(strategy=Strategy(techniques=("gpipe",))), InputError, "a training technique"),
}
NOT_WRITTEN = {
    "cache-format", "cache-nonsense", "weights-nonsense", "heads", "setting", "setting-range", "too-long", "version",
    "model", "chip", "technique", "unfilled",
}  # fmt: skip
"""Cases of which no command can be written at all, forced or not."""


@pytest.mark.parametrize("case", NOT_RUN)
def test_what_cannot_be_served_is_refused_everywhere(case: str) -> None:
    plan, kind, said = NOT_RUN[case]
    acts: list[Any] = [partial(gnomon.export, plan, name) for name in ("vllm", "kubernetes")]
    for act in (*acts, partial(launch, plan, dry_run=True), partial(launch, plan)):
        with pytest.raises(kind, match=said) as caught:
            act()
        assert "--" not in caught.value.where
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code == (4 if kind is DoesNotFitError else 2)


@pytest.mark.parametrize("case", [case for case in NOT_RUN if case not in NOT_WRITTEN])
def test_forced_the_file_says_why_it_will_not_run(case: str) -> None:
    plan, _, _ = NOT_RUN[case]
    answer = gnomon.export(plan, "vllm", force=True)
    (warning,) = answer.warnings
    script = answer.files["launch.sh"]
    assert f"# WARNING: {warning}" in script.splitlines()[:12]
    assert launch(plan, dry_run=True, force=True).notes[0] == f"WARNING: {warning}"
    with pytest.raises(InputError, match="only a dry run"):
        launch(plan, force=True)


@pytest.mark.parametrize("case", sorted(NOT_WRITTEN))
def test_what_no_command_can_say_is_refused_though_forced(case: str) -> None:
    plan, _, _ = NOT_RUN[case]
    with pytest.raises(InputError):
        gnomon.export(plan, "vllm", force=True)


def test_weights_that_are_not_there_are_never_others() -> None:
    """Forced or printed, a command whose weights are still to be made does not serve the wide ones."""
    for dtype in ("int4", "int8"):
        words = gnomon.export(serving(dtype=dtype), force=True).command.split()
        assert words[2] == "CHECKPOINT"
    report = gnomon.plan_serving(
        "llama-3.1-8b", fleet="A100:1", rate=1.0, input=64, output=16, requests=50, dtypes=["int4"]
    )
    assert report.command.split()[2] == "CHECKPOINT"
    assert any("does not quantize to int4" in line for line in report.left_to_you)


def test_a_checkpoint_is_served_in_the_place_of_the_model(tmp_path: Path) -> None:
    plan = serving(dtype="int4")
    assert gnomon.export(plan, checkpoint="org/llama-int4").command.split()[2] == "org/llama-int4"
    place = checkpoint(tmp_path, "llama-3.1-8b", "int4")
    named = replace(plan, checkpoint=place)
    assert gnomon.export(named).command.split()[2] == place
    assert f"checkpoint: {place}" in plan_to_yaml(named)
    for name in ("int4", "fp8"):
        own = checkpoint(tmp_path, "llama-3.1-8b", name)
        command = gnomon.export(serving(model=own, dtype=name)).command
        assert command.split()[2] == own
        assert "--quantization" not in command


@pytest.mark.parametrize(
    ("model", "dtype", "said"),
    [("llama-3.1-8b", "fp8", "holds fp8, and the plan is in int4"), ("llama-3.1-70b", "int4", "70,5.* parameters")],
)
def test_a_checkpoint_of_something_else_is_refused(model: str, dtype: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"checkpoint: .*{said}"):
        gnomon.export(serving(dtype="int4"), checkpoint=checkpoint(tmp_path, model, dtype))


def test_shapes_have_no_weights(tmp_path: Path) -> None:
    from gnomon.load import model

    file = tmp_path / "shapes.yaml"
    file.write_text(shapes_to_yaml(model_to_dict(model("llama-3.1-8b"))))
    for name in ("vllm", "kubernetes"):
        with pytest.raises(InputError, match="holds shapes, not weights"):
            gnomon.export(serving(model=str(file)), name)
    assert gnomon.export(serving(model=str(file)), checkpoint="org/own").command.split()[2] == "org/own"


def test_paths_mean_the_same_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").write_text(model_config_path("llama-3.1-8b").read_text())
    (tmp_path / "load.csv").write_text("arrival_s,input_tokens,output_tokens\n0,5,5\n")
    monkeypatch.chdir(tmp_path)
    plan = serving(model="own", load=ServingLoad(trace="load.csv", requests=0))
    written = yaml.safe_load(gnomon.export(plan).files["plan.yaml"])
    assert written["model"] == str(tmp_path / "own")
    assert written["load"]["trace"] == str(tmp_path / "load.csv")
    trained = a_training_plan(Recipe(zero=1), model="own", strategy=Strategy(dp=8))
    assert yaml.safe_load(gnomon.export(trained, "torchrun").files["plan.yaml"])["model"] == str(tmp_path / "own")


NOT_TRAINED: dict[str, tuple[Plan, type[GnomonError], str]] = {
    "too-large": (
        a_training_plan(model="llama-3.1-405b", strategy=Strategy(), load=TrainingLoad(seq=4096, global_batch=1)),
        DoesNotFitError,
        "the fullest rank needs",
    ),
    "host": (
        a_training_plan(
            Recipe(zero=1), model="llama-3.1-405b",
            strategy=Strategy(tp=8, techniques=("offload-optimizer",)), load=TrainingLoad(seq=4096, global_batch=1),
        ),
        DoesNotFitError,
        "a host needs|fullest rank",
    ),
    "seq": (
        a_training_plan(load=TrainingLoad(seq=10_000_000, global_batch=64)),
        InputError,
        "load.seq: 10,000,000 is more than the 131,072 tokens llama-3.1-8b",
    ),
    "tpu": (a_training_plan(chip="TPU-v5p", strategy=Strategy(tp=8, dp=4)), InputError, "needs CUDA or ROCm"),
    "fp8-on-ampere": (a_training_plan(chip="A100-SXM-80GB", dtype="fp8"), InputError, "has no fp8"),
    "technique": (a_training_plan(strategy=Strategy(techniques=("int4-weights",))), InputError, "a serving technique"),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_TRAINED)
def test_what_cannot_be_trained_is_refused(case: str) -> None:
    plan, kind, said = NOT_TRAINED[case]
    for name in ("megatron",) if plan.strategy.techniques or plan.dtype == "fp8" else ("megatron", "torchrun"):
        with pytest.raises(kind, match=said):
            gnomon.export(plan, name)


def test_an_optimizer_that_needs_more_memory_than_was_priced_is_refused() -> None:
    plan = a_training_plan(Recipe(optimizer="adamw-bf16", zero=1))
    with pytest.raises(InputError, match="master copy of the weights in fp32"):
        gnomon.export(plan, "megatron")
    assert "# WARNING:" in gnomon.export(plan, "megatron", force=True).files["run.sh"]
    assert gnomon.export(plan, "torchrun").files


def test_answers_name_only_targets_that_are_written() -> None:
    small = gnomon.simulate_training("llama-3.2-1b", on="H100:8", seq=2048, global_batch=8)
    assert small.targets == ("megatron", "torchrun")
    assert small.not_modelled == ()
    large = gnomon.simulate_training("llama-3.1-405b", on="H100:8", seq=2048, global_batch=8)
    assert not large.fits
    assert large.targets == ()
    system_spread = gnomon.simulate_training("llama-3.2-1b", on="TPU-v5p:8", seq=2048, global_batch=8)
    assert system_spread.targets == ()
    assert "as if Megatron-LM 2026.08 ran there" in system_spread.title
    assert [entry.option for entry in system_spread.not_modelled] == ["TPU-v5p"]


def test_very_many_replicas_take_no_longer_to_write_than_few() -> None:
    few, many = (gnomon.export(serving(replicas=count)) for count in (1_001, 1_000_000))
    assert len(many.files["launch.sh"]) < len(few.files["launch.sh"]) + 100
    assert "from 0 to 124999" in many.files["launch.sh"]
    (document, _) = yaml.safe_load_all(
        gnomon.export(serving(replicas=1_000_000), "kubernetes").files["deployment.yaml"]
    )
    assert document["spec"]["replicas"] == 1_000_000
    with pytest.raises(InputError, match=r"replicas: 1,000,000 commands are too many to list.*gnomon export"):
        launch(serving(replicas=1_000_000), dry_run=True)
    assert len(launch(serving(replicas=4_000), dry_run=True).commands) == 4_000


def test_what_is_not_said_stands_in_every_file() -> None:
    plan = serving(replicas=3, strategy=Strategy(techniques=("swapped-sessions",)), id="x\u2028touch pwned")
    for name, file in (("vllm", "launch.sh"), ("kubernetes", "deployment.yaml")):
        answer = gnomon.export(plan, name)
        assert answer.not_expressed
        for line in answer.not_expressed:
            assert f"# not in these files: {line}" in answer.files[file].splitlines()
    learned = a_training_plan(Recipe(zero=1))
    for name in ("megatron", "torchrun"):
        answer = gnomon.export(learned, name)
        for line in answer.not_expressed:
            assert f"# not in these files: {line}" in answer.files["run.sh"].splitlines()
    assert json.dumps(gnomon.export(plan).to_dict())
