"""Memory tiers in exported training plans, and in commands and configurations that others wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.export.training import a_training_plan
from tests.export.training_battery import canonical, imported

import gnomon
from gnomon.errors import InputError
from gnomon.export import target
from gnomon.spec import EngineChoice, Plan, Recipe, Strategy

STATES, WEIGHTS, SAVED = "offload-optimizer", "offload-parameters", "offload-activations"
CORE = "modules=core_attn+attn_proj"


def plan_of(engine: str, *named: str, tp: int = 1, pp: int = 1, **recipe: Any) -> Plan:
    strategy = Strategy(dp=8, tp=tp, pp=pp, techniques=named)
    made = Recipe(**{"zero": 3, "sequence_parallel": engine == "torchtitan"} | recipe)
    return a_training_plan(made, strategy=strategy, engine=EngineChoice(name=engine))


WRITTEN: dict[str, tuple[Plan, str, tuple[str, ...]]] = {
    "weights of DeepSpeed": (
        plan_of("deepspeed", STATES, WEIGHTS), "ds_config.json",
        ('"offload_optimizer": {\n      "device": "cpu"', '"offload_param": {\n      "device": "cpu"'),
    ),
    "disks of DeepSpeed": (
        plan_of("deepspeed", f"{STATES}:tier=nvme", f"{WEIGHTS}:tier=nvme"), "ds_config.json",
        ('"device": "nvme"', '"nvme_path": "nvme"', '"aio": {'),
    ),
    "a share on DeepSpeed's disks": (
        plan_of("deepspeed", f"{STATES}:share=0.5,tier=nvme", WEIGHTS), "ds_config.json", ('"ratio": 0.5',),
    ),
    "checkpoints of DeepSpeed": (
        plan_of("deepspeed", f"{SAVED}:copies=blocking", recompute="full", zero=1), "ds_config.json",
        ('"cpu_checkpointing": true',),
    ),
    "TorchTitan": (plan_of("torchtitan", STATES, WEIGHTS), "recipe.py", ("enable_cpu_offload=True",)),
    "TorchTitan without": (plan_of("torchtitan"), "recipe.py", ("enable_cpu_offload=False",)),
    "weights of the Trainer": (
        plan_of("transformers", STATES, WEIGHTS), "accelerate.yaml",
        ("offload_param_device: cpu", "offload_optimizer_device: cpu", "distributed_type: DEEPSPEED"),
    ),
    "disks of the Trainer": (
        plan_of("transformers", f"{STATES}:tier=nvme", f"{WEIGHTS}:tier=nvme"), "accelerate.yaml",
        ("offload_param_device: nvme", "offload_param_nvme_path: nvme", "offload_optimizer_nvme_path: nvme"),
    ),
    "layers of Megatron-LM": (
        plan_of("megatron", SAVED, zero=1), "run.sh", ("--cpu-offloading-num-layers 31",),
    ),
    "some layers of Megatron-LM": (
        plan_of("megatron", f"{SAVED}:layers=8", STATES, zero=1), "run.sh",
        ("--cpu-offloading-num-layers 8", "--optimizer-cpu-offload", "--overlap-cpu-optimizer-d2h-h2d"),
    ),
    "operators of Megatron-LM": (
        plan_of("megatron", f"{SAVED}:{CORE},share=0.25,in_flight=4", zero=1, pp=2, recompute="selective"), "run.sh",
        ("--fine-grained-activation-offloading", "--offload-modules core_attn attn_proj",
         "--activation-offload-fraction 0.25", "--fine-grained-offloading-max-inflight-offloads 4",
         "export NVTE_CPU_OFFLOAD_V1=1"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITTEN)
def test_a_plan_is_written_and_read_back(case: str, tmp_path: Path) -> None:
    plan, file, words = WRITTEN[case]
    name = plan.engine.name
    rendered = target(name).render(plan)
    assert all(word in rendered.files[file] for word in words), rendered.files[file]
    assert not [line for line in rendered.not_expressed if "offload" in line and "nvme_path" not in line]
    found = imported(plan, name, tmp_path)
    assert canonical(found.plan) == canonical(plan)
    assert not [one for one in found.ignored if "offload" in one.option and one.affects]


REFUSED = {
    "weights under ZeRO 2": (plan_of("deepspeed", WEIGHTS, zero=2), "weights under ZeRO 3 alone"),
    "disks under ZeRO 2": (plan_of("deepspeed", f"{STATES}:tier=nvme", zero=2), "NVMe under ZeRO 3 alone"),
    "weights of the Trainer under ZeRO 2": (plan_of("transformers", WEIGHTS, zero=2), "weights under ZeRO 3 alone"),
    "layers in a pipeline": (plan_of("megatron", SAVED, zero=1, pp=2), "whole layers without a pipeline"),
    "layers recomputed": (plan_of("megatron", SAVED, zero=1, recompute="full"), "layers that it recomputes"),
    "TorchTitan unsharded": (plan_of("torchtitan", STATES, WEIGHTS, zero=0), "what FSDP shards"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_an_engine_cannot_do_is_refused(case: str) -> None:
    plan, why = REFUSED[case]
    with pytest.raises(InputError, match=why):
        target(plan.engine.name).render(plan)


UNSAID = {
    "states alone under TorchTitan": (plan_of("torchtitan", STATES), "the technique offload-optimizer: TorchTitan"),
    "activations under TorchTitan": (plan_of("torchtitan", SAVED), "the technique offload-activations"),
    "activations under the Trainer": (plan_of("transformers", SAVED), "the technique offload-activations"),
    "activations under DeepSpeed": (plan_of("deepspeed", SAVED), "the technique offload-activations: DeepSpeed"),
    "a share of the weights": (plan_of("deepspeed", f"{WEIGHTS}:share=0.5"), "share=0.5 of offload-parameters"),
    "layers ahead": (plan_of("deepspeed", f"{WEIGHTS}:ahead=4"), "ahead=4 of offload-parameters"),
    "disks of Megatron-LM": (plan_of("megatron", f"{STATES}:tier=nvme", zero=1), "tier=nvme of offload-optimizer"),
    "weights of Megatron-LM": (plan_of("megatron", WEIGHTS, zero=3), "the technique offload-parameters"),
    "blocking copies": (plan_of("megatron", f"{SAVED}:copies=blocking", zero=1), "copies=blocking of offload-act"),
    "a share of the layers": (
        plan_of("megatron", f"{SAVED}:share=0.3", zero=1),
        "share=0.3 of offload-activations: 10",
    ),
}


@pytest.mark.parametrize("case", UNSAID)
def test_what_no_option_says_is_said(case: str) -> None:
    plan, line = UNSAID[case]
    assert any(one.startswith(line) for one in target(plan.engine.name).render(plan).not_expressed)


TRAINER = "train.py --model_name_or_path meta-llama/Llama-3.1-8B --output_dir out --max_length 4096 --bf16"
MEGATRON = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
    "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 4096 --micro-batch-size 1 "
    "--global-batch-size 64 --bf16 --use-distributed-optimizer --vocab-size 128256 --swiglu --attention-dropout 0 "
    "--hidden-dropout 0 --overlap-grad-reduce"
)
READ: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "DeepSpeed's disks": (
        f"deepspeed --num_gpus 8 {TRAINER} --deepspeed ds.json",
        {"ds.json": {"zero_optimization": {
            "stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/scratch", "buffer_count": 5},
            "offload_optimizer": {"device": "nvme", "nvme_path": "/scratch", "pipeline_read": True, "ratio": 0.5},
        }, "aio": {"queue_depth": 8}, "bf16": {"enabled": True}}},
        {"offload-parameters:tier=nvme", "offload-optimizer:share=0.5,tier=nvme"},
    ),
    "weights alone": (
        f"deepspeed --num_gpus 8 {TRAINER} --deepspeed ds.json",
        {"ds.json": {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"},
                                           "offload_optimizer": {"device": "none"}}}},
        {"offload-parameters"},
    ),
    "the Trainer's FSDP": (
        f'torchrun --nproc-per-node 8 {TRAINER} --fsdp "full_shard auto_wrap offload"', {},
        {"offload-parameters", "offload-optimizer:share=1"},
    ),
    "Accelerate's FSDP": (
        f"accelerate launch --config_file a.yaml {TRAINER}",
        {"a.yaml": {"distributed_type": "FSDP", "compute_environment": "LOCAL_MACHINE", "num_processes": 8,
                    "mixed_precision": "bf16", "fsdp_config": {"fsdp_version": 2, "fsdp_offload_params": True}}},
        {"offload-parameters", "offload-optimizer:share=1"},
    ),
    "TRL": (
        f"torchrun --nproc-per-node 8 {TRAINER} --activation_offloading true", {}, {"offload-activations"},
    ),
    "Megatron-LM's layers": (
        f"{MEGATRON} --cpu-offloading --cpu-offloading-num-layers 16", {}, {"offload-activations:layers=16"},
    ),
    "Megatron-LM's operators": (
        f"{MEGATRON} --fine-grained-activation-offloading --offload-modules core_attn attn_proj mlp_norm", {},
        {"offload-activations:modules=core_attn+attn_proj+mlp_norm"},
    ),
    "Megatron-LM's states": (
        f"{MEGATRON} --optimizer-cpu-offload --optimizer-offload-fraction 0.25 --use-precision-aware-optimizer", {},
        {"offload-optimizer:share=0.25"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_what_others_wrote_is_read(case: str, tmp_path: Path) -> None:
    command, files, named = READ[case]
    for name, fields in files.items():
        (tmp_path / name).write_text(json.dumps(fields))
    (tmp_path / "run.sh").write_text(command + "\n")
    found = gnomon.import_plan(tmp_path / "run.sh", on="H100")
    assert set(found.plan.strategy.techniques) == named
    assert not [one for one in found.ignored if one.affects and "offload" in one.option.lower()]


def test_a_device_that_is_none_is_refused(tmp_path: Path) -> None:
    command, files, _ = READ["weights alone"]
    files["ds.json"]["zero_optimization"]["offload_param"]["device"] = "tape"
    (tmp_path / "ds.json").write_text(json.dumps(files["ds.json"]))
    (tmp_path / "run.sh").write_text(command)
    with pytest.raises(InputError, match="'tape' is no device"):
        gnomon.import_plan(tmp_path / "run.sh", on="H100")


def test_the_plan_is_priced_as_it_is_read(tmp_path: Path) -> None:
    plan = replace(WRITTEN["disks of DeepSpeed"][0], id="")
    found = imported(plan, "deepspeed", tmp_path)
    (tmp_path / "plan.yaml").write_text(target("deepspeed").render(found.plan).files["plan.yaml"])
    told = gnomon.simulate_training(
        plan.model, on="H200:8", seq=4096, global_batch=64, zero=3, engine="deepspeed",
        techniques=list(found.plan.strategy.techniques), sequence_parallel=False,
    )  # fmt: skip
    assert told.nvme_bytes == pytest.approx(18 * told.step.job.model.parameters, rel=1e-9)
