"""A training plan as a Megatron-LM command, and what that command cannot express.

The checks Megatron-LM makes at its start (`validate_args`) are kept here, so that what is written also starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnomon.engines.megatron import dispatch, formats, graphs, network
from gnomon.engines.megatron.engine import RECIPES, VERSIONS
from gnomon.engines.megatron.offload import activation_options, check_activations, environment, offload_unsaid
from gnomon.engines.megatron.options import COMMIT, DATE, Value, words
from gnomon.engines.megatron.style import MOMENTS_BF16
from gnomon.engines.training.expressed import CHECKPOINTS, Saving, StateOffload
from gnomon.engines.training.job import check_experts, check_job
from gnomon.engines.training.launch import (
    LEAST_RATE,
    RATE,
    common_not_expressed,
    headline,
    script,
    sequences_not_expressed,
    steps_of,
    torchrun,
)
from gnomon.engines.training.stages import Stages
from gnomon.engines.training.wide import exported, is_wide
from gnomon.errors import InputError, unknown_name
from gnomon.spec import Plan
from gnomon.spec.recompute import EVERY, FULL, NONE, OP, SELECTIVE, UNIFORM, parse
from gnomon.spec.training import TWO_LEVELS, WRAPPED
from gnomon.spec.training_job import TrainingJob

NAME = "megatron"
_DTYPES = {"bf16": "--bf16", "fp16": "--fp16", "fp32": "", "tf32": "", **{one.name: "--bf16" for one in RECIPES}}
_CP_COMMS = {"p2p": "p2p", "a2a": "a2a", "allgather": "all_gather", TWO_LEVELS: TWO_LEVELS}
EXPRESSED_SETTINGS = (
    "dp_shard", "tp_overlap", "cp_a2a", "fp8_param_gather", "bf16_layers", "imbalance", "cuda_graphs",
    *dispatch.SETTINGS,
)  # fmt: skip
"""Settings that most plans leave alone, and its options say."""
_FSDP = {2: "optim_grads", 3: "optim_grads_params"}
_OPTIMIZERS = dict.fromkeys(("adamw", "adamw-bf16", MOMENTS_BF16), "adam") | {x: x for x in ("sgd", "lion", "muon")}
"""Megatron-LM's name of each optimizer it has."""
_NOTE = "In a folder of Megatron-LM, or with MEGATRON_PATH naming one. Further options may follow."
_CONVERSATIONS = (
    ' --data-path "${DATA_PATH:?not set, it names a JSONL file of conversations}"'
    ' --tokenizer-model "${TOKENIZER_MODEL:?not set, it names a tokenizer}"'
)
RUNS = ("1f1b", "interleaved")
"""Its schedules of pipelines."""
SAVED = "checkpoints"
"""The folder that states are saved to, beside where run.sh is started."""


def command(job: TrainingJob) -> list[str]:
    """The command that starts the job on one node, or on each of several except for their rendezvous."""
    lines = words(options(job))
    return [*torchrun(job), "pretrain_gpt.py", *(word for line in lines for word in line)]


def run_script(job: TrainingJob, plan: Plan, notes: Sequence[str] = ()) -> str:
    """`run.sh`, which every node starts."""
    return script(
        job,
        headline(plan, f"Megatron-LM {COMMIT} of {DATE}"),
        setup=_environment(job),
        program='"${MEGATRON_PATH:-.}/pretrain_gpt.py"' + (_CONVERSATIONS if _tuned(job) else ""),
        arguments=words(options(job)),
        notes=(*notes, _NOTE),
    )


def options(job: TrainingJob) -> dict[str, Value]:
    """Every option and its value, in the order they are written."""
    check_job(job)
    _check_text(job)
    _check(job)
    values = network.options(job) | _parallel(job) | _batch(job) | _recompute(job)
    values |= _sharding(job) | _precision(job) | _optimizer(job) | _offload(job) | graphs.options(job)
    values |= activation_options(job)
    return values | _saving(job) | _data(job)


