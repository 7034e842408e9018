"""A training plan as a Megatron-LM command, and what that command cannot say.

The checks Megatron-LM makes at its start (`validate_args`) are kept here, so that what is written also starts.
"""

from __future__ import annotations

import math

from gnomon.engines.megatron import network
from gnomon.engines.megatron.options import COMMIT, DATE, Value, words
from gnomon.engines.torch.launch import common_not_expressed, script, torchrun
from gnomon.engines.training.job import Job, check_experts, job_of
from gnomon.engines.training.stages import Stages
from gnomon.errors import InputError, unknown_name
from gnomon.load.plan import plan_to_yaml
from gnomon.spec import Plan

NAME = "megatron"
STEPS = 20
"""Where the plan names no number of tokens: enough to see the time of a step."""
_DTYPES = {"bf16": "--bf16", "fp16": "--fp16", "fp32": "", "fp8": "--bf16"}
_CP_COMMS = {"p2p": "p2p", "a2a": "a2a", "allgather": "all_gather"}
_FSDP = {2: "optim_grads", 3: "optim_grads_params"}
_NOTE = "In a folder of Megatron-LM, or with MEGATRON_PATH naming one. Further options may follow."


def command(plan: Plan) -> list[str]:
    """The words that start the plan on one node, or on each of several beside their rendezvous."""
    lines = words(options(job_of(plan)))
    return [*torchrun(plan), "pretrain_gpt.py", *(word for line in lines for word in line)]


def files(plan: Plan) -> dict[str, str]:
    """`run.sh`, which every node starts, and the plan itself."""
    job = job_of(plan)
    text = script(
        plan,
        f"Megatron-LM {COMMIT} of {DATE}",
        setup=_environment(job),
        program='"${MEGATRON_PATH:-.}/pretrain_gpt.py"',
        arguments=words(options(job)),
        note=_NOTE,
    )
    return {"run.sh": text, "plan.yaml": plan_to_yaml(plan)}


def options(job: Job) -> dict[str, Value]:
    """Every option and its value, in the order they are written."""
    _check(job)
    values = network.options(job) | _parallel(job) | _batch(job) | _recompute(job)
    return values | _sharding(job) | _precision(job) | _optimizer(job) | _data()


def not_expressed(plan: Plan) -> list[str]:
    """What the plan says and Megatron-LM's options cannot."""
    job = job_of(plan)
    said = ["data, tokenizer, learning rate and checkpoints: run.sh learns from made-up tokens and saves nothing"]
    said += network.not_expressed(job)
    if job.recipe.schedule == "gpipe" and plan.strategy.pp > 1:
        said.append("the gpipe schedule: Megatron-LM runs 1f1b")
    if job.recipe.recompute == "selective" and plan.engine.name != NAME:
        said.append(f"selective recomputing as {plan.engine.name} does it: Megatron-LM recomputes the attention core")
    if _in_working_format(job):
        kept = "a master copy of the weights in fp32"
        kept += "" if _shards_states(job) else ", moments and gradients too: they need zero 1 or more"
        said.append(f"optimizer states in {plan.dtype} alone: Megatron-LM keeps {kept}")
    if job.recipe.optimizer in ("adam8bit", "adafactor"):
        said.append(f"the optimizer {job.recipe.optimizer}: Megatron-LM has none such, and run.sh takes Adam")
    return said + common_not_expressed(plan, NAME)


def _check(job: Job) -> None:
    if job.plan.dtype not in _DTYPES:
        raise unknown_name("training format", job.plan.dtype, _DTYPES, where="dtype")
    strategy = job.plan.strategy
    check_experts(job.model, strategy, job.recipe)
    if job.model.is_moe and strategy.tp > 1 and not job.recipe.sequence_parallel:
        message = "false, but Megatron-LM trains experts in tensor parallel only with it"
        raise InputError(message, where="engine.settings, field sequence_parallel", hint="Set it to true.")


def _environment(job: Job) -> list[str]:
    """One queue a device keeps tensor-parallel messages in order before Blackwell; sharded weights need several."""
    if _fsdp(job):
        return ["unset CUDA_DEVICE_MAX_CONNECTIONS"]
    alone = job.plan.strategy.tp == 1 and job.plan.strategy.cp == 1
    return [] if alone else ["export CUDA_DEVICE_MAX_CONNECTIONS=1"]


def _parallel(job: Job) -> dict[str, Value]:
    strategy = job.plan.strategy
    return {
        "--tensor-model-parallel-size": strategy.tp,
        "--sequence-parallel": strategy.tp > 1 and job.recipe.sequence_parallel,
        "--pipeline-model-parallel-size": strategy.pp,
        "--num-virtual-stages-per-pipeline-rank": strategy.vp if strategy.vp > 1 else False,
        "--pipeline-model-parallel-layout": _layout(job) or False,
        "--context-parallel-size": strategy.cp if strategy.cp > 1 else False,
        "--cp-comm-type": _CP_COMMS[job.recipe.cp_comm] if strategy.cp > 1 else False,
        "--expert-model-parallel-size": strategy.ep if strategy.ep > 1 else False,
        "--expert-tensor-parallel-size": job.recipe.expert_tp if job.model.is_moe and job.recipe.expert_tp else False,
    }


