"""A Megatron-LM command read back as a training plan. Every option acts, is listed as ignored with the reason, or is
refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gnomon.engines.megatron import dispatch, formats, graphs
from gnomon.engines.megatron.arguments import UNUSED
from gnomon.engines.megatron.offload import offload_read
from gnomon.engines.megatron.style import MOMENTS_BF16
from gnomon.engines.training.expressed import Named, saved
from gnomon.engines.training.imported import TrainingOptions, data_parallel, load_of, read_flags
from gnomon.engines.training.launched import LaunchedProgram
from gnomon.engines.training.operations import (
    ImportedBatches,
    ImportedTraining,
    ModelShape,
    TrainingNames,
)
from gnomon.engines.training.wide import ENVIRONMENT, imported
from gnomon.errors import InputError
from gnomon.spec import Recipe, Strategy
from gnomon.spec.recompute import BLOCK, FULL, MODULES, SELECTIVE, UNIFORM, parse
from gnomon.spec.training import BFD, TWO_LEVELS, WRAPPED

PROGRAMS = ("pretrain_gpt.py", "pretrain_mamba.py", "pretrain_gpt")
_SHARDED = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_OPTIMIZERS = {"adam": "adamw", "sgd": "sgd", "lion": "lion", "muon": "muon", "dist_muon": "muon"}
_CP_COMMS = {"p2p": "p2p", "a2a": "a2a", "all_gather": "allgather", TWO_LEVELS: TWO_LEVELS}
_RECOMPUTED = {FULL: FULL, SELECTIVE: SELECTIVE}
_REPEATED = re.compile(r"\(([^()]*)\)\*(\d{1,4})|([A-Za-z])\*(\d{1,4})")
MOST_PARTS = 100_000
TRANSFORMER_ENGINE = "transformer_engine"
"""Whose layers run unless another implementation is named."""


def reads(program: LaunchedProgram) -> bool:
    """Whether a program is Megatron-LM's own."""
    fork = any(word.startswith("--deepspeed") for word in program.arguments)  # Megatron-DeepSpeed, of the same name
    return program.name in PROGRAMS and not fork


def import_training(program: LaunchedProgram, names: TrainingNames) -> ImportedTraining:
    options = TrainingOptions(read_flags(program.arguments), UNUSED)
    shape = model_shape(options)
    strategy, stages = _degrees(options, shape.layers)
    strategy = replace(strategy, dp=data_parallel(program.ranks, strategy, program.name))
    apart = bool(shape.experts) or options.flag("multi-latent-attention")
    recipe = _recipe(options, strategy, apart)
    if shape.experts:
        recipe = replace(recipe, **dispatch.imported(options, strategy, recipe.expert_tp))
    graphed = graphs.imported(options, experts=bool(shape.experts), padded=recipe.pad_to_capacity)
    recipe = replace(recipe, cuda_graphs=graphed)
    micro, seq = options.whole("micro-batch-size"), options.whole("seq-length")
    batch = options.whole("global-batch-size", default=micro * strategy.dp)
    steps = _steps(options, batch)
    dtype = _multiplied(_dtype(options), options, program)
    gathered = formats.read_gathered(options, dtype) and recipe.zero > 0
    recipe = replace(recipe, fp8_param_gather=gathered, bf16_layers=formats.read_wide(options, dtype))
    batches = _batches(options)
    _notes(options, strategy, recipe)
    return ImportedTraining(
        shape=shape,
        stages=stages,
        strategy=strategy,
        techniques={**offload_read(options, shape.layers), **_saved(options)},
        recipe=replace(recipe, micro_batch=micro),
        load=replace(load_of(seq, batch, steps), mtp_layers=options.whole("mtp-num-layers", default=0, least=0)),
        batches=batches,
        dtype=dtype,
        ignored=(*options.ignored, *options.left()),
    )


def _batches(options: TrainingOptions) -> ImportedBatches | None:
    """Conversations that were packed before, or documents one after the other that attention keeps apart."""
    masking = {name: options.flag(name) for name in ("dataloader-inter-document-masking", "reset-attention-mask")}
    if options.flag("sft"):
        return ImportedBatches(told="--sft", packing=BFD, document_masking=True)
    told = " ".join(f"--{name}" for name, given in masking.items() if given)
    return ImportedBatches(told=told, packing=WRAPPED, document_masking=True) if told else None


def model_shape(options: TrainingOptions) -> ModelShape:
    """The network by the sizes that tell one from another."""
    experts = options.whole("num-experts", default=0, least=0)
    dense = options.whole("ffn-hidden-size", default=0)
    inner = options.whole("moe-ffn-hidden-size", default=dense, least=0) if experts > 1 else dense
    heads = options.whole("num-attention-heads", default=0)
    return ModelShape(
        layers=options.whole("num-layers", "encoder-num-layers"),
        hidden=options.whole("hidden-size"),
        heads=heads,
        kv_heads=options.whole("num-query-groups", "num-key-value-heads", default=heads, least=0),
        inner=inner,
        vocab=options.whole("vocab-size", "padded-vocab-size", default=0),
        experts=experts if experts > 1 else 0,
    )