def check(job: TrainingJob) -> None:
    """Raise InputError where Megatron-LM would not train the job as it was priced."""
    check_job(job)
    _check_text(job)
    if job.recipe.optimizer == "muon" and _fsdp(job):
        message = f"Megatron-LM has no Muon under Megatron-FSDP, which zero {job.recipe.zero} asks for"
        raise InputError(message, where="engine.settings.zero", hint="Use 1.")
    if job.recipe.optimizer == MOMENTS_BF16 and not _shards_states(job):
        message = "Megatron-LM has moments in bf16 under the distributed optimizer alone"
        raise InputError(message, where="engine.settings.zero", hint="Use 1.")
    if _in_working_format(job):
        raise InputError(
            f"Megatron-LM keeps a master copy of the weights in fp32 beside those in {job.dtype}, and needs more "
            "memory than adamw-bf16 was priced with",
            where="engine.settings.optimizer",
            hint="Use adamw, or export it to torchrun.",
        )


def not_expressed(job: TrainingJob, plan: Plan) -> list[str]:
    """What of a job's plan Megatron-LM's options cannot express."""
    check_job(job)
    saving = Saving.of(job)
    kept = "" if saving else ", checkpoints"
    saved = "" if saving else ", and saves nothing"
    own = f"data, tokenizer{kept} and a learning rate of your own"
    missing = [f"{own}: run.sh trains on mock data, with a learning rate of {RATE:g} decaying to {LEAST_RATE:g}{saved}"]
    missing += network.not_expressed(job) + dispatch.not_expressed(job)
    if saving.beside and _fsdp(job):
        missing.append("asynchronous checkpoints: Megatron-FSDP saves them while training waits")
    if plan.engine.name == NAME and plan.engine.version not in ("", VERSIONS[-1]):
        missing.append(f"Megatron-LM {plan.engine.version}: run.sh is for {COMMIT} of {DATE}")
    if job.recipe.schedule not in RUNS and plan.strategy.pp > 1:
        missing.append(f"the {job.recipe.schedule} schedule: Megatron-LM runs {RUNS[0]}")
    if job.recipe.recompute == "selective" and plan.engine.name != NAME:
        missing.append(f"selective recomputation as in {plan.engine.name}: Megatron-LM recomputes the attention core")
    if _in_working_format(job):
        kept = "a master copy of the weights in fp32"
        kept += "" if _shards_states(job) else ", moments and gradients too: they need zero 1 or more"
        missing.append(f"optimizer states in {plan.dtype} alone: Megatron-LM keeps {kept}")
    return [*missing, *_sequences(job), *common_not_expressed(job, plan, NAME, EXPRESSED_SETTINGS), *_unsaid(job)]


def _check_text(job: TrainingJob) -> None:
    """Raise for a network that its programs for language models do not make."""
    model = job.model
    if model.beside or not model.vocab:
        kind = "vision-language model" if model.kind == "multimodal" else f"{model.kind} network"
        message = f"pretrain_gpt.py trains decoders of text, and {model.name} is a {kind}"
        hint = "Write its recipe for Megatron-Bridge from the plan, whose degrees are Megatron's."
        raise InputError(message, where="model", hint=hint)


def _sequences(job: TrainingJob) -> list[str]:
    """What of packing the options do not say."""
    sequences = job.load.sequences
    if sequences is None:
        return []
    if sequences.packing == WRAPPED:
        own = " with document masking" if sequences.document_masking else ""
        said = f"documents of those lengths, one after the other{own}: mock data have their own"
    else:
        said = f"{sequences.packing} packing: a line of the data at DATA_PATH is one sequence, packed before"
    return sequences_not_expressed(job, said)


def _unsaid(job: TrainingJob) -> Iterator[str]:
    """Parameters of techniques that no option says, and what is done in their place."""
    saving = Saving.of(job)
    yield from offload_unsaid(job)
    if saving and not saving.known:
        yield (
            f"mode={saving.mode} of {CHECKPOINTS}: Megatron-LM copies states to the host before the next step, "
            "and overlaps only the writes with it"
        )


