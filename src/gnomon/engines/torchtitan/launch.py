"""A training plan as a TorchTitan recipe with its launch script, and what they cannot express."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.engines.shell import comment
from gnomon.engines.torchtitan.engine import VERSIONS
from gnomon.engines.torchtitan.formats import FORMATS, FP8, converter, converter_class
from gnomon.engines.torchtitan.network import LLAMA, check_network, flavor_of, shape_lines
from gnomon.engines.torchtitan.network import not_expressed as network_not_expressed
from gnomon.engines.torchtitan.options import (
    CHECKPOINTED,
    FUNCTION,
    RECIPE,
    RESHARDED,
    SCHEDULES,
    TRAIN,
    VERSION,
)
from gnomon.engines.training.expressed import (
    CHECKPOINTS,
    HOST,
    OFFLOAD,
    PARAMETERS,
    ParameterOffload,
    Saving,
    StateOffload,
)
from gnomon.engines.training.job import check_experts, check_job
from gnomon.engines.training.launch import (
    BESIDE,
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
from gnomon.errors import InputError
from gnomon.spec import Plan
from gnomon.spec.recompute import parse
from gnomon.spec.training_job import TrainingJob

NAME = "torchtitan"
_DTYPES = ("bf16", "fp32", "tf32", *FORMATS)
_NOTE = f"TorchTitan {VERSION}, with the tokenizer of the model under assets/hf. Further options may follow."
EXPRESSED_SETTINGS = ("dp_shard", "tp_overlap", "bf16_layers")
"""Settings that most plans leave alone, and a recipe has."""
WARMUP = 0.01
"""Share of the steps over which the learning rate grows."""


def command(job: TrainingJob) -> list[str]:
    """What run.sh starts on one node, in the folder of the recipe."""
    check(job)
    return [*torchrun(job), "-m", TRAIN, *_words()]


def _words() -> list[str]:
    return ["--module", RECIPE.removesuffix(".py"), "--config", FUNCTION]


def run_script(job: TrainingJob, plan: Plan, notes: Sequence[str] = ()) -> str:
    """`run.sh`, which every node starts beside the recipe."""
    check(job)
    words = _words()
    return script(
        job,
        headline(plan, f"TorchTitan {VERSION}"),
        setup=[BESIDE, *exported(job.dtype, job.pool.chip)],
        program=f"-m {TRAIN}",
        arguments=[words[:2], words[2:]],
        notes=(*notes, _NOTE),
    )


def check(job: TrainingJob) -> None:
    """Raise InputError where TorchTitan would not train the job."""
    check_job(job)
    check_network(job.model)
    check_experts(job.model, job.strategy, job.recipe)
    strategy, recipe = job.strategy, job.recipe
    if job.dtype not in _DTYPES:
        hint = f"Use {', '.join(_DTYPES)}."
        raise InputError(f"TorchTitan does not train in {job.dtype}", where="dtype", hint=hint)
    if recipe.optimizer not in ("adamw", "adamw-bf16"):
        message = f"the recipe has AdamW, not {recipe.optimizer}"
        raise InputError(message, where="engine.settings.optimizer", hint="Use adamw or adamw-bf16.")
    if recipe.zero == 1 and strategy.dp * strategy.cp > 1:
        message = "TorchTitan shards weights and gradients where it shards optimizer states"
        raise InputError(message, where="engine.settings.zero", hint="Use 0, 2 or 3.")
    if recipe.zero == 0 and strategy.cp > 1:
        message = "TorchTitan shards weights over the ranks of context parallelism"
        raise InputError(message, where="engine.settings.zero", hint="Use 2 or 3, or a cp of 1.")
    choice = parse(recipe.recompute)
    if choice.layers or choice.modules:
        message = f"TorchTitan {VERSION} recomputes by operator or in full, not by {choice.text}"
        raise InputError(message, where="engine.settings.recompute", hint="Use none, selective or full.")
    if strategy.pp > 1 and recipe.schedule not in SCHEDULES:
        hint = f"Use {', '.join(SCHEDULES)}."
        message = f"the recipe has no schedule {recipe.schedule}"
        raise InputError(message, where="engine.settings.schedule", hint=hint)
    if strategy.pp > 1 and job.model.tied_embeddings:
        message = f"{job.model.name} ties embedding and head, which TorchTitan cannot split over pipeline ranks"
        raise InputError(message, where="strategy.pp", hint="Use 1.")
    if _offloads(job) and (recipe.zero < 2 or strategy.dp * strategy.cp == 1):
        message = "TorchTitan offloads what FSDP shards over data-parallel ranks"
        raise InputError(message, where="engine.settings.zero", hint="Use 2 or 3, and a dp of 2 or more.")
    if job.model.is_moe and strategy.tp > 1 and recipe.expert_tp != 1:
        message = "TorchTitan does not cut experts over tensor-parallel ranks"
        raise InputError(message, where="engine.settings.expert_tp", hint="Use 1.")


def not_expressed(job: TrainingJob, plan: Plan) -> list[str]:
    """What of a job's plan a recipe cannot express."""
    saving = Saving.of(job)
    saved = "" if saving else " and saves nothing"
    own = "data, tokenizer and a learning rate of your own"
    missing = [f"{own}: the recipe reads TorchTitan's c4_test with a learning rate of {RATE:g}{saved}"]
    missing += network_not_expressed(job)
    recipe, strategy = job.recipe, job.strategy
    if plan.engine.name == NAME and plan.engine.version not in ("", VERSIONS[-1]):
        missing.append(f"TorchTitan as of {plan.engine.version}: the recipe is for {VERSION}")
    if strategy.cp > 1 and recipe.cp_comm != "allgather":
        missing.append(f"cp_comm {recipe.cp_comm}: TorchTitan {VERSION} gathers all keys (allgather)")
    if recipe.recompute == "selective" and plan.engine.name != NAME:
        missing.append(f"selective recomputation as in {plan.engine.name}: TorchTitan recomputes by operator")
    if job.dtype == FP8:
        missing.append(f"a scale per tensor in fp8: TorchTitan {VERSION} has one per row")
    if job.model.is_moe and converter(job):
        missing.append(f"experts in {job.dtype}: the recipe's converter makes linear layers so, and no grouped ones")
    if saving and not saving.known:
        missing.append(f"mode={saving.mode} of {CHECKPOINTS}: TorchTitan copies states before it writes them")
    missing += [*_offload_unsaid(job), *_sequences(job)]
    return missing + common_not_expressed(job, plan, NAME, EXPRESSED_SETTINGS)


