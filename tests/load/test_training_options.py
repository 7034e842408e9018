"""What single options of training commands and their configurations come to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.errors import InputError
from gnomon.load.plan import write_plan
from gnomon.spec import TrainingLoad
from gnomon.spec.imported import ImportedPlan

TRAINER = "train.py --model_name_or_path meta-llama/Llama-3.1-8B --max_length 4096 --bf16 --output_dir out"
SCRIPT = "train.py --model llama-3.1-8b --seq-length 4096 --batch-size 1 --bf16"


def imported(folder: Path, command: str, on: str = "H100", **files: Any) -> ImportedPlan:
    """The plan of a command beside configuration files: `ds` is written as `ds.json`."""
    for name, fields in files.items():
        (folder / f"{name}.json").write_text(json.dumps(fields))
    script = folder / "run.sh"
    script.write_text(f"#!/bin/bash\n{command}\n")
    return gnomon.import_plan(script, on=on)


def noted(found: ImportedPlan) -> set[str]:
    """What would change the figures and does not."""
    return {one.option for one in found.ignored if one.affects}


OF_DEEPSPEED = {"Adam": "adamw", "AdamW": "adamw", "SGD": "sgd", "Lion": "lion", "Muon": "muon"}


@pytest.mark.parametrize("kind", OF_DEEPSPEED)
@pytest.mark.parametrize(
    "command", [f"deepspeed --num_gpus 8 {SCRIPT} --deepspeed_config ds.json",
                f"deepspeed --num_gpus 8 {TRAINER} --deepspeed ds.json"]
)  # fmt: skip
def test_the_optimizer_of_a_deepspeed_configuration_acts(kind: str, command: str, tmp_path: Path) -> None:
    config = {"zero_optimization": {"stage": 1}, "optimizer": {"type": kind, "params": {"lr": 1e-4}}}
    found = imported(tmp_path, command, ds=config)
    assert found.plan.engine.settings["optimizer"] == OF_DEEPSPEED[kind]


def test_an_optimizer_that_no_recipe_knows_is_refused(tmp_path: Path) -> None:
    config = {"zero_optimization": {"stage": 1}, "optimizer": {"type": "OneBitAdam"}}
    with pytest.raises(InputError, match="OneBitAdam is not modelled") as caught:
        imported(tmp_path, f"deepspeed --num_gpus 8 {SCRIPT} --deepspeed_config ds.json", ds=config)
    assert "optimizer.type" in caught.value.where


def test_megatron_deepspeed_brings_its_own_optimizer(tmp_path: Path) -> None:
    shape = (
        "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --num-key-value-heads 8 --ffn-hidden-size 14336"
    )
    command = (
        f"deepspeed --num_gpus 8 pretrain_gpt.py --deepspeed {shape} --seq-length 4096 --micro-batch-size 1 --bf16"
    )
    config = {"zero_optimization": {"stage": 1}, "optimizer": {"type": "SGD"}}
    found = imported(tmp_path, f"{command} --deepspeed_config ds.json", ds=config)
    assert found.plan.engine.settings["optimizer"] == "adamw"
    assert "optimizer.type: sgd" in {one.option for one in found.ignored}


OTHER_KERNELS = {
    "--attn_implementation flash_attention_2": {"--attn_implementation flash_attention_2"},
    "--attn_implementation sdpa": set(),
    "--use_liger_kernel True": {"--use_liger_kernel"},
    "--use_liger_kernel False": set(),
    "--torch_compile_mode max-autotune": {"--torch_compile_mode max-autotune"},
}


@pytest.mark.parametrize("option", OTHER_KERNELS)
def test_kernels_that_are_not_priced_are_noted(option: str, tmp_path: Path) -> None:
    found = imported(tmp_path, f"torchrun --nproc-per-node 8 {TRAINER} {option}")
    assert noted(found) == OTHER_KERNELS[option]


@pytest.mark.parametrize(
    ("option", "compiled"), [("--torch_compile", True), ("--torch_compile false", False), ("", False)]
)
def test_compiled_modules_are_a_technique(option: str, compiled: bool, tmp_path: Path) -> None:
    found = imported(tmp_path, f"torchrun --nproc-per-node 8 {TRAINER} {option}")
    assert ("torch-compile" in found.plan.strategy.techniques) == compiled
    assert not noted(found)


def test_modules_that_accelerate_compiles_are_noted(tmp_path: Path) -> None:
    command = f"accelerate launch --num_processes 8 --dynamo_backend {{}} {TRAINER}"
    assert noted(imported(tmp_path, command.format("inductor"))) == {"dynamo_backend: inductor"}
    assert noted(imported(tmp_path, command.format("no"))) == set()


FSDP = {
    "full_shard auto_wrap": ({"activation_checkpointing": True}, 3, "full"),
    "shard_grad_op": ({"fsdp_activation_checkpointing": "false"}, 2, "none"),
    "full_shard": ({"version": 2, "reshard_after_forward": False}, 2, "none"),
}


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("words", FSDP)
def test_the_trainers_file_of_fsdp_acts(words: str, inline: bool, tmp_path: Path) -> None:
    fields, zero, recompute = FSDP[words]
    given = f"'{json.dumps(fields)}'" if inline else "own.json"
    command = f"torchrun --nproc-per-node 8 {TRAINER} --fsdp '{words}' --fsdp_config {given}"
    settings = imported(tmp_path, command, own=fields).plan.engine.settings
    assert (settings["zero"], settings["recompute"]) == (zero, recompute)


def test_a_file_of_fsdp_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.json"):
        imported(tmp_path, f"torchrun --nproc-per-node 8 {TRAINER} --fsdp full_shard --fsdp_config gone.json")


def test_a_deepspeed_file_is_laid_over_accelerates(tmp_path: Path) -> None:
    launched = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_processes": 16,
                "mixed_precision": "fp16", "deepspeed_config": {"zero_stage": 2}}  # fmt: skip
    command = f"accelerate launch --config_file acc.json {TRAINER.replace(' --bf16', '')} --deepspeed ds.json"
    found = imported(tmp_path, command, acc=launched, ds={"zero_optimization": {"stage": 3}}).plan
    assert (found.strategy.dp, found.dtype, found.engine.settings["zero"]) == (16, "fp16", 3)


TRL = "trl sft --model_name_or_path meta-llama/Llama-3.1-8B --max_length 4096 --bf16 --output_dir out"


def test_the_chips_of_a_program_that_nothing_counts(tmp_path: Path) -> None:
    assert imported(tmp_path, TRL, on="H100:8").plan.strategy.dp == 8
    assert imported(tmp_path, f"{TRL} --num_processes 4").plan.strategy.dp == 4
    with pytest.raises(InputError, match="nothing says on how many chips"):
        imported(tmp_path, TRL)
    assert imported(tmp_path, f"python {TRAINER}").plan.strategy.dp == 1
    assert imported(tmp_path, f"python {TRAINER}", on="H100:8").plan.strategy.dp == 8
    assert imported(tmp_path, f"export WORLD_SIZE=4\npython {TRAINER}").plan.strategy.dp == 4
    with pytest.raises(InputError, match="8 chips are not the 4 that it starts on"):
        imported(tmp_path, f"export WORLD_SIZE=4\npython {TRAINER}", on="H100:8")


def test_a_job_is_named_as_one_likes(tmp_path: Path) -> None:
    found = imported(tmp_path, f"srun -n 8 --job-name deepspeed python {TRAINER}")
    assert (found.plan.engine.name, found.plan.strategy.dp) == ("transformers", 8)
    assert imported(tmp_path, f"srun -N 2 --label torchrun --nproc-per-node 8 {TRAINER}").plan.strategy.dp == 16


NUMBERS = {
    "1400000000000": 1.4e12,
    "1.4e12": 1.4e12,
    "1e15": 1e15,
    "1e19": "1e19 is more than 1,000,000,000,000,000,000",
    "99999999999999999999": "99999999999999999999 is more than",
    "-1": "-1 is less than 0",
    "1.5e0": "'1.5e0' is not a whole number",
}


@pytest.mark.parametrize("text", NUMBERS)
def test_the_tokens_of_a_run(text: str, tmp_path: Path) -> None:
    command = f"deepspeed --num_gpus 8 {SCRIPT} --deepspeed_config ds.json --train-tokens {text}"
    expected = NUMBERS[text]
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            imported(tmp_path, command, ds={"zero_optimization": {"stage": 1}})
        return
    load = imported(tmp_path, command, ds={"zero_optimization": {"stage": 1}}).plan.load
    assert isinstance(load, TrainingLoad)
    assert load.tokens == pytest.approx(expected, rel=1e-6)


def test_the_runners_options_have_values(tmp_path: Path) -> None:
    plan = imported(tmp_path, f"torchrun --nproc-per-node 8 {TRAINER} --gradient_checkpointing").plan
    write_plan(plan, tmp_path / "plan.yaml")
    for words in ("--steps 5 plan.yaml", "plan.yaml --steps 5", "--steps=5 plan.yaml --out other.json"):
        found = imported(tmp_path, f"torchrun --nproc-per-node 8 -m gnomon.engines.torch.worker {words}")
        assert found.plan.strategy == plan.strategy


BATCHES = {
    "accumulated": ({"train_batch_size": 64, "gradient_accumulation_steps": 4}, 2, 64),
    "at once": ({"train_batch_size": 64}, 8, 64),
    "by a rank": ({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}, 2, 64),
}


@pytest.mark.parametrize("case", BATCHES)
def test_two_of_deepspeeds_batch_sizes_give_the_third(case: str, tmp_path: Path) -> None:
    fields, micro, batch = BATCHES[case]
    command = f"deepspeed --num_gpus 8 {SCRIPT.replace('--batch-size 1 ', '')} --deepspeed_config ds.json"
    plan = imported(tmp_path, command, ds={"zero_optimization": {"stage": 1}, **fields}).plan
    assert isinstance(plan.load, TrainingLoad)
    assert (plan.engine.settings["micro_batch"], plan.load.global_batch) == (micro, batch)
    with pytest.raises(InputError, match="a batch of 63 is not a multiple of 8"):
        imported(tmp_path, command, ds={"zero_optimization": {"stage": 1}, "train_batch_size": 63})


def test_checkpoints_at_a_share_of_the_steps(tmp_path: Path) -> None:
    command = f"torchrun --nproc-per-node 8 {TRAINER} --save_steps 0.1"
    assert imported(tmp_path, f"{command} --max_steps 1005").plan.strategy.techniques == (
        "async-checkpointing:every=101,mode=synchronous",
    )
    found = imported(tmp_path, command)
    assert found.plan.strategy.techniques == ()
    assert noted(found) == {"--save_steps 0.1"}


@pytest.mark.parametrize("share", ["5", "-0.1", "nan"])
def test_a_share_lies_between_none_and_all(share: str, tmp_path: Path) -> None:
    shape = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --num-query-groups 8 --ffn-hidden-size 14336"
    command = f"torchrun --nproc-per-node 8 pretrain_gpt.py {shape} --seq-length 4096 --micro-batch-size 1 --bf16"
    with pytest.raises(InputError, match=r"--optimizer-offload-fraction: .* is not"):
        imported(tmp_path, f"{command} --optimizer-cpu-offload --optimizer-offload-fraction {share}")
    config = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": share}}}
    with pytest.raises(InputError, match=r"offload_optimizer\.ratio: .* is not"):
        imported(tmp_path, f"deepspeed --num_gpus 8 {SCRIPT} --deepspeed_config ds.json", ds=config)


def test_layers_that_deepspeed_recomputes_together(tmp_path: Path) -> None:
    full = f"deepspeed --num_gpus 8 {SCRIPT} --deepspeed_config ds.json --recompute-granularity full"
    config = {"zero_optimization": {"stage": 1}}
    for count, word in ((1, "full"), (4, "full:uniform=4")):
        found = imported(tmp_path, f"{full} --recompute-method uniform --recompute-num-layers {count}", ds=config)
        assert (noted(found), found.plan.engine.settings["recompute"]) == (set(), word)
    found = imported(tmp_path, f"{full} --recompute-method block --recompute-num-layers 4", ds=config)
    assert noted(found) == {"the first 4 layers recomputed"}


MIXTURE = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
    "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --num-experts 8 --moe-router-topk 2 "
    "--expert-model-parallel-size 8 --vocab-size 32000 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 "
    "--bf16 --train-iters 10"
)
PADDED = "--moe-expert-capacity-factor 1.0 --moe-pad-expert-input-to-capacity"
SCOPES = "attn moe_router moe_preprocess"


@pytest.mark.parametrize(
    ("options", "on", "notes"),
    [
        ("", False, ()),
        ("--cuda-graph-impl none", False, ()),
        (f"--cuda-graph-impl transformer_engine --cuda-graph-modules {SCOPES}", True, ()),
        ("--cuda-graph-impl transformer_engine --cuda-graph-modules attn", True, ("--cuda-graph-modules attn",)),
        ("--cuda-graph-impl local", True, ("--cuda-graph-impl local",)),
        (f"--cuda-graph-impl full_iteration {PADDED}", True, ()),
        (f"--cuda-graph-impl local --cuda-graph-scope full_iteration {PADDED}", True, ()),
        (f"--cuda-graph-impl local {PADDED}", True, ("--cuda-graph-impl local",)),
        ("--enable-cuda-graph", False, ("--enable-cuda-graph",)),
    ],
)
def test_megatrons_cuda_graphs(options: str, on: bool, notes: tuple[str, ...], tmp_path: Path) -> None:
    found = imported(tmp_path, f"{MIXTURE} {options}")
    assert found.plan.engine.settings.get("cuda_graphs", False) is on
    assert {one for one in noted(found) if "cuda-graph" in one} == {*notes}


DS = f"deepspeed --num_gpus 8 {SCRIPT} --deepspeed_config ds.json"
ACCELERATE = f"accelerate launch --config_file ds.json {TRAINER}"
ODD: dict[str, tuple[str, dict[str, Any], str]] = {
    "another stage": (f"{DS} --zero-stage 1", {"zero_optimization": {"stage": 3}}, "--zero-stage: 1 is not the 3"),
    "no stage": (f"{DS} --zero-stage 1", {"bf16": {"enabled": True}}, "--zero-stage: 1 is not the 0"),
    "another micro-batch": (
        DS, {"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 4},
        "--micro-batch-size: 1 is not the 4 that train_micro_batch_size_per_gpu",
    ),
    "a stage that is none": (DS, {"zero_optimization": {"stage": 9}}, "stage: 9 is more than 3"),
    "a list for fields": (DS, {"zero_optimization": []}, "zero_optimization: '\\[\\]' is not a section"),
    "a number for fields": (ACCELERATE, {"distributed_type": "FSDP", "fsdp_config": 3}, "fsdp_config: '3' is not a"),
    "half a yes": (
        ACCELERATE,
        {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2, "fsdp_reshard_after_forward": "maybe"}},
        "'maybe' is neither true nor false",
    ),
    "a third FSDP": (ACCELERATE, {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 3}}, "more than 2"),
    "a format that is none": (ACCELERATE, {"mixed_precision": "fp9"}, "mixed_precision: 'fp9' is not known"),
    "nowhere": (
        ACCELERATE,
        {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3, "offload_optimizer_device": "moon"}},
        "'moon' is no device to offload to",
    ),
    "seven": (ACCELERATE, {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 7}}, "more than 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_what_a_configuration_cannot_mean_is_refused(case: str, tmp_path: Path) -> None:
    command, config, told = ODD[case]
    with pytest.raises(InputError) as caught:
        imported(tmp_path, command, ds=config)
    assert re.search(told, str(caught.value))


def test_a_file_of_torchtitan_needs_no_degrees(tmp_path: Path) -> None:
    file = tmp_path / "train.toml"
    file.write_text('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 4096\nlocal_batch_size = 1\n')
    found = gnomon.import_plan(file, on="H100:8")
    assert (found.plan.engine.name, found.plan.strategy.dp, found.plan.chips) == ("torchtitan", 8, 8)
