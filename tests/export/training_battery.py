"""Random training plans of every target, and what an import has to give back of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import gnomon
from gnomon.engines import training_targets
from gnomon.engines.training.job import idle_settings
from gnomon.errors import GnomonError
from gnomon.export import target
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.chips import chip as find_chip
from gnomon.load.recipe import recipe_of
from gnomon.load.training import job_of
from gnomon.spec import EngineChoice, Plan, Recipe, Strategy, TrainingLoad
from gnomon.spec.imported import ImportedPlan
from gnomon.spec.loads.lengths.uniform import Uniform
from gnomon.spec.loads.sequences import Sequences
from gnomon.spec.training import CP_COMMS, GROUP_BY_LENGTH, PACKINGS, RANDOM, SELDOM, TWO_LEVELS
from gnomon.techniques import TRAINING, applied

MODELS = {
    "megatron": (
        "llama-3.1-8b", "llama-3.1-70b", "qwen3-8b", "qwen3-30b-a3b", "mixtral-8x7b", "mistral-7b", "llama-2-13b",
        "deepseek-v2-lite", "llama-3.1-405b", "gpt3-175b",
    ),
    "torchrun": (
        "llama-3.1-8b", "llama-3.1-70b", "llama-3.2-1b", "llama-3.2-3b", "qwen3-8b", "qwen2.5-7b", "mistral-7b",
        "llama-2-13b", "llama-3.1-405b", "gpt3-175b",
    ),
    "torchtitan": (
        "llama-3.1-8b", "llama-3.1-70b", "llama-3.2-1b", "llama-3.2-3b", "qwen3-8b", "qwen3-30b-a3b", "mistral-7b",
        "llama-2-13b", "llama-3.1-405b", "qwen3-32b",
    ),
    "deepspeed": (
        "llama-3.1-8b", "llama-3.1-70b", "llama-3.2-1b", "llama-3.2-3b", "qwen3-8b", "qwen2.5-7b", "mistral-7b",
        "llama-2-13b", "llama-3.1-405b", "gpt3-175b",
    ),
    "transformers": (
        "llama-3.1-8b", "llama-3.1-70b", "llama-3.2-1b", "llama-3.2-3b", "qwen3-8b", "qwen3-30b-a3b", "mistral-7b",
        "llama-2-13b", "qwen2.5-7b", "qwen3-32b",
    ),
}  # fmt: skip
CHIPS = ("H100", "H200", "A100-SXM-80GB", "B200", "MI300X", "GB200")
RECIPES = ("fp8", "fp8-current", "fp8-blocks", "fp8-rows", "fp8-rows-hp", "mxfp8", "nvfp4")
TECHNIQUES = (
    (), (), (), ("offload-optimizer:share=1",), ("offload-optimizer:share=0.5",),
    ("async-checkpointing:every=20,mode=synchronous",), ("async-checkpointing:every=50,mode=asynchronous",),
    ("offload-optimizer", "offload-parameters"), ("offload-parameters:tier=nvme",), ("offload-optimizer:tier=nvme",),
    ("offload-activations",), ("offload-activations:layers=8",), ("offload-activations:copies=blocking",),
    ("offload-activations:modules=core_attn+attn_proj", "offload-optimizer"),
    ("offload-activations:modules=moe_act,share=0.5,in_flight=4",), ("lora:rank=8",), ("lora:targets=qv,dropout=0.1",),
    ("qlora:rank=32",), ("qlora:double_quant=no,targets=attention",), ("dora:rank=8",), ("lora", "offload-activations"),
)  # fmt: skip
SAID = (
    "the technique", "cp_comm", "asynchronous checkpoints", "the gpipe", "selective recomputation",
    "optimizer states in", "a scale per tensor", "tier=", "copies=", "some layers alone", "sequences of", *SELDOM,
)  # fmt: skip
"""How lines begin of what a target writes otherwise than the plan has it: such a plan cannot come back."""


def plans_of(name: str, model: str, seed: int, count: int) -> list[Plan]:
    """So many plans of a model that a target says all of."""
    random, found = Random(f"{name}{model}{seed}"), []
    for _ in range(1500 * count):
        plan = drawn(random, model, training_targets()[name])
        if _expressed(plan, name):
            found.append(plan)
        if len(found) == count:
            return found
    raise AssertionError(f"only {len(found)} of {count} plans of {model} are written for {name}")


def _expressed(plan: Plan, name: str) -> bool:
    try:
        lines = target(name).render(plan).not_expressed
    except GnomonError:
        return False
    return not any(line.startswith(SAID) for line in lines)


def drawn(random: Random, model: str, engine: str) -> Plan:
    narrow = engine == "transformers"
    tp, pp = (1, 1) if narrow else (random.choice((1, 1, 2, 4, 8)), random.choice((1, 1, 2, 4, 5)))
    cp, ep = (1, 1) if narrow else (random.choice((1, 1, 1, 2, 4)), random.choice((1, 1, 2, 4)))
    dp, vp = random.choice((1, 2, 4, 8, 16, 32)), random.choice((1, 1, 2)) if pp > 1 else 1
    micro, zero = random.choice((1, 2, 4)), random.choice((0, 1, 2, 3)) if dp * cp > 1 else 0
    moe = load_model(model).is_moe
    comm = random.choice((*CP_COMMS, TWO_LEVELS)) if cp > 1 else random.choice(CP_COMMS)
    recipe = Recipe(
        micro_batch=micro,
        schedule="interleaved" if vp > 1 else random.choice(("1f1b", "1f1b", "gpipe")),
        recompute=random.choice(("none", "selective", "full")),
        zero=zero,
        fp8_param_gather=random.random() < 0.15,
        bf16_layers="1,2" if engine == "megatron" and random.random() < 0.15 else "",
        hpz=2 if zero == 3 and engine == "deepspeed" and dp % 2 == 0 and random.random() < 0.3 else 0,
        tp_overlap=tp > 1 and random.random() < 0.3,
        dp_shard=dp // 2 if zero and dp >= 4 and random.random() < 0.3 else 0,
        optimizer=random.choice(("adamw", "adamw", "adamw-bf16", "sgd", "lion", "muon", "adam8bit", "adafactor")),
        sequence_parallel=random.random() < 0.6,
        cp_comm=comm,
        dispatch=random.choice(("", "", "", "alltoall", "deepep")) if moe else "",
        capacity_factor=(capacity := random.choice((0.0, 0.0, 1.0, 1.5)) if moe else 0.0),
        pad_to_capacity=bool(capacity) and random.random() < 0.5,
        ep_overlap=moe and random.random() < 0.2,
        cuda_graphs=engine == "megatron" and random.random() < 0.15,
        cp_a2a=random.choice((1, cp // 2, cp)) if comm == TWO_LEVELS else 0,
        expert_tp=random.choice((0, 1)),
    )
    batch = micro * dp * pp * random.choice((1, 2, 4))
    seq = random.choice((1024, 2048, 4096))
    return Plan(
        id=random.choice(("", "plan-7")),
        model=model,
        chip=random.choice(CHIPS),
        replicas=1,
        strategy=Strategy(tp=tp, pp=pp, cp=cp, dp=dp, ep=ep, vp=vp, techniques=random.choice(TECHNIQUES)),
        dtype=random.choice(("bf16", "bf16", "bf16", "fp16", "fp32", "tf32", random.choice(RECIPES))),
        engine=EngineChoice(name=engine, settings=recipe.settings),
        load=TrainingLoad(
            seq=seq, global_batch=batch, tokens=random.choice((None, 1e9, 300e9)), sequences=_sequences(random, engine)
        ),
    )


def _sequences(random: Random, engine: str) -> Sequences | None:
    """Lengths that differ, under engines that are given them; others read their own data."""
    if engine not in ("torch", "transformers") or random.random() < 0.7:
        return None
    return Sequences(
        lengths=Uniform(low=16, high=random.choice((256, 900))),
        packing=random.choice(("", *PACKINGS)),
        sampling=random.choice((RANDOM, GROUP_BY_LENGTH)),
        seed=random.choice((0, 3)),
    )


def canonical(plan: Plan) -> dict[str, Any]:
    """What launch files say of a plan: settings that have no effect as they are by default, a run by its steps."""
    model, recipe = load_model(plan.model), recipe_of(plan.engine.settings)
    idle = idle_settings(plan.strategy, model, recipe.expert_tp)
    usual = Recipe()
    settings = {name: getattr(usual, name) if name in idle else value for name, value in recipe.settings.items()}
    if plan.dtype in ("fp32", "tf32") and settings["optimizer"] == "adamw-bf16":
        settings["optimizer"] = "adamw"  # states are in the working format, which is fp32
    if model.is_moe and plan.strategy.ep > 1:
        settings |= {"dispatch": _dispatch(plan, recipe)}
    if model.is_moe and settings["expert_tp"] == 0:
        settings["expert_tp"] = plan.strategy.tp
    assert isinstance(plan.load, TrainingLoad)
    load = job_of(plan).load  # with the engine's own packing where the plan names none
    return {
        "model": (model.name, model.parameters),
        "chip": find_chip(plan.chip).name,
        "per_node": plan.per_node,
        "engine": plan.engine.name,
        "strategy": replace(plan.strategy, techniques=()),
        "techniques": {one.name: dict(values) for text in plan.strategy.techniques
                       for one, values in applied(TRAINING, [text]).pairs},
        "dtype": plan.dtype,
        "settings": settings,
        "load": (plan.load.seq, plan.load.global_batch, load.steps),
        "sequences": dict(load.sequences.described) if load.sequences else {},
    }  # fmt: skip


def _dispatch(plan: Plan, recipe: Recipe) -> str:
    """How Megatron-LM is told to send tokens, where a plan leaves it to the engine."""
    wide = recipe.expert_tp or plan.strategy.tp
    inside = plan.strategy.ep * wide <= parse_pool(f"{plan.chip}:{plan.chips}").per_node
    return recipe.dispatch or ("alltoall" if inside else "deepep" if wide == 1 else "")


def imported(plan: Plan, name: str, folder: Path, file: str = "run.sh") -> ImportedPlan:
    """What an import makes of a plan's files."""
    folder.mkdir(parents=True, exist_ok=True)
    for written, text in target(name).render(plan).files.items():
        (folder / written).write_text(text)
    return gnomon.import_plan(folder / file)
