"""What a training answer says of sequences that differ in length."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.engines.training import Grid
from gnomon.engines.training.batches import RowBatches
from gnomon.engines.training.layer_cost import tapes_of, useful_flops
from gnomon.engines.training.stages import kind_names
from gnomon.planning.training.step import TrainingStep
from gnomon.spec import Batch, TrainingLoad
from gnomon.spec.loads.documents import Documents
from gnomon.spec.loads.micro_batches import MicroBatches
from gnomon.spec.loads.packing import PackedRows
from gnomon.spec.loads.sequences import drawn_lengths

QUANTILES = (50, 90, 99)


def lengths_inputs(load: TrainingLoad) -> dict[str, Any]:
    """As flags have them; nothing where all sequences are equal."""
    return load.sequences.described if load.sequences else {}


def micro_batches_of(step: TrainingStep) -> MicroBatches:
    """The drawn micro-batches of a step."""
    job = step.job
    return RowBatches(job.model, job.load, Grid.of(job.strategy, job.recipe)).drawn(0, job.strategy.cp)


def padding_share(step: TrainingStep) -> float:
    """Of all tokens of the drawn steps."""
    drawn, load = micro_batches_of(step), step.job.load
    assert load.sequences is not None
    real = int(load.sequences.real(load.seq).tokens[drawn.members].sum())
    return 1 - real / int(drawn.tokens.sum())


def useful_share(step: TrainingStep) -> float:
    """FLOPs without those of padding, over all that the model takes."""
    job, drawn = step.job, micro_batches_of(step)
    load, sequences = job.load, job.load.sequences
    assert sequences is not None
    parts, stages = tapes_of(job.model, step.cut, step.traits), step.figures.chunks.stages
    counts = np.bincount(stages.order, minlength=len(stages.origins)).tolist()
    layers = dict(zip(kind_names(len(counts)), counts, strict=True))
    real = sequences.real(load.seq)
    if sequences.packs and not sequences.document_masking:
        real = real.as_one(real.tokens)
    priced = RowBatches(job.model, load, Grid.of(job.strategy, job.recipe)).at(job.strategy.cp)
    whole = float(priced.mean(np.broadcast_to(useful_flops(parts, layers, priced.batch), priced.batch.tokens.shape))[0])
    return float(useful_flops(parts, layers, _unpadded(real, drawn))[0]) / whole


def _unpadded(rows: PackedRows, drawn: MicroBatches) -> Batch:
    """The mean micro-batch without padding, as one context-parallel rank has it."""
    cp, count = drawn.shape.cp, drawn.count
    often = np.bincount(drawn.members.ravel(), minlength=rows.count) / count
    tokens, pairs = (float(np.sum(often * figure)) for figure in (rows.tokens, rows.pairs))
    number, mine = float(np.sum(often * rows.counts)), tokens / cp
    one = np.zeros(1, np.int64)
    documents = Documents(
        rows=rows,
        row=np.arange(rows.count),
        at=np.zeros(rows.count, np.int64),
        weight=often,
        of=one,
        longest=np.array([float(rows.longest.max())]),
        cp_load=np.ones(1),
    )
    sums = (0.0, 0.0, number, mine, ((2 * pairs - tokens) / cp**2 + mine) / 2, mine, number)
    return Batch(*(np.array([one]) for one in sums), documents=documents)


def lengths_figures(step: TrainingStep) -> dict[str, Any]:
    """The distribution, what becomes of it in a step, and what it costs; nothing where all sequences are equal."""
    load, sequences = step.job.load, step.job.load.sequences
    if sequences is None:
        return {}
    lengths = drawn_lengths(sequences.lengths, sequences.seed, load.seq)
    real, padding = load.step_tokens, padding_share(step)
    padded = real / (1 - padding)
    drawn, seconds = micro_batches_of(step), step.step_s.value
    packed = {"packing_efficiency": real / (load.seq * load.global_batch)} if sequences.packs else {}
    return {
        "distribution": sequences.lengths.text,
        "mean_tokens": float(lengths.mean()),
        **{f"p{part}_tokens": float(np.percentile(lengths, part)) for part in QUANTILES},
        "longest_tokens": int(lengths.max()),
        "sequences_per_step": real / float(lengths.mean()),
        "tokens_per_step": real,
        "padded_tokens_per_step": padded,
        "padding_share": padding,
        **packed,
        "tokens_per_s": real / seconds,
        "padded_tokens_per_s": padded / seconds,
        "imbalance_s": step.imbalance_s,
        "slowest_cp_rank": float(drawn.cp_load.mean()),
        "steps_drawn": drawn.steps,
    }
