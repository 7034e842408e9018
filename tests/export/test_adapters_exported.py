"""Plans with adapters as files of the transformers Trainer with PEFT, and commands of TRL as plans."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.export.training import own_arguments, plan_for
from tests.export.training_battery import canonical, imported

import gnomon
from gnomon.errors import InputError
from gnomon.export import target
from gnomon.spec import EngineChoice, Plan, Recipe, Strategy, TrainingLoad
from gnomon.spec.loads.lengths.uniform import Uniform
from gnomon.spec.loads.sequences import Sequences

ASKED = [
    "lora:rank=64",
    "lora:dropout=0.1,rank=8,targets=attention",
    "lora:targets=qv",
    "qlora:rank=32",
    "qlora:double_quant=no,targets=qkv",
    "dora:rank=8",
]


def tuned(asked: str, optimizer: str, **more: object) -> Plan:
    found = plan_for("transformers", 8, strategy=Strategy(dp=8, techniques=(asked,)), **more)
    recipe = Recipe(recompute="full", optimizer=optimizer)
    return Plan(**{**{name: getattr(found, name) for name in found.__dataclass_fields__},
                   "engine": EngineChoice(name="transformers", settings=recipe.settings)})  # fmt: skip


@pytest.mark.parametrize("optimizer", ["adamw", "adamw-bf16"])
@pytest.mark.parametrize("asked", ASKED)
def test_files_come_back_as_their_plan(asked: str, optimizer: str, tmp_path: Path) -> None:
    plan = tuned(asked, optimizer)
    found = imported(plan, "transformers", tmp_path)
    assert canonical(found.plan) == canonical(plan)
    assert not [one for one in found.ignored if one.affects]
    assert not [line for line in target("transformers").render(plan).not_expressed if "technique" in line]


@pytest.mark.parametrize("drawn", [False, True])
def test_the_script_makes_the_adapters_that_the_arguments_name(drawn: bool, tmp_path: Path) -> None:
    sequences = Sequences(lengths=Uniform(low=16, high=512), packing="none") if drawn else None
    plan = tuned("qlora:targets=attention", "adamw", load=TrainingLoad(seq=4096, global_batch=64, sequences=sequences))
    files = target("transformers").render(plan).files
    tree = ast.parse(files["train.py"])
    said = yaml.safe_load(files["training.yaml"])
    own = {"use_peft", "lora_r", "lora_target_modules", "load_in_4bit", "use_bnb_nested_quant", "adapter_weights"}
    assert own <= said.keys() & own_arguments(files["train.py"])
    assert said["lora_target_modules"] == ["q_proj", "k_proj", "v_proj", "o_proj"]
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {call.id for call in calls if isinstance(call, ast.Name)}
    assert {"with_adapters", "packed", "LoraConfig", "BitsAndBytesConfig"} <= called


def test_plans_without_adapters_have_the_script_of_before() -> None:
    text = target("transformers").render(plan_for("transformers")).files["train.py"]
    assert "peft" not in text and "lora" not in text


SFT = "trl sft --num_processes 8 --model_name_or_path Qwen/Qwen2.5-7B --bf16 --dtype bfloat16 --max_length 2048"


def read(more: str) -> Plan:
    return gnomon.import_plan(f"{SFT} --use_peft {more}", on="H100:8").plan


def test_a_command_of_trl_is_read() -> None:
    plan = read("--lora_r 32 --lora_alpha 16 --lora_target_modules all-linear --gradient_checkpointing")
    assert plan.strategy.techniques == ("lora:rank=32,targets=all-linear,dropout=0.05",)
    assert plan.engine.settings["optimizer"] == "adamw"
    packed = read("--load_in_4bit --use_bnb_nested_quant --lora_target_modules q_proj v_proj")
    assert packed.strategy.techniques == ("qlora:rank=16,targets=qv,dropout=0.05,double_quant=yes",)
    assert packed.engine.settings["optimizer"] == "adamw-bf16", "TRL casts adapters beside 4-bit weights"
    assert read("--use_dora").strategy.techniques == ("dora:rank=16,targets=qv,dropout=0.05",), (
        "PEFT's own choice of modules"
    )


def test_what_is_not_priced_of_adapters_is_refused_or_said() -> None:
    with pytest.raises(InputError, match="adapters of gate_proj are not priced"):
        read("--lora_target_modules gate_proj")
    with pytest.raises(InputError, match="magnitudes beside 4-bit weights"):
        read("--load_in_4bit --use_dora")
    found = gnomon.import_plan(f"{SFT} --use_peft --load_in_8bit --lora_modules_to_save lm_head", on="H100:8")
    assert sum(one.affects for one in found.ignored) == 2


def test_frozen_weights_are_in_16_bits() -> None:
    with pytest.raises(InputError, match="keep frozen weights in bf16, and the plan is in fp32"):
        target("transformers").render(tuned("lora", "adamw", dtype="fp32"))


@pytest.mark.parametrize("name", ["megatron", "torchtitan", "deepspeed"])
def test_engines_without_an_option_say_so(name: str) -> None:
    plan = plan_for(name, 8)
    with_lora = replace(plan, strategy=Strategy(dp=8, techniques=("lora",)), engine=EngineChoice(name=name))
    assert any("lora" in line for line in target(name).render(with_lora).not_expressed)
