"""Laws of a training step: no quicker than its FLOPs, no slower on a better chip, no smaller than its states; and
packages that know nothing of training ask no questions about it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cost.machines import faster
from tests.engines.plans import ENGINES, OPTIMIZERS
from tests.examples import examples

import gnomon
from gnomon import catalog
from gnomon.cost.machine import Machine
from gnomon.engines import training_engine
from gnomon.engines.training import Grid, StepTable, Traits, figures, rank_memory
from gnomon.load.profiles import profile_for
from gnomon.planning.training.step import held_bytes, step_bound_s, step_timeline
from gnomon.spec import AttentionMixer, Block, Chip, DenseFfn, Model, Pool, Recipe, Strategy, TrainingLoad
from gnomon.spec.training import RECOMPUTE

ROUNDING = 1 - 1e-12


@dataclass(frozen=True)
class Job:
    """A network, a plan that cuts it evenly, and how many micro-batches its ranks take."""

    model: Model
    engine: str
    strategy: Strategy
    recipe: Recipe
    seq: int
    micros: int
    chip: str

    @property
    def traits(self) -> Traits:
        return training_engine(self.engine).traits(self.model)

    def figures(self, chip: Chip | None = None) -> StepTable:
        chip = chip or catalog.chip(self.chip)
        pool = Pool(chip=chip, count=self.strategy.ranks, per_node=min(self.strategy.ranks, chip.scaleup_size))
        machine = Machine(pool, profile_for(catalog.chip(self.chip)), self.traits.framework)
        load = TrainingLoad(seq=self.seq, global_batch=self.micros * self.strategy.dp * self.recipe.micro_batch)
        grid = Grid.of(self.strategy, self.recipe)
        return figures(self.model, load, grid, machine, self.traits, self.recipe.optimizer, "bf16")

    def step_s(self, chip: Chip | None = None) -> float:
        return step_timeline(self.figures(chip), 0, self.traits).step_s


@st.composite
def models(draw: st.DrawFn) -> Model:
    kv_heads, group = draw(st.sampled_from([4, 8])), draw(st.sampled_from([1, 4]))
    gpt = draw(st.booleans())
    mixer = AttentionMixer(
        heads=kv_heads * group, kv_heads=kv_heads, head_dim=draw(st.sampled_from([64, 128])), qkv_bias=gpt, out_bias=gpt
    )
    hidden = mixer.q_width
    ffn = DenseFfn(inner=4 * hidden, gated=not gpt, bias=gpt)
    return Model(
        name="drawn",
        family="gpt2" if gpt else "llama",
        hidden=hidden,
        vocab=draw(st.sampled_from([1024, 50257, 128256])),
        blocks=(Block(mixer=mixer, ffn=ffn, count=draw(st.sampled_from([8, 16, 24]))),),
        max_context=8192,
        tied_embeddings=gpt,
        norm_bias=gpt,
        learned_positions=8192 if gpt else 0,
    )


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    pp = draw(st.sampled_from([1, 2, 4]))
    vp = draw(st.sampled_from([1, 2])) if pp > 1 else 1
    strategy = Strategy(tp=draw(st.sampled_from([1, 2, 4])), pp=pp, vp=vp, dp=draw(st.sampled_from([1, 2, 16])))
    schedule = "interleaved" if vp > 1 else draw(st.sampled_from(["1f1b", "gpipe"]))
    return Job(
        model=draw(models()),
        engine=draw(st.sampled_from(ENGINES)),
        strategy=strategy,
        recipe=Recipe(
            micro_batch=draw(st.integers(1, 4)),
            schedule=schedule,
            recompute=draw(st.sampled_from(RECOMPUTE)),
            zero=draw(st.integers(0, 3)) if strategy.dp > 1 else 0,
            optimizer=draw(st.sampled_from(OPTIMIZERS)),
            sequence_parallel=draw(st.booleans()),
        ),
        seq=draw(st.sampled_from([512, 1024, 4096])),
        micros=pp * draw(st.integers(1, 4)),
        chip=draw(st.sampled_from(["H200", "A100", "H100"])),
    )


@pytest.mark.heavy
@settings(max_examples=80)
@given(jobs())
def test_no_quicker_than_its_flops(job: Job) -> None:
    found = job.figures()
    peak = job.strategy.ranks * catalog.chip(job.chip).rate("bf16")
    seconds = step_timeline(found, 0, job.traits).step_s
    assert seconds >= float(found.model_flops[0] + found.recomputed_flops[0]) / peak
    assert seconds >= step_bound_s(found, job.traits)[0] > 0


def better(chip: Chip, memory: float, rate: float, inside: float, across: float) -> Chip:
    links: dict[str, Any] = {
        name: replace(link, bandwidth_bytes_s=link.bandwidth_bytes_s * times, latency_s=link.latency_s / times)
        for name, link, times in (("scaleup", chip.scaleup, inside), ("scaleout", chip.scaleout, across))
    }
    return replace(chip, **faster(chip, memory, rate), **links)


times = st.floats(1, 4)


@pytest.mark.slow
@settings(max_examples=examples(120))
@given(jobs(), times, times, times, times)
def test_a_better_chip_is_never_slower(job: Job, memory: float, rate: float, inside: float, across: float) -> None:
    """But for the clock: less waiting leaves a board less time to cool, and a head or tail may feel that."""
    chip = catalog.chip(job.chip)
    assert job.step_s(better(chip, memory, rate, inside, across)) <= 1.001 * job.step_s(chip)


@pytest.mark.heavy
@settings(max_examples=60)
@given(jobs(), st.floats(1, 2))
def test_a_higher_power_limit_is_never_slower(job: Job, more: float) -> None:
    chip = catalog.chip(job.chip)
    assert job.step_s(replace(chip, tdp_w=more * chip.tdp_w)) <= job.step_s(chip) / ROUNDING


@pytest.mark.heavy
@settings(max_examples=80)
@given(jobs(), st.integers(1, 4))
def test_more_tokens_a_micro_batch_are_never_quicker(job: Job, more: int) -> None:
    """Products fill a chip better the larger they are, but never so much as to be done sooner; a wave that is just
    full may save a little."""
    longer = replace(job, recipe=replace(job.recipe, micro_batch=job.recipe.micro_batch + more))
    assert longer.step_s() >= 0.98 * job.step_s()


@pytest.mark.heavy
@settings(max_examples=60)
@given(jobs())
def test_more_micro_batches_are_never_quicker(job: Job) -> None:
    assert replace(job, micros=job.micros + job.strategy.pp).step_s() > job.step_s() * ROUNDING


@pytest.mark.heavy
@settings(max_examples=80)
@given(jobs())
def test_memory_holds_weights_and_states(job: Job) -> None:
    """Of every rank: the whole network's, evenly shared out as far as the plan does."""
    found, traits = job.figures(), job.traits
    states, strategy, zero = traits.optimizers[job.recipe.optimizer], job.strategy, job.recipe.zero
    body = sum(block.count * block.ffn.parameters(job.model.hidden) for block in job.model.blocks)
    least = body / (strategy.tp * strategy.pp)
    shared = least / strategy.dp
    for rank in range(strategy.pp):
        memory = rank_memory(found, traits, job.recipe.optimizer, rank, held_bytes(found, rank))
        assert memory.weights[0] >= states.weight_bytes * (
            least if zero < 3 else shared * (states.sharded_weight_bytes > 0)
        )
        assert memory.gradients[0] >= states.gradient_bytes * (least if zero < 2 else shared)
        assert memory.optimizer[0] >= states.state_bytes * (least if zero < 1 else shared)
        parts = (memory.weights, memory.gradients, memory.optimizer, memory.activations, memory.working)
        assert all(part[0] > 0 for part in parts)
        assert memory.total[0] >= sum(part[0] for part in parts) * ROUNDING


