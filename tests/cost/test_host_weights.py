"""Steps with weights in the host's memory: kernels that read them over the link, and copies ahead of their layers."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.cost.steps import deployed

from gnomon.cost.host_link import LINK_SHARE, READ_SHARE, READ_SPREAD
from gnomon.cost.prefetch import PIECES, UNCAPTURED, WHOLE, CopySchedule, PrefetchCost, lines_of
from gnomon.cost.step import StepModel
from gnomon.cost.table import TableStepCost
from gnomon.graph.host_ops import READ_ROWS, HostRead
from gnomon.spec import Batch

MEASURED = Path(__file__).parents[2] / "measurements/h200-2026-11-18-weight-offload"
EXACT, BETWEEN = 1e-12, 0.003
DENSE, EXPERTS, SHARED = "softmax, dense, tp 1", "softmax, experts, tp 1", "softmax, dense, tp 2"
OFFLOADED = [
    (DENSE, {"cpu_offload_gb": 5.0}),
    (EXPERTS, {"cpu_offload_gb": 7.3}),
    (SHARED, {"cpu_offload_gb": 2.0}),
    (DENSE, {"offload_group_size": 4}),
    (DENSE, {"offload_group_size": 8, "offload_num_in_group": 3, "offload_prefetch_step": 2}),
    (EXPERTS, {"offload_group_size": 32, "offload_prefetch_step": 4}),
    (SHARED, {"offload_group_size": 1}),
    (DENSE, {"offload_group_size": 4, "enforce_eager": True}),
]


def of(case: str, settings: dict[str, object]) -> tuple[StepModel, TableStepCost]:
    engine, deployment = deployed(case, **settings)
    table = engine.step_cost(deployment)
    assert isinstance(table, TableStepCost)
    return engine.step_model(deployment), table


@pytest.mark.parametrize(("case", "settings"), OFFLOADED)
def test_tables_equal_prices(case: str, settings: dict[str, object]) -> None:
    model, table = of(case, settings)
    for sequences in (1, 17, 256, 704):
        curve = table.decode_curve(sequences)
        for at in (0, 40, len(curve.context) - 1):
            price = model.price(Batch.decode(np.array([float(sequences)]), int(curve.context[at])))
            assert curve.seconds[at] == pytest.approx(price.time_s.value, rel=EXACT)
            work = table.decode_work(sequences, sequences * int(curve.context[at]))
            device = sum(one.time_s.value for one in price.operators) + price.gap_s.value
            assert work[0] == pytest.approx(device, rel=EXACT)
    for cached, chunks in (([], [(16, 0)]), ([], [(528, 300)]), ([900] * 40, [(472, 0)]), ([900] * 40, [(4056, 0)])):
        price = model.price(Batch.step(cached, chunks))
        device = sum(one.time_s.value for one in price.operators) + price.gap_s.value
        assert table.mixed(len(cached), sum(cached), chunks) == pytest.approx(device, rel=BETWEEN)


@pytest.mark.parametrize(("case", "settings"), OFFLOADED)
def test_no_draw_is_faster_than_the_link(case: str, settings: dict[str, object]) -> None:
    model, table = of(case, settings)
    steps = Batch.decode(np.array([8.0]), 1000)
    reads = sum(op.count * float(op.host_bytes(steps)[0]) for op in model.graph.ops if isinstance(op, HostRead))
    copies = model.prefetch.bytes if model.prefetch else 0.0
    least = (reads + copies) / model.machine.host.link.bandwidth_bytes_s
    assert least > 1e-3
    price = model.price(steps)
    assert price.time_s.value >= least
    assert price.time_s.draws.min() >= least
    assert all(table.drawn(draw).decode_curve(8).seconds.min() >= least for draw in range(0, 32, 7))


def test_a_draw_of_the_table_is_that_of_the_price() -> None:
    for settings in ({"cpu_offload_gb": 5.0}, {"offload_group_size": 4}):
        model, table = of(DENSE, settings)
        draws = model.price(Batch.decode(np.array([16.0]), 0)).time_s.draws
        for draw in (0, 3, 20):
            assert table.drawn(draw).decode_curve(16).seconds[0] == pytest.approx(draws[draw], rel=1e-9)


def test_reading_from_the_host_does_not_follow_the_clock() -> None:
    model, _ = of(DENSE, {"cpu_offload_gb": 15.0})
    price = model.price(Batch.decode(np.array([8.0]), 1000))
    assert price.at(1.3).time_s.value == pytest.approx(price.time_s.value, rel=0.01)
    assert {one.bound for one in price.operators if one.op.endswith(".from_host")} == {"host link"}


def test_prompts_read_the_weights_again_for_every_tile_of_rows() -> None:
    """No cache keeps them: the link bounds a GEMM of any number of rows."""
    model, _ = of(DENSE, {"cpu_offload_gb": 5.0})
    op = next(op for op in model.graph.ops if isinstance(op, HostRead) and op.name.startswith("ffn.up"))
    sizes = [Batch.step([], [(tokens, 0)]) for tokens in (1, 256, 257, 1024, 65536)]
    found = [float(model.machine.op_seconds(op, each)[0]) for each in sizes]
    alone = [float(model.machine.op_seconds(op.alone, each)[0]) for each in sizes]
    assert found == pytest.approx([times * found[0] for times in (1, 1, 2, 4, 256)])
    assert all(slow > quick for slow, quick in zip(found, alone, strict=True))


def waited(layers: int, places: list[int], copy_s: float, ahead: int, layer_s: float) -> float:
    """A step captured whole, by the events of two streams: the plain version."""
    count, at = len(places), {place: i for i, place in enumerate(places)}
    done, stream, now = [0.0] * count, 0.0, 0.0
    for layer in range(layers):
        if layer in at:
            now = max(now, done[at[layer]])
        now += layer_s
        if layer in at:
            nth = (at[layer] + ahead) % count
            stream = done[nth] = max(stream, now) + copy_s
    return max(now, stream)


SCHEDULES = [(28, 4, 1, 1), (28, 4, 1, 2), (48, 8, 2, 1), (48, 8, 2, 2), (28, 28, 1, 1), (28, 1, 1, 3), (80, 8, 3, 30)]


def schedule(layers: int, group: int, of_group: int, ahead: int, copy_s: float = 1.0) -> CopySchedule:
    places = [place for place in range(layers) if place % group >= group - of_group]
    copies = tuple((place, copy_s) for place in places)
    return CopySchedule(layers=layers, copies=copies, ahead=ahead, before_attention=0.15)


@pytest.mark.parametrize("sizes", SCHEDULES)
def test_lines_are_the_schedule(sizes: tuple[int, int, int, int]) -> None:
    one = schedule(*sizes)
    for layer_s in np.geomspace(1e-3, 1e3, 200).tolist():
        found = max(copies + layers * layer_s for copies, layers in lines_of(one, WHOLE))
        places = [place for place, _ in one.copies]
        assert found == pytest.approx(waited(one.layers, places, 1.0, one.ahead, layer_s), rel=1e-9)
        for how in (PIECES, UNCAPTURED):
            found = max(copies + layers * layer_s for copies, layers in lines_of(one, how))
            walked = one.walk(how, layer_s).at_s  # of which the first steps live on what was copied before them
            assert found >= walked * (1 - 1e-9)
            assert one.ahead > 3 or found == pytest.approx(walked, rel=0.03)


@pytest.mark.parametrize("sizes", SCHEDULES)
@pytest.mark.parametrize("how", [WHOLE, PIECES, UNCAPTURED])
def test_copies_are_hidden_in_part(sizes: tuple[int, int, int, int], how: int) -> None:
    """A step takes no less than its layers or its copies, and no more than both; slower layers hide more of them."""
    one = schedule(*sizes)
    cost = PrefetchCost(schedules=(one,), layers=one.layers, bytes=0.0, spread=0.0, source="")
    all_s = float(len(one.copies))
    waits = [cost.wait_s(layers_s, how) for layers_s in np.geomspace(1e-2, 1e4, 60).tolist()]
    for layers_s, wait in zip(np.geomspace(1e-2, 1e4, 60).tolist(), waits, strict=True):
        assert max(all_s - layers_s, 0.0) - 1e-9 <= wait <= all_s + 1e-9
    assert all(after <= before + 1e-9 for before, after in pairwise(waits))
    array = cost.wait_array_s(np.array([1.0, 30.0, 500.0]), how)
    assert array == pytest.approx([cost.wait_s(each, how) for each in (1.0, 30.0, 500.0)])


def test_pieces_of_a_graph_hide_least() -> None:
    one = PrefetchCost(schedules=(schedule(28, 4, 1, 1),), layers=28, bytes=0.0, spread=0.0, source="")
    for layers_s in (5.0, 28.0, 100.0):
        assert one.wait_s(layers_s, PIECES) >= one.wait_s(layers_s, WHOLE) >= one.wait_s(layers_s, UNCAPTURED)


def test_layers_of_stages_that_copy_nothing_are_no_part_of_those_that_do() -> None:
    """A pipeline of two stages, of which one copies, waits as that stage by itself."""
    one = schedule(28, 4, 1, 1)
    alone = PrefetchCost(schedules=(one,), layers=28, bytes=0.0, spread=0.0, source="")
    of_two = PrefetchCost(schedules=(one,), layers=56, bytes=0.0, spread=0.0, source="")
    for how in (WHOLE, PIECES, UNCAPTURED):
        assert of_two.wait_s(16.0, how) == pytest.approx(alone.wait_s(8.0, how))


def test_what_kernels_read_from_the_host_is_what_was_measured() -> None:
    """Two models fit the rate, the others check it."""
    with (MEASURED / "host_reads.csv").open() as file:
        rows = list(csv.DictReader(file))
    copied = LINK_SHARE * 63e9  # PCIe 5.0 x16

    def ratios(*models: str) -> np.ndarray:
        found = []
        for row in rows:
            if row["model"] in models:
                reads = np.ceil(int(row["m"]) / READ_ROWS)
                least_s = max(2 * int(row["n"]) * int(row["k"]) * reads / copied, 1e-6 * float(row["chip_us"]))
                found.append(least_s / (1e-6 * float(row["host_us"])))
        return np.array(found)

    assert np.median(ratios("qwen2.5-7b", "llama-3.1-8b")) == pytest.approx(READ_SHARE, abs=0.01)
    others = np.log(ratios("qwen2.5-14b", "llama-3.1-70b") / READ_SHARE)
    assert abs(np.median(others)) < 0.05
    assert others.std() < READ_SPREAD