def _check(job: TrainingJob) -> None:
    if job.dtype not in _DTYPES:
        raise unknown_name("training format", job.dtype, _DTYPES, where="dtype")
    if job.recipe.optimizer not in _OPTIMIZERS:
        hint = f"It has {', '.join(_OPTIMIZERS)}."
        message = f"Megatron-LM has no optimizer {job.recipe.optimizer}"
        raise InputError(message, where="engine.settings.optimizer", hint=hint)
    choice = parse(job.recipe.recompute)
    if choice.layers == EVERY or choice.way == OP:
        message = f"Megatron-LM does not recompute by {choice.text}"
        raise InputError(message, where="engine.settings.recompute", hint="Use full, full:block=N or modules=mlp.")
    strategy = job.strategy
    check_experts(job.model, strategy, job.recipe)
    _check_offload(job)
    check_activations(job)
    if job.model.is_moe and _DTYPES[job.dtype] != "--bf16":
        message = f"Megatron-LM trains experts in bf16, fp8 or fp4, not in {job.dtype}"
        raise InputError(message, where="dtype", hint="Use bf16.")
    if job.model.is_moe and strategy.tp > 1 and not job.recipe.sequence_parallel:
        message = "false, but Megatron-LM needs it for experts with tensor parallelism"
        raise InputError(message, where="engine.settings, field sequence_parallel", hint="Set it to true.")


def _check_offload(job: TrainingJob) -> None:
    """Its offload is of the distributed optimizer (`--use-precision-aware-optimizer` asks for it)."""
    if not StateOffload.of(job) or (_shards_states(job) and not _fsdp(job)):
        return
    what = "shards its states (ZeRO 1)" if not _fsdp(job) else "is not Megatron-FSDP (ZeRO 2 and 3)"
    message = f"Megatron-LM offloads the states of an optimizer that {what}, and zero is {job.recipe.zero}"
    raise InputError(message, where="engine.settings.zero", hint="Use 1.")


def _environment(job: TrainingJob) -> list[str]:
    """One queue per device keeps tensor-parallel messages in order before Blackwell; sharded weights need several."""
    wide = [*exported(job.dtype, job.pool.chip), *environment(job)]
    if _fsdp(job):
        return ["unset CUDA_DEVICE_MAX_CONNECTIONS", *wide]
    if dispatch.overlaps(job):  # passes of two micro-batches have queues of their own
        return ["export CUDA_DEVICE_MAX_CONNECTIONS=32", *wide]
    alone = job.strategy.tp == 1 and job.strategy.cp == 1
    return wide if alone else ["export CUDA_DEVICE_MAX_CONNECTIONS=1", *wide]


def _parallel(job: TrainingJob) -> dict[str, Value]:
    strategy, layout = job.strategy, _layout(job)
    return {
        "--tensor-model-parallel-size": strategy.tp,
        "--sequence-parallel": strategy.tp > 1 and job.recipe.sequence_parallel,
        "--tp-comm-overlap": strategy.tp > 1 and job.recipe.tp_overlap,
        "--pipeline-model-parallel-size": strategy.pp,
        "--num-virtual-stages-per-pipeline-rank": strategy.vp if strategy.vp > 1 and not layout else False,
        "--pipeline-model-parallel-layout": layout or False,  # which includes the chunks of a rank
        "--context-parallel-size": strategy.cp if strategy.cp > 1 else False,
        "--cp-comm-type": _CP_COMMS[job.recipe.cp_comm] if strategy.cp > 1 else False,
        "--hierarchical-context-parallel-sizes": _levels(job),
        "--expert-model-parallel-size": strategy.ep if strategy.ep > 1 else False,
        "--expert-tensor-parallel-size": job.recipe.expert_tp if job.model.is_moe and job.recipe.expert_tp else False,
    }