def _degrees(options: TrainingOptions, layers: int) -> tuple[Strategy, tuple[int, ...]]:
    """Degrees without that of data parallelism, and the layers of each pipeline part where a layout says them."""
    tp = options.whole("tensor-model-parallel-size", "model-parallel-size", default=1)
    pp = options.whole("pipeline-model-parallel-size", default=1)
    vp = options.whole("num-virtual-stages-per-pipeline-rank", default=1)
    each = options.whole("num-layers-per-virtual-pipeline-stage", default=0, least=0)
    if each and pp > 1:
        vp, rest = divmod(layers, each * pp)
        if rest or not vp:
            message = f"{layers} layers are not a multiple of {each} on {pp} ranks"
            raise InputError(message, where="--num-layers-per-virtual-pipeline-stage")
    stages: tuple[int, ...] = ()
    if layout := options.text("pipeline-model-parallel-layout"):
        stages = _parts(layout)
        if len(stages) % pp:
            raise InputError(
                f"{len(stages)} parts are not a multiple of {pp} ranks", where="--pipeline-model-parallel-layout"
            )
        vp = len(stages) // pp
    cp = options.whole("context-parallel-size", default=1)
    return Strategy(tp=tp, pp=pp, vp=vp, cp=cp, ep=options.whole("expert-model-parallel-size", default=1)), stages


def _parts(layout: str) -> tuple[int, ...]:
    """Layers of each part of a layout such as `Et*3|(tt|)*4tL`."""
    text = layout.strip("\"'").replace(",", "")
    while found := _REPEATED.search(text):
        part, times = (found[1], found[2]) if found[2] else (found[3], found[4])
        text = text[: found.start()] + part * int(times) + text[found.end() :]
        if len(text) > MOST_PARTS:
            raise InputError("is too long", where="--pipeline-model-parallel-layout")
    return tuple(part.count("t") for part in text.split("|"))


def _recipe(options: TrainingOptions, strategy: Strategy, apart: bool) -> Recipe:
    """`apart` where norms are kernels of their own."""
    named = options.text("optimizer", default="adam")
    if named not in _OPTIMIZERS:
        raise InputError(f"the optimizer {named} is not modelled", where="--optimizer")
    optimizer = _OPTIMIZERS[named]
    moments = {options.text("exp-avg-dtype"), options.text("exp-avg-sq-dtype")} & {"bf16", "fp16", "fp8"}
    options.text("main-grads-dtype")
    if moments and optimizer == "adamw":
        optimizer = MOMENTS_BF16
        if moments != {"bf16"}:
            options.unmodelled("formats of moments", f"priced as {MOMENTS_BF16}")
    sequence = options.flag("sequence-parallel")
    zero = _zero(options, named)
    return Recipe(
        schedule="interleaved" if strategy.vp > 1 else "1f1b",
        recompute=_recompute(options, apart),
        zero=zero,
        dp_shard=_shards(options, strategy) if zero else 0,
        optimizer=optimizer,
        sequence_parallel=sequence,
        tp_overlap=options.flag("tp-comm-overlap") and sequence and strategy.tp > 1,
        cp_comm=(comm := _cp_comm(options)),
        cp_a2a=_levels(options, strategy) if comm == TWO_LEVELS and strategy.cp > 1 else 0,
        expert_tp=options.whole("expert-tensor-parallel-size", default=0, least=0),
    )


def _cp_comm(options: TrainingOptions) -> str:
    given = options.text("cp-comm-type", default="p2p").split(" ")
    if len(set(given)) > 1:
        options.unmodelled(f"--cp-comm-type {' '.join(given)}", f"priced as {_CP_COMMS.get(given[0], 'p2p')}")
    if given[0] not in _CP_COMMS:
        raise InputError(f"'{given[0]}' is not modelled", where="--cp-comm-type")
    return _CP_COMMS[given[0]]


def _levels(options: TrainingOptions, strategy: Strategy) -> int:
    """Ranks of the first level, which trade tokens for heads."""
    name = "hierarchical-context-parallel-sizes"
    words = options.text(name).split()
    sizes = [int(word) for word in words if word.isdecimal()]
    if len(sizes) != 2 or len(words) != 2 or sizes[0] * sizes[1] != strategy.cp:
        message = f"'{' '.join(words)}' are not two sizes whose product is {strategy.cp}"
        raise InputError(message, where=f"--{name}", hint=f"They are those of --cp-comm-type {TWO_LEVELS}.")
    return sizes[0]


