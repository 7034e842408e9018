"""What exported training scripts really start: on every node under Slurm, and Megatron-DeepSpeed's own options."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from tests.export import megatron_deepspeed_flags
from tests.export.training import a_training_plan, plan_for, started
from tests.export.training_battery import MODELS, plans_of

import gnomon
from gnomon.engines import training_targets
from gnomon.engines.training.launch import nodes
from gnomon.errors import InputError
from gnomon.export import target
from gnomon.load.training import job_of
from gnomon.spec import EngineChoice, Plan, Recipe, Strategy, TrainingLoad


def stand_ins(folder: Path, count: int) -> None:
    """`scontrol` that names nodes, and `srun` that runs what it is given once for each of them."""
    texts = {
        "scontrol": "#!/usr/bin/env bash\nprintf 'node0\\nnode1\\n'\n",
        "srun": f'#!/usr/bin/env bash\nshift\nfor n in $(seq 0 {count - 1}); do SLURM_NODEID=$n "$@"; done\n',
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod((folder / name).stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize("name", training_targets())
def test_slurm_starts_every_node(name: str, tmp_path: Path) -> None:
    plan = plan_for(name, chips=16, id="my plan/1")
    files = target(name).render(plan).files
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    job = files["slurm.sh"]
    assert "#SBATCH --nodes=2\n" in job
    assert "#SBATCH --gpus-per-node=8\n" in job
    assert "#SBATCH --job-name=my-plan-1\n" in job
    started(files["run.sh"], tmp_path, MASTER_ADDR="x", NODE_RANK="0")  # puts the launchers' stand-ins there
    stand_ins(tmp_path, 2)
    kept = {key: value for key, value in os.environ.items() if key not in ("MASTER_ADDR", "NODE_RANK")}
    variables = kept | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n[0-1]", "DATA_PATH": "d"}
    words = ["bash", "slurm.sh", "--extra", "a b"]
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    seen = [json.loads(line)["words"] for line in done.stdout.splitlines()]
    assert len(seen) == 2
    for rank, one in enumerate(seen):
        at = next(place for place, word in enumerate(one) if word in ("--node-rank", "--machine_rank"))
        assert one[at + 1] == str(rank)
        assert one[at + 3] == "node0"
        assert one[-2:] == ["--extra", "a b"]


@pytest.mark.heavy
@pytest.mark.battery(4)
@pytest.mark.parametrize("model", MODELS["deepspeed"])
def test_megatron_deepspeed_takes_what_is_written(model: str, tmp_path: Path) -> None:
    parser = megatron_deepspeed_flags.parser()
    for place, plan in enumerate(plans_of("deepspeed", model, 3, 6)):
        files = target("deepspeed").render(plan).files
        folder = tmp_path / str(place)
        seen = started(files["run.sh"], folder, MASTER_ADDR="x", NODE_RANK="0", DATA_PATH="a b")["words"]
        start = next(at for at, word in enumerate(seen) if word.endswith("pretrain_gpt.py"))
        said = parser.parse_args(seen[start + 1 :])
        assert (said.data_path, said.deepspeed_config) == ("a b", str(folder / "ds_config.json"))
        count, each = nodes(job_of(plan))
        assert seen[:4] == ["--nnodes", str(count), "--nproc-per-node", str(each)]
        assert count * each == plan.chips
        ranks = said.tensor_model_parallel_size * said.pipeline_model_parallel_size
        assert ranks * (said.ds_sequence_parallel_size or 1) * plan.strategy.dp == plan.chips
        assert said.zero_stage == json.loads(files["ds_config.json"])["zero_optimization"]["stage"]
        assert said.no_pipeline_parallel or said.zero_stage < 2
        assert bool(said.cpu_optimizer) == any("offload-optimizer" in text for text in plan.strategy.techniques)
        if model != "gpt3-175b":
            assert said.use_rotary_position_embeddings
            assert said.no_position_embedding


def plan_of(engine: str, recipe: Recipe, **changes: object) -> Plan:
    return a_training_plan(recipe, engine=EngineChoice(name=engine), **changes)


REFUSED: dict[str, tuple[str, Plan, str]] = {
    "zero 1 of TorchTitan": ("torchtitan", plan_of("torchtitan", Recipe(zero=1)), "engine.settings.zero"),
    "TorchTitan in fp16": ("torchtitan", plan_of("torchtitan", Recipe(), dtype="fp16"), "dtype"),
    "TorchTitan's networks": ("torchtitan", plan_of("torchtitan", Recipe(), model="qwen2.5-7b"), "model"),
    "TorchTitan's optimizers": (
        "torchtitan", plan_of("torchtitan", Recipe(optimizer="muon")), "engine.settings.optimizer",
    ),
    "tied weights in TorchTitan's pipeline": (
        "torchtitan",
        plan_of("torchtitan", Recipe(), model="llama-3.2-1b", strategy=Strategy(pp=2)),
        "strategy.pp",
    ),
    "experts cut in TorchTitan": (
        "torchtitan",
        plan_of("torchtitan", Recipe(), model="qwen3-30b-a3b", strategy=Strategy(tp=2, dp=4)),
        "engine.settings.expert_tp",
    ),
    "DeepSpeed's schedules": (
        "deepspeed",
        plan_of("deepspeed", Recipe(schedule="gpipe"), strategy=Strategy(pp=2)),
        "engine.settings.schedule",
    ),
    "MiCS, which DeepSpeed has no more": (
        "deepspeed",
        plan_of("deepspeed", Recipe(zero=3, dp_shard=2), strategy=Strategy(dp=8)),
        "engine.settings.dp_shard",
    ),
    "ZeRO 2 in DeepSpeed's pipeline": (
        "deepspeed", plan_of("deepspeed", Recipe(zero=2), strategy=Strategy(pp=2, dp=4)), "engine.settings.zero",
    ),
    "ring attention of DeepSpeed": (
        "deepspeed", plan_of("deepspeed", Recipe(), strategy=Strategy(cp=2)), "strategy.cp",
    ),
    "experts of DeepSpeed": (
        "deepspeed", plan_of("deepspeed", Recipe(), model="mixtral-8x7b", strategy=Strategy(dp=8)), "model",
    ),
    "unequal stages of DeepSpeed": (
        "deepspeed",
        plan_of("deepspeed", Recipe(), strategy=Strategy(pp=5), load=TrainingLoad(seq=4096, global_batch=60)),
        "strategy, pp x vp",
    ),
    "a share offloaded under ZeRO 1": (
        "deepspeed",
        plan_of("deepspeed", Recipe(zero=1), strategy=Strategy(dp=8, techniques=("offload-optimizer:share=0.5",))),
        "engine.settings.zero",
    ),
    "tensor parallelism of the Trainer": ("transformers", plan_of("transformers", Recipe()), "strategy.tp"),
    "the Trainer's recomputation": (
        "transformers", plan_of("transformers", Recipe(recompute="selective"), strategy=Strategy(dp=8)),
        "engine.settings.recompute",
    ),
    "the Trainer's optimizers": (
        "transformers", plan_of("transformers", Recipe(optimizer="muon"), strategy=Strategy(dp=8)),
        "engine.settings.optimizer",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_an_engine_cannot_do_is_refused(case: str) -> None:
    name, plan, where = REFUSED[case]
    with pytest.raises(InputError) as caught:
        target(name).render(plan)
    assert caught.value.where == where
    assert caught.value.hint


@pytest.mark.parametrize("wide", ["", "1,3", "0,2"])
@pytest.mark.parametrize("dtype", ["fp8-rows", "fp8-rows-hp", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b"])
def test_torchtitan_converters_come_back(model: str, dtype: str, wide: str, tmp_path: Path) -> None:
    """The recipe, and layers that converters leave as they are."""
    plan = plan_of("torchtitan", Recipe(bf16_layers=wide), dtype=dtype, model=model, chip="B200")
    for file, text in target("torchtitan").render(plan).files.items():
        (tmp_path / file).write_text(text)
    found = gnomon.import_plan(tmp_path / "run.sh")
    assert (found.plan.dtype, found.plan.engine.settings.get("bf16_layers", "")) == (dtype, wide)
    assert not [one for one in found.ignored if "layers" in one.option]


def said(name: str, plan: Plan) -> str:
    return "\n".join(target(name).render(plan).not_expressed)


def test_what_an_engine_does_otherwise_is_said() -> None:
    ring = plan_of("torchtitan", Recipe(zero=3), strategy=Strategy(cp=2, dp=4))
    assert "cp_comm p2p: TorchTitan 0.3.0 gathers all keys" in said("torchtitan", ring)
    narrow = plan_of("torchtitan", Recipe(), dtype="fp8")
    assert "a scale per tensor in fp8" in said("torchtitan", narrow)
    other = plan_of("megatron", Recipe(recompute="selective"))
    assert "selective recomputation as in megatron" in said("torchtitan", other)
    saved = ("async-checkpointing:every=10,mode=asynchronous",)
    for name in ("deepspeed", "transformers"):
        plan = plan_of(name, Recipe(), strategy=Strategy(dp=8, techniques=saved))
        assert "asynchronous checkpoints" in said(name, plan)
    assert "norms of queries and keys" in said("deepspeed", plan_of("deepspeed", Recipe(), model="qwen3-8b"))
    for line in target("torchtitan").render(ring).not_expressed:
        files = target("torchtitan").render(ring).files
        assert all(f"# not in these files: {line}" in files[file] for file in ("run.sh", "recipe.py"))