def _levels(job: TrainingJob) -> Value:
    """Ranks that trade tokens for heads, and the ring of such groups."""
    inner, cp = job.recipe.cp_a2a, job.strategy.cp
    return (inner, cp // inner) if inner and cp > 1 and job.recipe.cp_comm == TWO_LEVELS else False


def _layout(job: TrainingJob) -> str:
    """Parts of a pipeline where they are not equal: E the embedding, t a layer, L the loss."""
    strategy = job.strategy
    sizes = Stages(job.model, job.recipe.stage_layers).sizes(strategy.pp * strategy.vp).tolist()
    if len(set(sizes)) == 1:
        return ""
    return "E" + "|".join("t" * size for size in sizes) + "L"


def _batch(job: TrainingJob) -> dict[str, Value]:
    return {
        "--micro-batch-size": job.recipe.micro_batch,
        "--global-batch-size": job.load.global_batch,
        "--seq-length": job.load.seq,
        "--train-iters": steps_of(job),
    }


def _recompute(job: TrainingJob) -> dict[str, Value]:
    choice = parse(job.recipe.recompute)
    if choice.each == FULL:
        return {
            "--recompute-granularity": FULL,
            "--recompute-method": choice.layers or UNIFORM,
            "--recompute-num-layers": choice.count or 1,
        }
    if choice.like == NONE:
        return {}
    return {"--recompute-granularity": SELECTIVE, "--recompute-modules": choice.modules or "core_attn"}


def _copies(job: TrainingJob) -> int:
    """Ranks that hold the same weights, among which states can be sharded: of experts there may be more than of the
    rest, where tensor-parallel ranks hold them uncut."""
    strategy = job.strategy
    alike = strategy.dp * strategy.cp
    cut = job.recipe.expert_tp or strategy.tp
    return max(alike, alike * strategy.tp // cut // strategy.ep) if job.model.is_moe else alike


def _replicas(job: TrainingJob) -> int:
    """Groups of data-parallel ranks, each of which shares states out."""
    shards = job.recipe.dp_shard if job.recipe.zero else 0
    return job.strategy.dp // shards if shards else 1


def _fsdp(job: TrainingJob) -> bool:
    return job.recipe.zero >= 2 and _copies(job) > 1


def _shards_states(job: TrainingJob) -> bool:
    """The distributed optimizer; with one copy of the weights it is the plain one and takes its formats."""
    return job.recipe.zero >= 1 or _copies(job) == 1


def _in_working_format(job: TrainingJob) -> bool:
    return job.recipe.optimizer == "adamw-bf16" and not is_wide(job.dtype)


def _sharding(job: TrainingJob) -> dict[str, Value]:
    """How gradients and weights travel. Reductions overlap with the backward pass where the plan's engine does so."""
    overlap = _copies(job) > 1 and (job.engine.partition("@")[0] == NAME or _fsdp(job))
    own_shards = job.recipe.optimizer == "muon" and not _fsdp(job)  # dist_muon shards its states itself
    narrow = _in_working_format(job) or job.recipe.optimizer == MOMENTS_BF16
    shards = _shards_states(job) and (_copies(job) > 1 or narrow or job.recipe.fp8_param_gather)
    values: dict[str, Value] = {
        "--use-distributed-optimizer": shards and not own_shards,
        "--overlap-grad-reduce": overlap,
        "--overlap-param-gather": _fsdp(job),
        "--num-distributed-optimizer-instances": _replicas(job) if _replicas(job) > 1 else False,
    }
    if _fsdp(job):
        gradients = job.dtype if _in_working_format(job) else "fp32"
        values |= {
            "--use-megatron-fsdp": True,
            "--data-parallel-sharding-strategy": _FSDP[job.recipe.zero],
            "--outer-dp-sharding-strategy": "no_shard" if _replicas(job) > 1 else False,
            "--ckpt-format": "fsdp_dtensor",
            "--no-gradient-accumulation-fusion": True,
            "--megatron-fsdp-main-grads-dtype": gradients,
            "--megatron-fsdp-grad-comm-dtype": gradients,
        }
    return values


def _precision(job: TrainingJob) -> dict[str, Value]:
    dtype = job.dtype
    values: dict[str, Value] = {_DTYPES[dtype]: True} if _DTYPES[dtype] else {}
    values |= formats.flags(dtype)
    values |= formats.gathered(dtype) if job.recipe.fp8_param_gather else {}
    values |= formats.wide(job.recipe.wide_layers)
    dtype = "bf16" if formats.flags(dtype) else dtype
    lower = _in_working_format(job) and _shards_states(job)
    narrow = job.recipe.optimizer == MOMENTS_BF16 and _shards_states(job)
    moments = dtype if lower else "bf16" if narrow else False
    return values | {
        "--accumulate-allreduce-grads-in-fp32": not is_wide(dtype) and not lower,
        "--use-precision-aware-optimizer": bool(moments),
        "--main-grads-dtype": "bf16" if lower and dtype == "bf16" else False,  # Megatron-LM has no fp16 there
        "--exp-avg-dtype": moments,
        "--exp-avg-sq-dtype": moments,
        "--transformer-impl": "transformer_engine",
        "--attention-backend": "auto",  # a kernel that stores no scores, whichever the chip has
    }


def _offload(job: TrainingJob) -> dict[str, Value]:
    """States on the host; gradients, updates and weights pass each other there (`cpu_offloading`)."""
    offload = StateOffload.of(job)
    if not offload:
        return {}
    return {
        "--use-distributed-optimizer": True,
        "--use-precision-aware-optimizer": True,
        "--optimizer-cpu-offload": True,
        "--optimizer-offload-fraction": offload.share,
        "--overlap-cpu-optimizer-d2h-h2d": True,
    }


def _saving(job: TrainingJob) -> dict[str, Value]:
    """Sharded states of Megatron-FSDP are only written while training waits."""
    saving = Saving.of(job)
    if not saving:
        return {}
    values: dict[str, Value] = {"--save": SAVED, "--save-interval": saving.every}
    return values | {"--async-save": saving.beside and not _fsdp(job)}


def _named(job: TrainingJob) -> str:
    """Megatron-LM's name of the optimizer."""
    name = _OPTIMIZERS[job.recipe.optimizer]
    return "dist_muon" if name == "muon" and job.recipe.zero >= 1 else name


def _optimizer(job: TrainingJob) -> dict[str, Value]:
    """What a plan does not set and time does not depend on, as large models are commonly trained."""
    return {
        "--optimizer": _named(job),
        "--adam-beta1": 0.9,
        "--adam-beta2": 0.95,
        "--adam-eps": 1e-8,
        "--weight-decay": 0.1,
        "--clip-grad": 1.0,
        "--lr": RATE,
        "--min-lr": LEAST_RATE,
        "--lr-decay-style": "cosine",
        "--lr-warmup-fraction": 0.01,
    }


def _tuned(job: TrainingJob) -> bool:
    """Whether sequences are conversations of a file, padded or packed."""
    return job.load.sequences is not None and job.load.sequences.packing != WRAPPED


def _data(job: TrainingJob) -> dict[str, Value]:
    """Mock data, so that it starts without files, but where each sequence has documents of its own; no evaluation,
    which plans do not price."""
    sequences, tuned = job.load.sequences, _tuned(job)
    masked = sequences is not None and bool(sequences.document_masking) and not tuned
    return {
        "--mock-data": not tuned,
        "--sft": tuned,
        "--dataloader-inter-document-masking": masked,
        "--tokenizer-type": "SFTTokenizer" if tuned else "NullTokenizer",
        "--eval-iters": 0,
        "--eval-interval": 1000,
        "--log-interval": 1,
        "--log-throughput": True,
    }
