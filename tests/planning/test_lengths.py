"""Training on sequences that differ in length: laws, a plain step, memory, searches, and what engines have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.engines import training_engine, training_engines
from gnomon.engines.training import Grid
from gnomon.engines.training.batches import RowBatches
from gnomon.engines.training.layer_cost import ops_of, tapes_of, useful_flops
from gnomon.errors import InputError
from gnomon.load.plan import read_plan, write_plan
from gnomon.load.training import bind_training, planned_step, with_lengths
from gnomon.planning.training.drawn import in_step
from gnomon.planning.training.drawn_bounds import drawn_bounds_s, path_bounds_s
from gnomon.planning.training.lengths import lengths_figures
from gnomon.planning.training.search import Search, search_of
from gnomon.planning.training.step import TrainingStep
from gnomon.spec import Batch
from gnomon.spec.answers import TrainingReport
from gnomon.spec.loads.documents import Documents
from gnomon.spec.loads.packing import PackedRows
from gnomon.spec.questions.objectives import PlanTrainingQuestion
from gnomon.spec.training import PACKINGS

SPREAD = "lognormal:mean=500,cv=1.5"
JOB: dict[str, Any] = {"on": "H100:8", "seq": 4096, "global_batch": 32}
ABOUT = ("title", "inputs", "plan", "lengths", "not_modelled", "targets")
"""Parts of an answer that say what was asked, and for whom the plan is."""
LATEST = ("transformers", "megatron", "megatron@bridge", "torchtitan", "torch", "deepspeed")


@cache
def asked(model: str = "llama-3.2-1b", **given: Any) -> TrainingReport:
    return gnomon.simulate_training(model, **JOB | given)


def simulated(model: str = "llama-3.2-1b", **given: Any) -> TrainingReport:
    return asked(model, **given)


def figures(found: TrainingReport) -> dict[str, Any]:
    said = found.to_dict()
    return {name: said[name] for name in said if name not in ABOUT}


@pytest.mark.battery(3)
@pytest.mark.parametrize(
    "given",
    [
        {"engine": "transformers"},
        {"engine": "transformers", "packing": "padding-free"},
        {"engine": "transformers", "sampling": "balanced", "micro_batch": 2},
        {"engine": "megatron@bridge", "packing": "ffd", "pp": 2, "zero": 1},
        {"engine": "megatron", "packing": "max-length", "tp": 2, "cp": 2, "zero": 3},
        {"engine": "megatron", "document_masking": True, "pp": 4, "vp": 2},
        {"engine": "torchtitan", "cp": 2, "zero": 3},
    ],
    ids=str,
)
def test_a_constant_length_is_todays_answer_to_the_bit(given: dict[str, Any]) -> None:
    plain = {name: value for name, value in given.items() if name not in ("packing", "sampling", "document_masking")}
    found = simulated(**given, lengths=4096)
    assert figures(found) == figures(simulated(**plain))
    assert found.lengths["padding_share"] == found.lengths["imbalance_s"] == 0.0


def test_a_shorter_constant_length_is_that_sequence() -> None:
    found, plain = simulated(engine="transformers", lengths=1024), simulated(engine="transformers", seq=1024)
    assert figures(found) == figures(plain)


@pytest.mark.battery(6)
@pytest.mark.parametrize("engine", LATEST)
def test_packing_is_never_slower_per_token_than_padding_to_the_most(engine: str) -> None:
    ways = [way.name for way in training_engine(engine).traits(simulated().step.job.model).packings]
    zero = 0 if engine in ("transformers", "deepspeed") else 3 if engine == "torchtitan" else 1
    found = {way: simulated(engine=engine, lengths=SPREAD, packing=way, zero=zero) for way in ways}
    each = {way: one.lengths["tokens_per_s"] for way, one in found.items()}
    least = min(each.values())
    assert least == each.get("max-length", least)
    assert each.get("padding-free", np.inf) >= each.get("none", 0.0)
    assert len(ways) == 1 or each[ways[-1]] > 0


def test_more_variance_is_never_faster_for_padded_batches() -> None:
    spreads = [0, 100, 300, 499]
    times = [
        simulated(engine="megatron@bridge", lengths=f"uniform:low={500 - by},high={500 + by}", micro_batch=2, zero=1)
        for by in spreads
    ]
    seconds = [one.step_time_s.value for one in times]
    assert seconds == sorted(seconds)
    padding = [one.lengths["padding_share"] for one in times]
    assert padding == sorted(padding)
    assert padding[0] == 0 < padding[-1]


def test_tokens_are_conserved() -> None:
    """Every token that is drawn is trained on, whatever becomes of it, but for those cut off at the most."""
    ways = {
        way: simulated(engine=engine, lengths="uniform:low=10,high=900", packing=way)
        for engine, way in (("transformers", "none"), ("transformers", "padding-free"), ("megatron", "max-length"))
    }
    assert len({one.lengths["tokens_per_step"] for one in ways.values()}) == 1
    for one in ways.values():
        said = one.lengths
        assert said["padded_tokens_per_step"] * (1 - said["padding_share"]) == pytest.approx(said["tokens_per_step"])
        assert said["sequences_per_step"] == pytest.approx(32, rel=1e-9)
        assert one.tokens_per_s_per_gpu * 8 == pytest.approx(said["tokens_per_s"])
    assert ways["padding-free"].lengths["padding_share"] == 0
    packed = simulated(engine="transformers", lengths="uniform:low=10,high=900", packing="bfd").lengths
    assert packed["packing_efficiency"] > 0.97
    assert packed["tokens_per_step"] == pytest.approx(packed["packing_efficiency"] * 32 * 4096)


def test_document_masking_is_never_slower() -> None:
    masked, whole = (simulated(lengths=SPREAD, packing="wrapped", document_masking=mask) for mask in (True, False))
    assert masked.step_time_s.value < whole.step_time_s.value
    assert whole.step_time_s.value == simulated().step_time_s.value


def test_ranks_that_meet_in_every_layer_wait_more() -> None:
    given = {"engine": "megatron@bridge", "lengths": SPREAD, "global_batch": 128}
    alone, sharded = (simulated(**given, zero=zero) for zero in (1, 3))
    assert 0 < alone.lengths["imbalance_s"] < 0.75 * sharded.lengths["imbalance_s"]
    even = simulated(**given, zero=1, sampling="balanced")
    assert even.lengths["imbalance_s"] < 0.5 * alone.lengths["imbalance_s"]
    assert simulated(**given, dp=1, on="H100:1").lengths["imbalance_s"] == pytest.approx(0, abs=1e-9)


def test_experts_make_ranks_wait_for_each_other() -> None:
    def together(**given: Any) -> list[int]:
        report = simulated("qwen3-30b-a3b", **{"on": "H100:16", "zero": 1, "engine": "megatron"} | given)
        return in_step(Grid.of(report.step.job.strategy, report.step.job.recipe), report.step.traits).tolist()

    assert together(ep=4) == [4]
    assert together(ep=8, tp=2, expert_tp=1) == [4]
    assert together(ep=1) == [1]
    assert together(zero=3) == [16]


def test_an_interval_has_the_steps_that_are_drawn() -> None:
    load = {"engine": "transformers", "micro_batch": 4, "lengths": "lognormal:mean=500,cv=3", "packing": "padding-free"}
    found = simulated("llama-3.1-8b", **load)
    mean, step = found.step.mean_step_s, found.step.step_s
    assert mean.value == step.value
    assert np.log(step.draws).std() > 1.1 * np.log(mean.draws).std()
    assert found.step_time_s.low < mean.low
    # Over a run lengths average out.
    run = simulated("llama-3.1-8b", **load, tokens=1e9)
    low, high = run.bands["run"]["days"]
    assert high / low < found.step_time_s.high / found.step_time_s.low
    assert run.run["steps"] == np.ceil(1e9 / run.lengths["tokens_per_step"])


def test_memory_is_that_of_the_fullest_micro_batch() -> None:
    """Some micro-batch has the longest sequence there may be, however rare it is."""
    full = simulated(engine="transformers", micro_batch=2)
    padded = simulated(engine="transformers", micro_batch=2, lengths="lognormal:mean=100,cv=0.5")
    assert padded.peak_memory_bytes.value == full.peak_memory_bytes.value
    short = simulated(engine="transformers", micro_batch=2, lengths="uniform:low=1,high=512")
    same = simulated(engine="transformers", micro_batch=2, seq=512)
    assert short.peak_memory_bytes.value == same.peak_memory_bytes.value
    flat = simulated(engine="transformers", micro_batch=2, lengths="uniform:low=1,high=512", packing="padding-free")
    one = simulated(engine="transformers", micro_batch=1, seq=512)
    assert one.peak_memory_bytes.value < flat.peak_memory_bytes.value <= short.peak_memory_bytes.value


def test_the_same_seed_gives_the_same_answer() -> None:
    one, other = (gnomon.simulate_training("llama-3.2-1b", **JOB, lengths=SPREAD, packing="bfd") for _ in range(2))
    assert one.to_dict() == other.to_dict()
    reseeded = simulated(lengths=SPREAD, packing="bfd", seed=1)
    assert reseeded.step_time_s.value != one.step_time_s.value
    assert reseeded.step_time_s.value == pytest.approx(one.step_time_s.value, rel=0.05)


def plain_batch(lengths: list[int], cp: int) -> Batch:
    """A micro-batch of documents as one of so many context-parallel ranks has it, sums taken one by one."""
    mine = [length / cp for length in lengths]
    tokens, pairs = sum(mine), sum(each * (each + 1) / 2 for each in mine)
    documents = Documents(
        rows=PackedRows(np.array(lengths), np.zeros(1, np.int64)), row=np.zeros(1, np.int64),
        at=np.zeros(1, np.int64), weight=np.ones(1), of=np.zeros(1, np.int64),
        longest=np.array([float(max(lengths))]), cp_load=np.ones(1),
    )  # fmt: skip
    sums = (0.0, 0.0, float(len(lengths)), tokens, pairs, tokens, float(len(lengths)))
    return Batch(*(np.array([one]) for one in sums), documents=documents)


@pytest.mark.heavy
@pytest.mark.battery(4)
@pytest.mark.parametrize(
    ("given", "off"),
    [
        ({"engine": "transformers", "packing": "padding-free", "micro_batch": 2}, 5e-3),
        ({"engine": "transformers", "packing": "bfd"}, 3e-3),
        ({"engine": "megatron", "packing": "wrapped", "document_masking": True, "cp": 2, "zero": 1}, 3e-3),
        ({"engine": "megatron", "packing": "bfd", "zero": 3}, 3e-3),
    ],
    ids=str,
)
def test_a_step_plainly(given: dict[str, Any], off: float) -> None:
    """Drawn steps rank by rank and micro-batch by micro-batch, each priced by itself; FLOPs document by document."""
    from gnomon.cost import tapes
    from gnomon.engines.training.layer_cost import units

    found = simulated(**given, lengths=SPREAD).step
    job, cp, dp = found.job, found.job.strategy.cp, found.job.strategy.dp
    drawn = RowBatches(job.model, job.load, Grid.of(job.strategy, job.recipe)).drawn(0, cp)
    parts = tapes_of(job.model, found.cut, found.traits)
    documents = np.split(drawn.kernel_rows.documents, drawn.kernel_rows.starts[1:])
    taken: dict[int, float] = {}

    def seconds(micro: int) -> float:
        if micro not in taken:
            lengths = [each for row in drawn.members[micro].tolist() for each in documents[row].tolist()]
            batch = plain_batch(lengths, cp)
            times = tapes.price(ops_of([parts]), found.machine, batch)
            made = units(parts, job.recipe.recompute, times, found.machine, batch, found.traits)
            often = {"layer": job.model.layers}
            taken[micro] = sum(
                often.get(name, 1) * float((one.forward_s + one.backward_s)[0]) for name, one in made.items()
            )
            pairs = sum(length * (length + 1) / 2 for length in lengths)
            core = [op for op in ops_of([parts]) if op.kind == "attention_forward"]
            flops = sum(float(op.flops(batch)[0]) for op in core)
            expected = 4 * pairs / cp * core[0].heads * core[0].head_dim * len(core)  # type: ignore[union-attr]
            assert flops == pytest.approx(expected, rel=1e-9)
        return taken[micro]

    ranks, steps = drawn.on_ranks(dp), 4
    lockstep = job.recipe.zero == 3
    plain = []
    for step in range(steps):
        table = [[seconds(micro) for micro in rank] for rank in ranks[step].tolist()]
        plain.append(sum(map(max, zip(*table, strict=True))) if lockstep else max(map(sum, table)))
    assert found.drawn is not None
    # What every micro-batch adds beside its kernels: the sum of gradients, and exposed gathers.
    beside = found.drawn.pipeline_s[:steps] - np.array(plain)
    assert np.ptp(beside) <= off * np.mean(plain)
    assert (beside > -off * np.mean(plain)).all()


def test_useful_flops_leave_padding_out() -> None:
    """Utilisation counts what the model needs of real tokens; hardware utilisation all that is computed."""
    padded = simulated(lengths="uniform:low=1024,high=1024", packing="max-length", engine="megatron")
    exact = simulated(seq=1024)
    flops = padded.mfu * padded.step_time_s.value
    assert flops == pytest.approx(exact.mfu * exact.step_time_s.value, rel=1e-9)
    assert padded.hfu == simulated(engine="megatron").hfu
    step = exact.step
    parts = tapes_of(step.job.model, step.cut, step.traits)
    whole = useful_flops(parts, {"layer": step.job.model.layers}, step.batch)
    ranks = step.job.load.global_batch // step.job.recipe.micro_batch
    assert float(whole[0]) * ranks == pytest.approx(step.flops["model"], rel=1e-9)


REFUSED: dict[str, Callable[[], Any]] = {
    "transformers 5.17 has no packing ffd. Use none or max-length or padding-free or bfd or wrapped, or the engine "
    "megatron": lambda: simulated(engine="transformers", lengths=SPREAD, packing="ffd"),
    "--document-masking: transformers 5.17 has always document masking with packing bfd": lambda: simulated(
        engine="transformers", lengths=SPREAD, packing="bfd", document_masking=False
    ),
    "--document-masking: TorchTitan 2024 has no document masking with packing wrapped": lambda: simulated(
        engine="torchtitan@2024", lengths=SPREAD, document_masking=True, zero=3
    ),
    "unknown packing 'best'": lambda: simulated(lengths=SPREAD, packing="best"),
    "--lengths: unknown distribution of lengths 'normal'": lambda: simulated(lengths="normal:mean=5"),
    "--lengths: needs mean and cv": lambda: simulated(lengths="lognormal:mean=5"),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_no_engine_does_so_is_refused(said: str) -> None:
    with pytest.raises(InputError) as refused:
        REFUSED[said]()
    assert said in str(refused.value)


def test_every_packing_is_some_engines() -> None:
    model = simulated().step.job.model
    have = {way.name for name in training_engines() for way in training_engine(name).traits(model).packings}
    assert have == set(PACKINGS)


def test_a_plan_file_keeps_its_lengths(tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("length,count\n100,5\n700,3\n4000,1\n")
    found = simulated(engine="transformers", lengths=f"file:{lengths}", packing="bfd", sampling="balanced", seed=4)
    write_plan(found.plan, tmp_path / "plan.yaml")
    again = read_plan(tmp_path / "plan.yaml")
    step = planned_step(again)
    assert step.step_s.value == found.step_time_s.value
    assert lengths_figures(step) == found.lengths
    assert (found.lengths["longest_tokens"], again.load) == (4000, again.load)
    text = (tmp_path / "plan.yaml").read_text()
    assert all(word in text for word in ("packing: bfd", "sampling: balanced", "seed: 4", "lengths.csv"))


def test_options_about_lengths_without_lengths_are_listed() -> None:
    listed = {one.option for one in simulated(packing="bfd", sampling="balanced", seed=3).not_modelled}
    assert {"--packing bfd", "--sampling balanced", "--seed 3"} <= listed
    alike = simulated(lengths=SPREAD, packing="max-length", sampling="balanced").not_modelled
    assert "--sampling balanced" in {one.option for one in alike}


def search(lengths: str | None, **given: Any) -> Search:
    usual: dict[str, Any] = {"cluster": "H100:4", "seq": 8192, "global_batch": 16}
    question = PlanTrainingQuestion(model="llama-3.2-1b", lengths=lengths, **usual | given)
    bound = bind_training(question.model, question.cluster, question.engine, "--cluster")
    bound = with_lengths(bound, question)
    return search_of(bound, bound.load(question.load), "adamw", None)


@pytest.mark.heavy
@pytest.mark.battery(3)
@pytest.mark.parametrize(
    "given",
    [
        {"lengths": "lognormal:mean=900,cv=2", "engine": "megatron@bridge"},
        {"lengths": "lognormal:mean=900,cv=2", "packing": "wrapped", "document_masking": True},
    ],
    ids=str,
)
def test_no_plan_is_faster_than_its_bound(given: dict[str, Any]) -> None:
    found = search(**given)
    some = np.random.default_rng(0).choice(np.flatnonzero(found.fits), 20, replace=False)
    for row in some.tolist():
        assert found.step_s(row) >= found.bounds_s[row] * (1 - 1e-12)


@pytest.mark.slow
def test_paths_are_below_what_pipelines_take_and_tell_more_than_the_mean() -> None:
    found = search("lognormal:mean=900,cv=2", engine="megatron@bridge")
    rows, plans = found.priced
    paths, means = (of(found.case, plans) for of in (path_bounds_s, drawn_bounds_s))
    piped = np.flatnonzero(plans.grid.pp > 1)
    for place in np.random.default_rng(0).choice(piped, 30, replace=False).tolist():
        taken = found.step_s(int(rows[place])) - plans.optimizer_s[place] - plans.gather_s[place]
        assert max(paths[place], means[place]) <= taken
    assert (paths > means)[piped].mean() > 0.2


def test_a_timed_plan_is_the_simulated_one() -> None:
    found = search("lognormal:mean=900,cv=2", engine="megatron@bridge")
    row = int(np.flatnonzero(found.fits & (found.grid.pp == 2) & (found.grid.vp == 1))[0])
    strategy, recipe = found.grid.strategy(row), found.grid.recipe(row, "adamw")
    job = found.bound.job(strategy, recipe, found.load, found.dtype)
    step = TrainingStep(found.engine, replace(job, pool=replace(found.pool, count=strategy.ranks)), found.bound.profile)
    assert step.step_s.value == pytest.approx(found.step_s(row), rel=1e-9)


@pytest.mark.slow
def test_the_best_plan_is_the_fastest_of_all() -> None:
    found = search("lognormal:mean=300,cv=1.5", engine="megatron@bridge", cluster="H100:2", seq=1024, global_batch=4)
    every = {row: found.step_s(row) for row in np.flatnonzero(found.fits).tolist()}
    report = gnomon.plan_training(
        "llama-3.2-1b", cluster="H100:2", seq=1024, global_batch=4, lengths="lognormal:mean=300,cv=1.5",
        engine="megatron@bridge",
    )  # fmt: skip
    assert len(every) > 50
    assert report.best.step_time_s.value == pytest.approx(min(every.values()), rel=1e-9)
    assert report.bound_s <= min(every.values())