def _offloads(job: TrainingJob) -> bool:
    """Whether `enable_cpu_offload` says what a job offloads: weights, gradients and states, in the host's memory."""
    states, weights = StateOffload.of(job), ParameterOffload.of(job)
    return bool(states and weights) and states.share == 1 and {states.tier, weights.tier} == {HOST}


def _offload_unsaid(job: TrainingJob) -> list[str]:
    states, weights = StateOffload.of(job), ParameterOffload.of(job)
    if not _offloads(job):
        named = ((OFFLOAD, states), (PARAMETERS, weights))
        own = "TorchTitan offloads all of weights, gradients and states to the host's memory, or nothing"
        return [f"the technique {name}: {own}" for name, offload in named if offload]
    found = weights.unsaid("TorchTitan")
    if states.stride:
        found.append(f"stride={states.stride} of {OFFLOAD}: TorchTitan updates what it offloads on the host alone")
    return found


def _sequences(job: TrainingJob) -> list[str]:
    """Its data loader puts documents one after the other, and its attention keeps them apart."""
    sequences = job.load.sequences
    if sequences is None:
        return []
    said = f"{sequences.packing} packing" + (" with document masking" if sequences.document_masking else "")
    own = f"wrapped packing with document masking: all that TorchTitan {VERSION} has"
    wanted = f"{said}: the recipe has {own}" if said not in own else ""
    found = sequences_not_expressed(job, wanted or said)
    return found if wanted else [one for one in found if one != said]


def recipe_text(job: TrainingJob, plan: Plan, notes: Sequence[str]) -> str:
    """`recipe.py`: the configuration as a function, which `--module recipe --config plan` names."""
    check(job)
    flavor = flavor_of(job.model)
    lines = [comment(headline(plan, f"TorchTitan {VERSION}")), *map(comment, notes)]
    lines += ["# It is read back by `gnomon import run.sh`, as data: keep values literal.", *_imports(job), "", ""]
    if flavor is None:
        lines += [*shape_lines(job), "", ""]
    lines += [f"def {FUNCTION}() -> Trainer.Config:", *_spec(job, flavor), "    return Trainer.Config("]
    lines += [f"        {name}={value}," for name, value in _fields(job).items()]
    return "\n".join([*lines, "    )"]) + "\n"


def _imports(job: TrainingJob) -> list[str]:
    flavor = flavor_of(job.model)
    module = flavor[0] if flavor else LLAMA
    lines = ["from dataclasses import replace", ""] if flavor is None else []
    lines += [
        "from torchtitan.components.checkpoint import CheckpointManager",
        "from torchtitan.components.loss import CrossEntropyLoss",
        "from torchtitan.components.metrics import MetricsProcessor",
        "from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw",
    ]
    if named := converter_class(job):
        lines += [f"from torchtitan.components.quantization import {named}"]
    lines += [
        "from torchtitan.components.validate import Validator",
        "from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig",
        "from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC",
        "from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader",
    ]
    if flavor is None:
        lines += ["from torchtitan.models import llama3"]
        lines += ["from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm"]
    return [
        *lines,
        f"from torchtitan.models.{module} import model_registry",
        "from torchtitan.trainer import Trainer",
    ]