@pytest.mark.heavy
@settings(max_examples=60)
@given(jobs())
def test_everything_is_finite(job: Job) -> None:
    found = job.figures()
    for name in StepTable.__dataclass_fields__:
        if name not in ("grid", "chunks"):
            value = getattr(found, name)
            column = np.asarray(value.bytes(2.0) if name.endswith("_frozen") else value, float)
            assert np.all(np.isfinite(column) & (column >= 0)), name


# Packages that hold networks, prices and data: that a step trains is nothing they may ask about.
PACKAGES = ("graph", "cost", "catalog")


def asked(source: str) -> Iterator[str]:
    """Words of every condition in a program: names, attributes and texts, but no comments."""
    for node in ast.walk(ast.parse(source)):
        tests: list[ast.AST] = []
        if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)):
            tests = [node.test]
        elif isinstance(node, ast.comprehension):
            tests = list(node.ifs)
        elif isinstance(node, ast.match_case):
            tests = [node.pattern, *([node.guard] if node.guard else [])]
        elif isinstance(node, (ast.Compare, ast.BoolOp)):
            tests = [node]
        for word in (word for test in tests for word in ast.walk(test)):
            yield from _words(word)


def _words(node: ast.AST) -> Iterator[str]:
    found: Any = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "value", None)
    if isinstance(found, str):
        yield found


def test_conditions_are_found() -> None:
    """What the next test looks for, it would see."""
    for source in (
        "if training: pass",
        "x = 1 if self.is_training else 2",
        "y = [a for a in b if a.phase == 'train']",
        "z = phase == 'train' and 3",
        "match kind:\n    case 'train': pass",
        "assert plan.trains",
        "while not train(x): pass",
    ):
        assert any("train" in word.lower() for word in asked(source)), source
    assert not any("train" in word.lower() for word in asked('"""About training."""\nif x:  # training\n    train()'))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_condition_asks_whether_a_step_trains(package: str) -> None:
    files = sorted((Path(gnomon.__file__).parent / package).rglob("*.py"))
    assert files
    for file in files:
        assert [word for word in asked(file.read_text()) if "train" in word.lower()] == [], file.name
