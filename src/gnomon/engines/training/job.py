"""Checks that a job can be sharded as it says, and which settings matter only between ranks."""

from __future__ import annotations

from math import gcd

from gnomon.engines.training.dispatch import check_dispatch, idle_dispatch
from gnomon.engines.training.stages import Stages
from gnomon.errors import InputError
from gnomon.graph.gemm_recipes import GEMM_RECIPES
from gnomon.graph.support import check_tower
from gnomon.graph.trained import check_trained, heads_of, unpiped, unshared
from gnomon.sim.training import Schedule, schedule, usual_schedule
from gnomon.spec import Block, Chip, Model, MoeFfn, Recipe, Strategy
from gnomon.spec.recompute import FULL, parse
from gnomon.spec.training import TWO_LEVELS
from gnomon.spec.training_job import TrainingJob

TRAINED_ON = ("NVIDIA", "AMD")
"""Vendors whose chips PyTorch's CUDA and ROCm builds run on, which Megatron-LM and the built-in runner need."""


def check_job(job: TrainingJob) -> None:
    """Raise InputError where no engine could shard the job as it says. Places are the fields of a plan."""
    check_trained(job.model)
    if job.model.beside and job.load.sequences is not None:
        towers = ", ".join(tower.name for tower in job.model.towers)
        message = f"sequences that differ in length are not priced beside a tower ({towers}), whose inputs are equal"
        raise InputError(message, where="load.lengths", hint="Leave it out.")
    check_positions(job.model, job.load.seq)
    _check_schedule(job)
    check_stages(job.model, job.strategy, job.recipe)
    _check_cuts(job)
    check_shards(job.model, job.strategy, job.recipe)
    _check_second_copies(job)
    _check_pieces(job)
    check_narrow(job)


def not_trained_on(chip: Chip, engine: str) -> str:
    """Why training engines do not run on a chip; empty where they do."""
    return "" if chip.vendor in TRAINED_ON else f"{engine} does not run on {chip.name}: it needs CUDA or ROCm"


def idle_settings(strategy: Strategy, model: Model, expert_tp: int = 0) -> dict[str, str]:
    """Settings of a recipe that only matter between ranks which are not there, and why they do not here. `expert_tp`
    is the recipe's: unsharded experts may have copies where nothing else has."""
    copies = strategy.dp * strategy.cp
    experts = copies * strategy.tp // ((expert_tp or strategy.tp) * strategy.ep) if model.is_moe else copies
    alone = {
        "zero": copies == 1 >= experts and "one rank has no others to shard its states over",
        "schedule": strategy.pp == 1 and "one pipeline rank has only one order of passes",
        "sequence_parallel": strategy.tp == 1 and "one tensor-parallel rank has the whole sequence",
        "layers_per_stage": strategy.pp == 1 and "one pipeline rank has all layers",
        "dp_shard": strategy.dp == 1 and "one data-parallel rank has no others to replicate it",
        "hpz": copies == 1 and "one rank has all weights",
        "tp_overlap": strategy.tp == 1 and "one tensor-parallel rank has no collectives to overlap",
        "cp_comm": strategy.cp == 1 and "one context-parallel rank has all keys",
        "cp_a2a": strategy.cp == 1 and "one context-parallel rank has all keys",
        "expert_tp": (not model.is_moe and "the model has no experts")
        or (strategy.tp == 1 and "one tensor-parallel rank has all of each expert"),
    }
    return {name: why for name, why in alone.items() if why} | idle_dispatch(strategy, model)


def equal_stages(model: Model) -> bool:
    """Whether a search keeps to equal stages: dense networks of equal layers have enough of them."""
    return not model.is_moe and len(Stages(model).kinds) == 1


def check_equal_stages(model: Model, strategy: Strategy) -> None:
    """Raise where layers cannot be split evenly, for engines that need equal stages."""
    cut(model.layers, strategy.pp * strategy.vp, "layers", "strategy, pp x vp")