def _spec(job: TrainingJob, flavor: tuple[str, str] | None) -> list[str]:
    made = converter(job)
    if flavor is not None:
        given = f", converters=[{made}]" if made else ""
        backend = ', moe_comm_backend="standard"' if job.model.is_moe else ""
        return [f'    model_spec = model_registry("{flavor[1]}"{backend}{given})']
    lines = ["    model = network()"]
    if made:
        lines += [f"    model = {made}.build().convert(model)"]
    return [*lines, '    model_spec = replace(model_registry("8B"), flavor="own", model=model)']


def _fields(job: TrainingJob) -> dict[str, str]:
    """Fields of the configuration, as Python writes them."""
    name = (job.model.hub_id or job.model.name).rpartition("/")[2]
    steps = steps_of(job)
    warm, least = max(1, round(WARMUP * steps)), LEAST_RATE / RATE
    saving = Saving.of(job)
    saved = f"enable=True, interval={saving.every}" if saving else "enable=False"
    if saving:
        saved += f', async_mode="{"async" if saving.beside else "disabled"}"'
    return {
        "model_spec": "model_spec",
        "hf_assets_path": repr(f"./assets/hf/{name}"),
        "loss": f"CrossEntropyLoss.Config(global_vocab_size={job.model.vocab})",
        "optimizer": f"default_adamw(lr={RATE!r})",
        "lr_scheduler": f'LRSchedulersContainer.Config(warmup_steps={warm}, decay_type="cosine", '
        f"min_lr_factor={least:g})",
        "dataloader": 'HuggingFaceTextDataLoader.Config(dataset="c4_test")',
        "metrics": "MetricsProcessor.Config(log_freq=1)",
        "checkpoint": f"CheckpointManager.Config({saved})",
        "validator": "Validator.Config(enable=False)",
        "training": _called("TrainingConfig", _training(job)),
        "parallelism": _called("ParallelismConfig", _parallelism(job)),
        "activation_checkpoint": CHECKPOINTED[parse(job.recipe.recompute).way],
        "compile": f'CompileConfig(enable=True, components=["model", "loss"]{_pieces(job)})',
    }


def _pieces(job: TrainingJob) -> str:
    """Async tensor parallelism, among the fields of torch.compile."""
    return ", enable_async_tensor_parallel=True" if job.recipe.tp_overlap and job.strategy.tp > 1 else ""


def _called(name: str, values: dict[str, object]) -> str:
    inside = "".join(f"            {key}={value!r},\n" for key, value in values.items())
    return f"{name}(\n{inside}        )".replace("'", '"')


def _training(job: TrainingJob) -> dict[str, object]:
    """A rank's batch is one micro-batch, or with a pipeline all of a step, which its schedule cuts up."""
    local = job.load.global_batch // job.strategy.dp if job.strategy.pp > 1 else job.recipe.micro_batch
    return {
        "local_batch_size": local,
        "global_batch_size": job.load.global_batch,
        "seq_len": job.load.seq,
        "steps": steps_of(job),
        "max_norm": 1.0,
        "dtype": "bfloat16" if job.recipe.optimizer == "adamw-bf16" else "float32",
        "mixed_precision_param": "float32" if is_wide(job.dtype) else "bfloat16",
        "mixed_precision_reduce": "float32",
        "enable_cpu_offload": _offloads(job),
        "disable_cuda_graphs": True,
    }


def _parallelism(job: TrainingJob) -> dict[str, object]:
    strategy, recipe = job.strategy, job.recipe
    shards = (recipe.dp_shard or strategy.dp) if recipe.zero >= 2 else 1
    values: dict[str, object] = {
        "data_parallel_replicate_degree": strategy.dp // shards,
        "data_parallel_shard_degree": shards,
        "fsdp_reshard_after_forward": RESHARDED.get(recipe.zero, "default"),
        "tensor_parallel_degree": strategy.tp,
        "enable_sequence_parallel": recipe.sequence_parallel,
        "pipeline_parallel_degree": strategy.pp,
        "context_parallel_degree": strategy.cp,
        "expert_parallel_degree": strategy.ep,
    }
    if strategy.pp > 1:
        values["pipeline_parallel_schedule"] = SCHEDULES[recipe.schedule]
        values["pipeline_parallel_microbatch_size"] = recipe.micro_batch
        values["module_fqns_per_model_part"] = _parts(job)
    return values


def _parts(job: TrainingJob) -> list[list[str]]:
    """Modules of each pipeline part, as plans cut them."""
    sizes = Stages(job.model).sizes(job.strategy.pp * job.strategy.vp).tolist()
    parts, first = [], 0
    for size in sizes:
        parts.append([f"layers.{layer}" for layer in range(first, first + size)])
        first += size
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head"]
    return parts