def _recompute(options: TrainingOptions, apart: bool) -> str:
    found = options.choice(_RECOMPUTED, "recompute-granularity", "checkpoint-granularity", default="none")
    if options.flag("recompute-activations"):
        found = "selective"
    if options.flag("checkpoint-activations"):
        found = "full"
    method = options.choice({BLOCK: BLOCK, UNIFORM: UNIFORM}, "recompute-method", default=UNIFORM)
    layers = options.whole("recompute-num-layers", "checkpoint-num-layers", default=1, least=0)
    modules = options.text("recompute-modules", default="core_attn").split()
    if found == FULL:
        return parse(f"{FULL}:{method}={layers}").text if layers else "none"
    if found != SELECTIVE or modules == ["core_attn"]:
        return found
    return parse(f"modules={'+'.join(_modules(options, modules, apart))}").text


def _modules(options: TrainingOptions, given: Sequence[str], apart: bool) -> Iterator[str]:
    """Of the modules to recompute, those that do something: Transformer Engine's dense layers have no norm of their
    own."""
    for name in given:
        if name not in MODULES:
            options.unmodelled(f"--recompute-modules {name}", "priced as saved")
        elif name == "layernorm" and not apart:
            why = "norms of dense layers are part of the GEMM behind them"
            options.ignore(f"--recompute-modules {name}", why, affects=False)
        else:
            yield name


def _zero(options: TrainingOptions, optimizer: str) -> int:
    states = options.flag("use-distributed-optimizer")
    fsdp = options.flag("use-megatron-fsdp", "use-custom-fsdp")
    sharded = options.text("data-parallel-sharding-strategy", default="no_shard")
    if options.flag("use-torch-fsdp2"):
        return 3
    if fsdp:
        if sharded not in _SHARDED:
            raise InputError(f"'{sharded}' is not known", where="--data-parallel-sharding-strategy")
        return _SHARDED[sharded]
    return int(states or optimizer == "dist_muon")


def _shards(options: TrainingOptions, strategy: Strategy) -> int:
    """Data-parallel ranks of one of several instances of the distributed optimizer."""
    if options.text("outer-dp-sharding-strategy", default="no_shard") != "no_shard":
        told = "--outer-dp-sharding-strategy optim"
        options.unmodelled(told, "priced with optimizer states sharded inside each instance alone")
    instances = options.whole("num-distributed-optimizer-instances", default=1)
    if strategy.dp % instances:
        message = f"{instances} is no divisor of {strategy.dp} data-parallel ranks"
        raise InputError(message, where="--num-distributed-optimizer-instances")
    return strategy.dp // instances if instances > 1 else 0


def _dtype(options: TrainingOptions) -> str:
    bf16, fp16 = options.flag("bf16"), options.flag("fp16")
    return formats.read(options) or ("bf16" if bf16 else "fp16" if fp16 else "fp32")


def _multiplied(dtype: str, options: TrainingOptions, program: LaunchedProgram) -> str:
    """What GEMMs run in. Transformer Engine takes tf32 for fp32, whatever PyTorch is told (`cublaslt_gemm.cu`)."""
    own = options.text("transformer-impl", default=TRANSFORMER_ENGINE) == TRANSFORMER_ENGINE
    found = imported(dtype, program.environment, unless_told=own)
    if found == "tf32" and program.environment.get(ENVIRONMENT) != "1":
        told = f"no {ENVIRONMENT}=1"
        options.unmodelled(told, "priced with all GEMMs in tf32; those of attention and of the logits run in fp32")
    return found


def _steps(options: TrainingOptions, batch: int) -> int:
    steps = options.whole("train-iters", default=0, least=0)
    samples = options.whole("train-samples", default=0, least=0)
    return steps or -(-samples // batch)


def _saved(options: TrainingOptions) -> Named:
    folder, every = options.text("save"), options.whole("save-interval", default=0, least=0)
    waits = not options.flag("async-save")
    return saved(every, waits=waits) if folder and every else {}


def note_dropout(options: TrainingOptions) -> None:
    """Dropout, which is 0.1 where nothing is said."""
    for name in ("attention-dropout", "hidden-dropout"):
        given = name in options.values
        if rate := options.number(name, default=0.1):
            told = f"--{name} {rate:g}" if given else f"no --{name}, {rate:g} by default"
            options.unmodelled(told, "the figures are those without dropout")


def _notes(options: TrainingOptions, strategy: Strategy, recipe: Recipe) -> None:
    """What is priced otherwise than the command has it."""
    note_dropout(options)
    overlapped = options.flag("overlap-grad-reduce")
    if strategy.dp * strategy.cp > 1 and not overlapped:
        options.unmodelled("no --overlap-grad-reduce", "priced with gradients reduced during the backward pass")