def _check_cuts(job: TrainingJob) -> None:
    strategy, model = job.strategy, job.model
    if strategy.pp > 1 and (why := unpiped(model)):
        message = f"{model.name} has {why}, which no engine sends along a pipeline"
        raise InputError(message, where="strategy.pp", hint="Use 1.")
    for tower in model.towers:
        check_tower(tower, strategy.tp)
    if strategy.pp * strategy.vp > model.layers and not job.recipe.layers_per_stage:
        check_equal_stages(model, strategy)
    heads = [heads_of(block) for block in model.blocks]
    heads += [(block.cross.heads, block.cross.kv_heads) for block in model.blocks if block.cross]
    inner = sorted({width for block in model.blocks for width in _widths(block, job.recipe)})
    common = gcd(*(number for pair in heads for number in pair), *inner)
    for queries, keys in dict.fromkeys(heads):
        cut(queries, strategy.tp, "attention heads", "strategy.tp", common)
        cut(keys, strategy.tp, "key-value heads", "strategy.tp", common)
    for columns in inner:
        cut(columns, strategy.tp, "columns of the feed-forward part", "strategy.tp", common)
    each, ranks = strategy.dp * job.recipe.micro_batch, f"{strategy.dp} ranks x {job.recipe.micro_batch} sequences"
    chosen = schedule(job.recipe.schedule, where="engine.settings.schedule")
    together = int(chosen.multiple(strategy.pp)) if strategy.pp > 1 else 1
    if together > 1:
        each, ranks = each * together, f"{ranks} x {together} {chosen.name} stages"
    _multiple(job.load.global_batch, each, ranks, "load.global_batch")
    fewest = int(chosen.fewest(strategy.pp)) if strategy.pp > 1 else 1
    if (micros := job.load.global_batch // (strategy.dp * job.recipe.micro_batch)) < fewest:
        message = f"{micros} micro-batches are fewer than the {fewest} that {chosen.name} needs with pp {strategy.pp}"
        hint = f"Use {fewest * strategy.dp * job.recipe.micro_batch} or more."
        raise InputError(message, where="load.global_batch", hint=hint)
    _check_context(job)


def check_shards(model: Model, strategy: Strategy, recipe: Recipe) -> None:
    """Ranks that share states out are equal parts of the data-parallel ones, and of those that hold the same
    experts."""
    where = "engine.settings.dp_shard"
    if not recipe.dp_shard or strategy.dp == 1:
        return
    if not recipe.zero:
        message = f"{recipe.dp_shard} ranks share nothing out with zero 0"
        raise InputError(message, where=where, hint="Set zero to 1, 2 or 3, or leave it out.")
    cut(strategy.dp, recipe.dp_shard, "data-parallel ranks", where)
    replicas = strategy.dp // recipe.dp_shard
    experts = strategy.dp * strategy.cp * strategy.tp // ((recipe.expert_tp or strategy.tp) * strategy.ep)
    if model.is_moe and experts % replicas:
        message = f"{replicas} replicas of {experts} ranks that hold the same experts are no equal parts"
        raise InputError(message, where=where, hint="Use 0, or fewer expert-parallel ranks.")


def _check_second_copies(job: TrainingJob) -> None:
    """A second copy of the weights lies on equal parts of the ranks that share the first out."""
    strategy, recipe, where = job.strategy, job.recipe, "engine.settings.hpz"
    copies = strategy.dp * strategy.cp
    if not recipe.hpz or copies == 1:
        return
    if recipe.zero != 3 or recipe.dp_shard:
        message = "a second copy is of weights that ZeRO 3 shards over all ranks"
        raise InputError(message, where=where, hint="Set zero to 3 and dp_shard to 0, or leave it out.")
    if recipe.hpz == 1:
        message = "a second copy on one rank is all of the weights, which ZeRO 2 keeps"
        raise InputError(message, where=where, hint="Use 2 or more, or zero 2.")
    cut(copies, recipe.hpz, "ranks that hold the same weights", where)


def _check_pieces(job: TrainingJob) -> None:
    """Pieces of collectives are copied between chips of one node, and only gathers and scatters come in pieces."""
    strategy, where = job.strategy, "engine.settings.tp_overlap"
    if not job.recipe.tp_overlap or strategy.tp == 1:
        return
    if not job.recipe.sequence_parallel:
        message = "true, but without sequence_parallel tensor-parallel ranks all-reduce, which has no pieces to overlap"
        raise InputError(message, where=where, hint="Set sequence_parallel to true, or leave it out.")
    if strategy.tp > job.pool.per_node:
        message = f"pieces are copied inside a node, and {strategy.tp} ranks take more than its {job.pool.per_node}"
        raise InputError(message, where=where, hint=f"Use a tp of {job.pool.per_node} or less, or leave it out.")


def check_narrow(job: TrainingJob) -> None:
    """Raise for settings of formats that do not go with the plan's."""
    _check_gather(job)
    _check_wide(job)


def _check_gather(job: TrainingJob) -> None:
    """Weights are gathered narrow where GEMMs read them so, by the ranks that share them or their states out."""
    where = "engine.settings.fp8_param_gather"
    if not job.recipe.fp8_param_gather:
        return
    if job.dtype not in GEMM_RECIPES:
        message = f"GEMMs in {job.dtype} read weights as they are kept"
        raise InputError(message, where=where, hint="Leave it out, or give a dtype of eight bits such as fp8.")
    if GEMM_RECIPES[job.dtype].gathered_bytes is None:
        raise InputError(f"weights are not gathered in {job.dtype}", where=where, hint="Leave it out.")
    if not job.recipe.zero:
        message = "weights are gathered where ranks share them or their states out, and zero is 0"
        raise InputError(message, where=where, hint="Set zero to 1, 2 or 3, or leave it out.")


def _check_wide(job: TrainingJob) -> None:
    """First and last layers in 16 bits, where others run in fewer."""
    text, counts, where = job.recipe.bf16_layers, job.recipe.wide_layers, "engine.settings.bf16_layers"
    if not text:
        return
    if len(counts) != 2:
        hint = "Write the first layers and the last: 1,1."
        raise InputError(f"'{text}' is not two counts of layers", where=where, hint=hint)
    if job.dtype not in GEMM_RECIPES:
        message = f"all layers are in {job.dtype}"
        raise InputError(message, where=where, hint="Leave it out, or give a dtype of eight bits or fewer.")
    if sum(counts) > job.model.layers:
        message = f"{text} are more than the {job.model.layers} layers of {job.model.name}"
        raise InputError(message, where=where, hint="Give fewer.")


def _check_context(job: TrainingJob) -> None:
    """Each context-parallel rank takes two pieces, one early and one late, so that causal work is even."""
    strategy = job.strategy
    if strategy.cp > 1 and (why := next(unshared(job.model), "")):
        raise InputError(
            f"{job.model.name} has {why}, which are not priced with cp", where="strategy.cp", hint="Use 1."
        )
    pieces = 2 * strategy.cp if strategy.cp > 1 else 1
    _multiple(job.load.seq, pieces * (strategy.tp if job.recipe.sequence_parallel else 1), "pieces", "load.seq")
    traders = context_traders(strategy, job.recipe)
    if traders > 1:
        for queries, keys in {heads_of(block) for block in job.model.blocks}:
            common = gcd(queries, keys) // strategy.tp
            where = "strategy.cp" if traders == strategy.cp else "engine.settings.cp_a2a"
            cut(common, traders, "heads of a tensor-parallel rank", where)


def context_traders(strategy: Strategy, recipe: Recipe) -> int:
    """Ranks of context parallelism that trade tokens for heads. Raises where a plan does not say how many."""
    cp, where = strategy.cp, "engine.settings.cp_a2a"
    if cp == 1 or recipe.cp_comm != TWO_LEVELS:
        if recipe.cp_a2a and cp > 1:
            message = f"{recipe.cp_a2a} ranks trade tokens for heads before a ring, and cp_comm is {recipe.cp_comm}"
            raise InputError(message, where=where, hint=f"Use 0, or the cp_comm {TWO_LEVELS}.")
        return cp if recipe.cp_comm == "a2a" else 1
    if not recipe.cp_a2a:
        hint = f"Use {2 if cp % 2 == 0 else cp}, or another divisor of {cp}."
        raise InputError(f"{TWO_LEVELS} has two levels, and nothing says how large they are", where=where, hint=hint)
    cut(cp, recipe.cp_a2a, "context-parallel ranks", where)
    return recipe.cp_a2a


def check_experts(model: Model, strategy: Strategy, recipe: Recipe) -> None:
    """Raise where experts cannot be sharded so, and for ep on a dense model."""
    if strategy.ep > 1 and not model.is_moe:
        message = f"{strategy.ep} is not 1, and {model.name} has no experts"
        raise InputError(message, where="strategy.ep", hint="Use 1.")
    if recipe.expert_tp not in (0, 1, strategy.tp):
        hint = f"Use 1 or {strategy.tp}."
        raise InputError(f"{recipe.expert_tp} is neither 1 nor tp", where="engine.settings.expert_tp", hint=hint)
    for block in model.blocks:
        if isinstance(block.ffn, MoeFfn):
            cut(block.ffn.experts, strategy.ep, "experts", "strategy.ep")
    alike = strategy.dp * strategy.cp * (strategy.tp // (recipe.expert_tp or strategy.tp))
    if model.is_moe:
        cut(alike, strategy.ep, "ranks of data and context parallelism", "strategy.ep")
    check_dispatch(model, strategy, recipe)


def _widths(block: Block, recipe: Recipe) -> tuple[int, ...]:
    """Columns that tensor-parallel ranks split; experts may stay unsharded."""
    if not isinstance(block.ffn, MoeFfn):
        return (block.feed_forward.inner,)
    own = () if recipe.expert_tp == 1 else (block.ffn.inner,)
    return own + ((block.ffn.shared_inner,) if block.ffn.shared_inner else ())


def check_positions(model: Model, seq: int) -> None:
    """Raise for sequences beyond what the model is made for, as serving does."""
    learned, most = model.learned_positions, model.max_context
    if learned and seq > learned:
        message = f"{seq} is more than the {learned} positions {model.name} was trained with"
        raise InputError(message, where="load.seq", hint=f"Use at most {learned}.")
    if seq > most:
        message = f"{seq:,} is more than the {most:,} tokens {model.name} supports"
        hint = f"Use at most {most}, or give it a config.json with a larger max_position_embeddings."
        raise InputError(message, where="load.seq", hint=hint)


def _multiple(value: int, of: int, what: str, where: str) -> None:
    """Raise for a load that cannot be split so, naming the nearest loads that can."""
    if value % of:
        below = value // of * of
        hint = f"Use {f'{below} or ' if below else ''}{below + of}."
        raise InputError(f"{value} is not a multiple of {of} ({what})", where=where, hint=hint)


def cut(whole: int, parts: int, what: str, where: str, together: int = 0) -> None:
    """Raise for a size that cannot be split so, naming the nearest degrees that can split it and all that is split
    with it."""
    if whole % parts == 0:
        return
    common = together or whole
    near = [next(n for n in range(min(parts, common), 0, -1) if common % n == 0)]
    near += [n for n in range(parts, min(2 * parts, common) + 1) if common % n == 0][:1]
    hint = f"Use {' or '.join(map(str, near))}."
    raise InputError(f"{whole} {what} cannot be split into {parts} equal parts", where=where, hint=hint)


def check_stages(model: Model, strategy: Strategy, recipe: Recipe) -> None:
    """Raise for layers of stages that a plan says and that a network cannot be cut into."""
    text, counts = recipe.layers_per_stage, recipe.stage_layers
    where, parts = "engine.settings.layers_per_stage", strategy.pp * strategy.vp
    if not text:
        return
    if not counts:
        raise InputError(f"'{text}' is not a list of counts", where=where, hint="Write it so: 10,11,11,8.")
    if len(counts) != parts and strategy.pp > 1:
        hint = f"Give {parts} counts that sum to {model.layers}."
        raise InputError(f"{len(counts)} stages are given, and pp x vp is {parts}", where=where, hint=hint)
    if sum(counts) != model.layers:
        hint = f"Give counts that sum to {model.layers}."
        raise InputError(f"{text} sums to {sum(counts)} layers of {model.layers}", where=where, hint=hint)
    if 0 in counts[1:-1]:
        hint = "Only the first stage, with the embedding, and the last, with the loss, may be without."
        raise InputError(f"a stage of {text} has no layer", where=where, hint=hint)


def _check_schedule(job: TrainingJob) -> None:
    strategy, chosen = job.strategy, schedule(job.recipe.schedule, where="engine.settings.schedule")
    if strategy.pp == strategy.vp == 1:
        return
    if chosen.splits_backward and parse(job.recipe.recompute).like == FULL:
        message = f"the schedule {chosen.name} splits the backward pass, and would have to keep what is recomputed"
        raise InputError(message, where="engine.settings.recompute", hint="Use none or selective.")
    if not chosen.takes_chunks(strategy.vp):
        other = usual_schedule(strategy.vp).name
        hint = f"The {chosen.name} schedule needs {chunk_words(chosen)}; with {strategy.vp}, use the {other} schedule."
        raise InputError(f"{strategy.vp} does not match the schedule {chosen.name}", where="strategy.vp", hint=hint)
    if chosen.even_ranks and strategy.pp % 2:
        hint = f"Use {strategy.pp - 1 or 2} or {strategy.pp + 1}."
        raise InputError(f"the schedule {chosen.name} needs an even pp", where="strategy.pp", hint=hint)
    if strategy.pp == 1:
        raise InputError("interleaving needs more than 1 pipeline rank", where="strategy.pp", hint="Use 2 or more.")


def chunk_words(chosen: Schedule) -> str:
    """How many model chunks a rank has under a schedule."""
    least, most = chosen.chunks
    return f"vp {least}" if least == most else f"vp of {least} or more"
