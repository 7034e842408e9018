"""Files as people write them, modelled on public examples: each is read as the plan it is, with a note for what is not
read, and broken ones are refused on one line."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import gnomon
from gnomon.errors import GnomonError, InputError
from gnomon.spec import Strategy, TrainingLoad
from gnomon.spec.imported import ImportedPlan

FILES = Path(__file__).parent / "training_files"
READ: dict[str, dict[str, Any]] = {
    "megatron_llama3_8b.sbatch.sh": {
        "model": "llama-3.1-8b",
        "engine": "megatron",
        "strategy": Strategy(tp=2, pp=2, vp=4, dp=8, techniques=("async-checkpointing:every=500,mode=asynchronous",)),
        "settings": {"zero": 1, "recompute": "selective", "schedule": "interleaved", "tp_overlap": True},
        "load": TrainingLoad(seq=8192, global_batch=512, tokens=100_000.0 * 512 * 8192),
        "noted": set(),
    },
    "megatron_gpt3_175b.sh": {
        "model": "gpt3-175b",
        "engine": "megatron",
        "dtype": "fp16",
        "strategy": Strategy(tp=8, pp=16, dp=8),
        "settings": {"zero": 0, "recompute": "full", "sequence_parallel": False},
        "load": TrainingLoad(seq=2048, global_batch=1536, tokens=95_368.0 * 1536 * 2048),
        "noted": {
            "--rampup-batch-size 16 16 5859375",
            "--some-site-option 7",
            "no --attention-dropout, 0.1 by default",
            "no --hidden-dropout, 0.1 by default",
            "no --overlap-grad-reduce",
        },
    },
    "megatron_mixtral.sh": {
        "model": "mixtral-8x7b",
        "engine": "megatron",
        "strategy": Strategy(pp=4, dp=4, ep=4),
        "settings": {"zero": 1, "schedule": "1f1b", "recompute": "none", "capacity_factor": 1.5},
        "noted": set(),
    },
    "torchtitan_llama3_70b.toml": {
        "model": "llama-3.1-70b",
        "engine": "torchtitan",
        "on": "H100:256",
        "dtype": "fp8",
        "strategy": Strategy(tp=8, dp=32),
        "settings": {"zero": 3, "recompute": "full", "micro_batch": 8, "tp_overlap": True},
        "load": TrainingLoad(seq=8192, global_batch=256, tokens=1000.0 * 256 * 8192),
        "noted": set(),
    },
    "torchtitan_multinode.sh": {
        "model": "llama-3.1-70b",
        "engine": "torchtitan",
        "dtype": "fp8",
        "strategy": Strategy(tp=8, dp=32),
        "settings": {"zero": 3, "micro_batch": 16, "tp_overlap": True},
        "noted": set(),
    },
    "torchtitan_registry.sh": {
        "model": "llama-3.1-8b",
        "engine": "torchtitan",
        "strategy": Strategy(tp=2, dp=4),
        "settings": {"zero": 3, "recompute": "full", "micro_batch": 2},
        "noted": set(),
    },
    "torchtitan_wrapper.sh": {
        "model": "llama-3.1-70b",
        "engine": "torchtitan",
        "dtype": "fp8",
        "strategy": Strategy(tp=8),
        "settings": {"schedule": "gpipe", "tp_overlap": True},
        "load": TrainingLoad(seq=8192, global_batch=8),
        "noted": set(),
    },
    "bloom_like.sh": {
        "model": "gpt-39.1b",
        "engine": "deepspeed",
        "strategy": Strategy(tp=4, pp=12, dp=8),
        "settings": {"zero": 1, "recompute": "full", "micro_batch": 2},
        "noted": {"--rampup-batch-size 192 16 9_765_625"},
    },
    "trainer_deepspeed.sh": {
        "model": "llama-3.1-8b",
        "engine": "transformers",
        "strategy": Strategy(
            dp=16, techniques=("offload-optimizer:share=1", "async-checkpointing:every=500,mode=synchronous")
        ),
        "settings": {"zero": 3, "recompute": "full", "micro_batch": 4},
        "load": TrainingLoad(seq=4096, global_batch=256),
        "noted": {
            "zero_optimization.overlap_comm: true",
            "zero_quantized_weights_note: kept from an earlier run",
            "engine.settings.zero",
        },
    },
    "trl_sft.sh": {
        "model": "qwen3-8b",
        "engine": "transformers",
        "strategy": Strategy(dp=4, techniques=("lora:rank=32,targets=qv,dropout=0",)),
        "settings": {"zero": 3, "recompute": "full", "optimizer": "adamw", "micro_batch": 2},
        "load": TrainingLoad(seq=2048, global_batch=64, tokens=1000.0 * 64 * 2048),
        "noted": {"--packing (bfd)", "engine.settings.zero"},
    },
    "trl_sft.yaml": {
        "model": "qwen3-8b",
        "engine": "transformers",
        "on": "H100:8",
        "strategy": Strategy(dp=8),
        "settings": {"zero": 0, "recompute": "full", "optimizer": "adam8bit"},
        "noted": {"optim: paged_adamw_8bit", "engine.settings.optimizer"},
    },
    "trainer_ddp.sh": {
        "model": "llama-3.2-1b",
        "engine": "transformers",
        "strategy": Strategy(dp=8),
        "settings": {"zero": 2, "recompute": "none", "micro_batch": 8},
        "noted": {"engine.settings.zero"},
    },
}


def read(name: str) -> ImportedPlan:
    return gnomon.import_plan(FILES / name, on=READ[name].get("on", "H100"))


@pytest.mark.parametrize("name", READ)
def test_a_file_is_read_as_the_plan_it_is(name: str) -> None:
    expected, found = READ[name], read(name)
    plan = found.plan
    assert (plan.model, plan.engine.name, plan.dtype) == (
        expected["model"],
        expected["engine"],
        expected.get("dtype", "bf16"),
    )
    assert plan.strategy == expected["strategy"]
    assert {key: plan.engine.settings[key] for key in expected["settings"]} == expected["settings"]
    assert plan.load == expected.get("load", plan.load)
    assert {one.option for one in found.ignored if one.affects} == expected["noted"]
    assert all(one.why for one in found.ignored)


REFUSED = {
    "ds_z3.json": "names no model and no sequence length. Import the command that reads it: deepspeed",
    "fsdp2.yaml": "names no model, no batch and no sequence length. Import the command that reads it: accelerate",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_configuration_alone_is_no_plan(name: str) -> None:
    with pytest.raises(InputError) as caught:
        gnomon.import_plan(FILES / name, on="H100:8", model="llama-3.1-8b")
    assert REFUSED[name] in str(caught.value)


CHANGED = {
    "a schedule that is not modelled": (
        "torchtitan_wrapper.sh", "GPipe", "DualPipeV", "unknown schedule 'DualPipeV'",
    ),
    "degrees that do not divide": (
        "megatron_mixtral.sh", "--pipeline-model-parallel-size 4", "--pipeline-model-parallel-size 3", "not a multiple",
    ),
    "no batch": ("megatron_mixtral.sh", "--micro-batch-size 1", "", "--micro-batch-size: is not given"),
    "no number": ("megatron_mixtral.sh", "--seq-length 4096", "--seq-length four", "'four' is not a whole number"),
    "no sizes of the catalog": ("megatron_mixtral.sh", "--num-layers 32", "--num-layers 64", "no model of the catalog"),
    "a value of the shell": (
        "megatron_mixtral.sh", "--seq-length 4096", "--seq-length $SEQ", "'$SEQ' is filled in by the shell",
    ),
    "an optimizer that is not modelled": (
        "trainer_ddp.sh", "adamw_torch_fused", "galore_adamw", "the optimizer galore_adamw is not modelled",
    ),
    "no length": ("trainer_ddp.sh", "--max_seq_length 2048", "", "--sequence_length: is not given"),
    "a configuration of the registry": ("torchtitan_registry.sh", "llama3_8b", "llama3_9b", "llama3.llama3_9b"),
    "no file": ("trl_sft.sh", "fsdp2.yaml", "gone.yaml", "gone.yaml"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGED)
def test_what_is_wrong_is_said_on_one_line(case: str, tmp_path: Path) -> None:
    name, old, new, said = CHANGED[case]
    for file in FILES.iterdir():
        (tmp_path / file.name).write_text(file.read_text())
    text = (FILES / name).read_text()
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new))
    with pytest.raises(GnomonError) as caught:
        gnomon.import_plan(tmp_path / name, on="H100")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", READ)
def test_broken_files_are_answered_or_refused(name: str, tmp_path: Path) -> None:
    """Words lost, doubled, moved and garbled: never anything but an answer or an error with a reason."""
    random, words = Random(name), (FILES / name).read_text().split(" ")
    for file in FILES.iterdir():
        (tmp_path / file.name).write_text(file.read_text())
    answered = 0
    for _ in range(60):
        broken = list(words)
        for _ in range(random.randint(1, 4)):
            place, way = random.randrange(len(broken)), random.randrange(4)
            odd = random.choice(("-1", "nan", "{", "[[x]]", "$X", "''", "é", "99999999999999999999", "true", '"', "0"))
            broken[place : place + 1] = [
                [],
                [broken[place]] * 2,
                [odd],
                [broken[place], broken[random.randrange(len(broken))]],
            ][way]
        (tmp_path / name).write_text(" ".join(broken))
        try:
            answered += bool(gnomon.import_plan(tmp_path / name, on=READ[name].get("on", "H100")).plan)
        except GnomonError as error:
            assert str(error)
            assert "\n" not in str(error)
    assert answered


READ_BACK = {
    "full": "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    "full:uniform=4": "--recompute-granularity full --recompute-method uniform --recompute-num-layers 4",
    "full:block=2": "--recompute-granularity full --recompute-method block --recompute-num-layers 2",
    "selective": "--recompute-granularity selective",
    "modules=moe": "--recompute-granularity selective --recompute-modules moe",
    "modules=core_attn+moe_act+layernorm": (
        "--recompute-granularity selective --recompute-modules layernorm core_attn moe_act"
    ),
    "none": "--recompute-num-layers 2",
}


@pytest.mark.parametrize("word", READ_BACK)
def test_what_megatron_recomputes_is_read(word: str, tmp_path: Path) -> None:
    text = (FILES / "megatron_mixtral.sh").read_text()
    (tmp_path / "run.sh").write_text(text.replace("--micro-batch-size 1", f"--micro-batch-size 1 {READ_BACK[word]}"))
    found = gnomon.import_plan(tmp_path / "run.sh", on="B200")
    assert found.plan.engine.settings["recompute"] == word
    assert {one.option for one in found.ignored if one.affects} == READ["megatron_mixtral.sh"]["noted"]
    if word != "none":
        files = gnomon.export(found.plan, to="megatron").files
        again = tmp_path / "again.sh"
        again.write_text(files["run.sh"])
        assert gnomon.import_plan(again, on="B200").plan.engine.settings["recompute"] == word


def test_what_torchtitan_recomputes_is_read(tmp_path: Path) -> None:
    """By operator, in full, every so many layers; a memory budget says nothing before it is compiled."""
    file = tmp_path / "torchtitan.toml"
    text = (FILES / "torchtitan_llama3_70b.toml").read_text()

    def with_checkpointing(lines: str) -> Any:
        assert text.count('mode = "full"') == 1
        file.write_text(text.replace('mode = "full"', lines))
        return gnomon.import_plan(file, on="H100:256").plan.engine.settings["recompute"]

    assert with_checkpointing('mode = "selective"\nselective_ac_option = "op"') == "selective"
    assert with_checkpointing('mode = "selective"\nselective_ac_option = "2"') == "every=2"
    assert with_checkpointing('mode = "selective"\nselective_ac_option = "1"') == "full"
    with pytest.raises(InputError, match="memory_budget is not modelled"):
        with_checkpointing('mode = "memory_budget"')
    with pytest.raises(InputError, match="is not a number of layers"):
        with_checkpointing('mode = "selective"\nselective_ac_option = "two"')
