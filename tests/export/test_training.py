"""Training plans as files: what every training target keeps to, and what is refused instead of failing later."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.export.test_export import ODD, a_plan, custom_model
from tests.export.training import DATA_ALONE, a_training_plan, plan_for, started

from gnomon.api.export import export
from gnomon.engines.torch import launch
from gnomon.errors import GnomonError, InputError
from gnomon.export import serving_targets, target, targets, training_targets
from gnomon.load import read_plan
from gnomon.load.training import job_of
from gnomon.spec import EngineChoice, Goal, Plan, Recipe, Strategy, TrainingLoad

INTERLEAVED = Recipe(schedule="interleaved")
TRAINING = tuple(training_targets())
FILES = {
    "torchtitan": ["recipe.py"],
    "deepspeed": ["ds_config.json"],
    "transformers": ["accelerate.yaml", "training.yaml", "train.py", "config.json"],
}
"""What a target writes beside the script, the Slurm job and the plan."""


@pytest.mark.parametrize("name", TRAINING)
def test_every_training_target_keeps_the_contract(name: str, tmp_path: Path) -> None:
    plan = plan_for(name)
    rendered = target(name).render(plan)
    assert list(rendered.files) == ["run.sh", *FILES.get(name, []), "slurm.sh", "plan.yaml"]
    assert all(text.endswith("\n") for text in rendered.files.values())
    assert name == target(name).NAME
    assert any(line.startswith("data") for line in rendered.not_expressed)
    assert rendered == target(name).render(plan)
    for file, text in rendered.files.items():
        (tmp_path / file).write_text(text)
    assert read_plan(tmp_path / "plan.yaml") == plan
    for script in ("run.sh", "slurm.sh"):
        subprocess.run(["bash", "-n", str(tmp_path / script)], check=True)


@pytest.mark.parametrize("name", targets())
def test_a_plan_of_the_other_kind_is_refused(name: str) -> None:
    plan, fitting = (a_training_plan(), TRAINING) if name in serving_targets() else (a_plan(), serving_targets())
    with pytest.raises(InputError) as caught:
        export(plan, to=name)
    assert name in caught.value.message
    assert ", ".join(fitting) in caught.value.hint


def test_the_runner_reads_all_of_its_plan() -> None:
    """Hybrid sharding and context parallelism in two levels stand in the plan that it is given."""
    recipe = Recipe(zero=3, dp_shard=2, cp_comm="a2a+p2p", cp_a2a=2, sequence_parallel=False)
    plan = a_training_plan(recipe, engine=EngineChoice(name="torch"), strategy=Strategy(cp=4, dp=4))
    (only,) = target("torchrun").render(plan).not_expressed
    assert only.startswith("data and a full run")


ALIASES = [("accelerate", "transformers"), ("Trainer", "transformers"), ("torch", "torchrun")]


@pytest.mark.parametrize(("alias", "name"), ALIASES)
def test_targets_have_the_names_of_their_launchers(alias: str, name: str) -> None:
    plan = plan_for(name)
    assert export(plan, to=alias).files == export(plan, to=name).files


def test_the_runner_is_started_on_one_node(tmp_path: Path) -> None:
    script = export(a_training_plan(), to="torchrun").files["run.sh"]
    words = started(script, tmp_path / "a b")["words"]
    assert words[:10] == [
        *("--nnodes", "1", "--nproc-per-node", "8", "--node-rank", "0"),
        *("--master-addr", "127.0.0.1", "--master-port", "29500"),
    ]
    assert words[10:] == [
        *("-m", "gnomon.engines.torch.worker", str(tmp_path / "a b" / "plan.yaml")),
        *("--steps", "8", "--warmup", "3", "--out", "result.json"),
    ]
    assert started(script, tmp_path, "--steps", "a b")["words"][-2:] == ["--steps", "a b"]


@pytest.mark.parametrize("name", TRAINING)
def test_several_nodes_must_be_told_where_to_meet(name: str, tmp_path: Path) -> None:
    script = export(plan_for(name, chips=32), to=name).files["run.sh"]
    seen = started(script, tmp_path, MASTER_ADDR="node 0", NODE_RANK="3", MASTER_PORT="1")
    if name in DATA_ALONE:
        first = ("launch", "--config_file", "accelerate.yaml", "--machine_rank", "3")
        expected = (*first, "--main_process_ip", "node 0", "--main_process_port", "1")
    else:
        first = ("--nnodes", "4", "--nproc-per-node", "8", "--node-rank", "3")
        expected = (*first, "--master-addr", "node 0", "--master-port", "1")
    assert tuple(seen["words"][: len(expected)]) == expected
    with pytest.raises(AssertionError, match=r"MASTER_ADDR: not set, it is the address of node 0"):
        started(script, tmp_path, NODE_RANK="3")
    with pytest.raises(AssertionError, match=r"NODE_RANK: not set, .* 0 to 3"):
        started(script, tmp_path, MASTER_ADDR="x")


def test_the_command_says_what_the_script_starts(tmp_path: Path) -> None:
    plan = a_training_plan()
    seen = started(launch.run_script(job_of(plan), plan), tmp_path)["words"]
    words = launch.command(job_of(plan))
    assert words[0] == "torchrun"
    assert words[1:5] == seen[:4]
    assert words[5:] == [word.removeprefix(f"{tmp_path}/") for word in seen[10:]]


@pytest.mark.parametrize("name", TRAINING)
@pytest.mark.parametrize("odd", ODD)
def test_odd_names_run_nothing(name: str, odd: str, tmp_path: Path) -> None:
    folder = custom_model(tmp_path / "models" / odd)
    files = export(plan_for(name, model=str(folder), id=odd + "\ntouch pwned"), to=name).files
    assert not any("\ntouch" in text for file, text in files.items() if file != "plan.yaml")
    assert started(files["run.sh"], tmp_path / "run")["words"]
    assert not list(tmp_path.rglob("pwned"))


def test_another_engines_figures_are_not_this_ones() -> None:
    plan = a_training_plan(predicted={"step_s": 1.0}, goals=(Goal("ttft", "p90", 1.0),))
    said = "\n".join(export(plan, to="torchrun").not_expressed)
    assert "the predicted figures, which are those of megatron" in said
    assert "goals" in said
    assert "predicted" not in "\n".join(export(plan, to="megatron").not_expressed)


REFUSED: dict[str, tuple[Plan, str]] = {
    "replicas": (a_training_plan(replicas=2), "replicas: 2 is not 1, as training needs it. Say how many"),
    "batch": (
        a_training_plan(Recipe(micro_batch=6)),
        "load.global_batch: 64 is not a multiple of 24 (4 ranks x 6 sequences). Use 48 or 72.",
    ),
    "small-batch": (a_training_plan(Recipe(micro_batch=32)), "Use 128."),
    "layers": (
        a_training_plan(strategy=Strategy(pp=48, dp=4), load=TrainingLoad(seq=4096, global_batch=48)),
        "strategy, pp x vp: 32 layers cannot be split into 48 equal parts. Use 32.",
    ),
    "heads": (a_training_plan(strategy=Strategy(tp=5)), "strategy.tp: 32 attention heads cannot be split into 5"),
    "kv-heads": (
        a_training_plan(strategy=Strategy(tp=16), load=TrainingLoad(seq=4096, global_batch=64)),
        "strategy.tp: 8 key-value heads cannot be split into 16 equal parts. Use 8.",
    ),
    "seq": (
        a_training_plan(load=TrainingLoad(seq=4097, global_batch=64)),
        "load.seq: 4097 is not a multiple of 2 (pieces). Use 4096 or 4098.",
    ),
    "nodes": (a_training_plan(strategy=Strategy(tp=4, pp=4)), ""),
    "nodes-unfilled": (
        a_training_plan(strategy=Strategy(dp=12), load=TrainingLoad(seq=4096, global_batch=48)),
        "strategy: 12 chips do not fill nodes of 8. Use 8 or 16.",
    ),
    "vp-alone": (a_training_plan(strategy=Strategy(pp=2, vp=2)), "strategy.vp: 2 does not match the schedule 1f1b"),
    "interleaved-alone": (
        a_training_plan(INTERLEAVED, strategy=Strategy(pp=2)),
        "strategy.vp: 1 does not match the schedule interleaved",
    ),
    "one-stage": (
        a_training_plan(INTERLEAVED, strategy=Strategy(vp=2)),
        "strategy.pp: interleaving needs more than 1 pipeline rank",
    ),
    "micro-batches": (
        a_training_plan(INTERLEAVED, strategy=Strategy(pp=4, vp=2), load=TrainingLoad(seq=4096, global_batch=6)),
        "load.global_batch: 6 is not a multiple of 4 (1 ranks x 1 sequences x 4 interleaved stages). Use 4 or 8.",
    ),
    "setting": (
        Plan(
            model="llama-3.1-8b",
            chip="H100",
            replicas=1,
            strategy=Strategy(),
            dtype="bf16",
            engine=EngineChoice(name="torch", settings={"zero": 9}),
            load=TrainingLoad(seq=1, global_batch=1),
        ),
        "engine.settings, field zero: 9 is more than 3",
    ),
}


@pytest.mark.parametrize("name", ["megatron", "torchrun"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_cut_up_is_refused(name: str, case: str) -> None:
    plan, said = REFUSED[case]
    if not said:  # sound, so that its neighbours are refused for what they change
        assert export(plan, to=name).files
        return
    with pytest.raises(GnomonError) as caught:
        export(plan, to=name)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"dtype": "fp16"}, "dtype"),
        ({"model": "qwen3-30b-a3b"}, "strategy.tp"),
        ({"model": "gemma-3-12b", "strategy": Strategy()}, "model"),
    ],
)
def test_what_the_runner_lacks(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError, match="the built-in runner") as caught:
        export(a_training_plan(**changes), to="torchrun")
    assert caught.value.where == where


def test_tied_weights_in_a_pipeline(tmp_path: Path) -> None:
    folder = custom_model(tmp_path / "tied")
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"tie_word_embeddings": false', '"tie_word_embeddings": true'))
    plan = a_training_plan(model=str(folder), strategy=Strategy(pp=2))
    with pytest.raises(InputError) as caught:
        export(plan, to="torchrun")
    assert caught.value.where == "strategy.pp"
    assert "--untie" not in export(plan, to="megatron").files["run.sh"]
