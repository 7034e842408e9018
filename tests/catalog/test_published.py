"""Published runs: said with their source, and said so that they can be predicted."""

from __future__ import annotations

import inspect
import math

import pytest

from gnomon import catalog
from gnomon.api.simulate_training import simulate_training
from gnomon.catalog.published import FIGURES, PublishedRun, PublishedTable, published_training

TABLES = published_training()
RUNS = [(table.name, run) for table in TABLES for run in table.runs]
ALL_TABLES = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
ALL_RUNS = pytest.mark.parametrize("run", [run for _, run in RUNS], ids=[f"{name}-{run.on}" for name, run in RUNS])


def test_names_are_unique() -> None:
    names = [table.name for table in TABLES]
    assert len(set(names)) == len(names)


@ALL_TABLES
def test_every_table_says_where_it_is_from(table: PublishedTable) -> None:
    assert table.address.startswith("https://")
    assert all((table.authors, table.title, table.table, table.read_from))
    assert 2017 < table.year < 2100
    assert all(peer["note"] and 0 < peer["mean_error"] < 1 for peer in table.peers)


@ALL_TABLES
def test_rates_say_what_they_count(table: PublishedTable) -> None:
    assert any("tflops" in run.figures for run in table.runs) == bool(table.counted)


@ALL_RUNS
def test_a_run_is_a_known_model_on_known_chips(run: PublishedRun) -> None:
    chip, _, count = run.on.partition(":")
    assert run.model in catalog.model_names()
    assert chip in catalog.chip_names()
    used = math.prod(run.options.get(name, 1) for name in ("tp", "pp"))
    assert int(count) % used == 0
    assert run.options["global_batch"] % (run.options["micro_batch"] * (int(count) // used)) == 0


@ALL_RUNS
def test_a_run_is_said_in_words_that_are_understood(run: PublishedRun) -> None:
    assert set(run.options) <= set(inspect.signature(simulate_training).parameters)
    assert run.figures
    assert all(name in FIGURES and value > 0 for name, value in run.figures.items())


def test_memory_is_that_of_the_papers_formulas() -> None:
    """Korthikanti et al. 2022: 18 bytes a parameter of 12 l h^2; activations of a layer with tensor and sequence
    parallelism, as many as the first stage holds. So nothing was mistyped, and no GPU was read."""
    from gnomon.load import model as load_model

    (table,) = [table for table in TABLES if table.name == "korthikanti-2022-figure-1"]
    for run in table.runs:
        model, words, t = load_model(run.model), run.options, run.options["tp"]
        h, seq, pp, vp = model.hidden, words["seq"], words.get("pp", 1), words.get("vp", 1)
        states = 18 * 12 * model.layers * h**2 / (t * pp)
        squares = 5 * model.blocks[0].mixer.heads * seq / (h * t) if words["recompute"] == "none" else 0.0
        widths = 34 / t if words["sequence_parallel"] else 10 + 24 / t
        ahead = 1 + (pp - 1) / (pp * vp) if vp > 1 else 1
        activations = seq * words["micro_batch"] * h * model.layers * (widths + squares) * ahead
        assert run.figures["states_gib"] * 1024**3 == pytest.approx(states, rel=1e-9)
        assert run.figures["activations_gib"] * 1024**3 == pytest.approx(activations, rel=1e-9)