def _layout(job: Job) -> str:
    """Parts of a pipeline where they are not equal: E the embedding, t a layer, L the loss."""
    strategy = job.plan.strategy
    sizes = Stages(job.model).sizes(strategy.pp * strategy.vp).tolist()
    if len(set(sizes)) == 1:
        return ""
    return "E" + "|".join("t" * size for size in sizes) + "L"


def _batch(job: Job) -> dict[str, Value]:
    return {
        "--micro-batch-size": job.recipe.micro_batch,
        "--global-batch-size": job.load.global_batch,
        "--seq-length": job.load.seq,
        "--train-iters": STEPS if job.load.steps is None else math.ceil(job.load.steps),
    }


def _recompute(job: Job) -> dict[str, Value]:
    if job.recipe.recompute == "full":
        return {
            "--recompute-granularity": "full",
            "--recompute-method": "uniform",
            "--recompute-num-layers": 1,
        }
    if job.recipe.recompute == "selective":
        return {"--recompute-granularity": "selective", "--recompute-modules": "core_attn"}
    return {}


def _copies(job: Job) -> int:
    """Ranks that hold the same weights, among which states can be shared out."""
    return job.plan.strategy.dp * job.plan.strategy.cp


def _fsdp(job: Job) -> bool:
    return job.recipe.zero >= 2 and _copies(job) > 1


def _shards_states(job: Job) -> bool:
    """The distributed optimizer; with one copy of the weights it is the plain one and takes its formats."""
    return job.recipe.zero >= 1 or _copies(job) == 1


def _in_working_format(job: Job) -> bool:
    return job.recipe.optimizer == "adamw-bf16" and job.plan.dtype != "fp32"


def _sharding(job: Job) -> dict[str, Value]:
    """How gradients and weights travel. Reductions overlap with the backward pass where the plan's engine does so."""
    overlap = _copies(job) > 1 and (job.plan.engine.name == NAME or _fsdp(job))
    values: dict[str, Value] = {
        "--use-distributed-optimizer": _shards_states(job) and (_copies(job) > 1 or _in_working_format(job)),
        "--overlap-grad-reduce": overlap,
        "--overlap-param-gather": _fsdp(job),
    }
    if _fsdp(job):
        gradients = job.plan.dtype if _in_working_format(job) else "fp32"
        values |= {
            "--use-megatron-fsdp": True,
            "--data-parallel-sharding-strategy": _FSDP[job.recipe.zero],
            "--ckpt-format": "fsdp_dtensor",
            "--no-gradient-accumulation-fusion": True,
            "--megatron-fsdp-main-grads-dtype": gradients,
            "--megatron-fsdp-grad-comm-dtype": gradients,
        }
    return values


def _precision(job: Job) -> dict[str, Value]:
    dtype = job.plan.dtype
    values: dict[str, Value] = {_DTYPES[dtype]: True} if _DTYPES[dtype] else {}
    narrow = dtype == "fp8"
    values |= {"--fp8-format": "hybrid", "--fp8-recipe": "delayed"} if narrow else {}
    dtype = "bf16" if narrow else dtype
    lower = _in_working_format(job) and _shards_states(job)
    return values | {
        "--accumulate-allreduce-grads-in-fp32": dtype != "fp32" and not lower,
        "--use-precision-aware-optimizer": lower,
        "--main-grads-dtype": "bf16" if lower and dtype == "bf16" else False,  # Megatron-LM has no fp16 there
        "--exp-avg-dtype": dtype if lower else False,
        "--exp-avg-sq-dtype": dtype if lower else False,
        "--transformer-impl": "transformer_engine",
        "--attention-backend": "auto",  # a kernel that stores no scores, whichever the chip has
    }


def _named(job: Job) -> str:
    """Megatron-LM's name of the optimizer; Adam where it has none for it."""
    if job.recipe.optimizer == "muon":
        return "dist_muon" if job.recipe.zero >= 1 else "muon"
    return job.recipe.optimizer if job.recipe.optimizer in ("sgd", "lion") else "adam"


def _optimizer(job: Job) -> dict[str, Value]:
    """What a plan does not say and time does not depend on, as large models are commonly trained."""
    return {
        "--optimizer": _named(job),
        "--adam-beta1": 0.9,
        "--adam-beta2": 0.95,
        "--adam-eps": 1e-8,
        "--weight-decay": 0.1,
        "--clip-grad": 1.0,
        "--lr": 1e-4,
        "--min-lr": 1e-5,
        "--lr-decay-style": "cosine",
        "--lr-warmup-fraction": 0.01,
    }


def _data() -> dict[str, Value]:
    """Made-up tokens, so that it starts without files; no evaluation, whose time no plan has."""
    return {
        "--mock-data": True,
        "--tokenizer-type": "NullTokenizer",
        "--eval-iters": 0,
        "--eval-interval": 1000,
        "--log-interval": 1,
        "--log-throughput": True,
    }
