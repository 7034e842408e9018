"""One function over many items: the same results in the same order, wherever the work is done."""

from __future__ import annotations

import os
import pickle
import sys
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from tests.runner import fragile, work

from gnomon.errors import InfeasibleError, InputError, MissingExtraError, UnwrittenError
from gnomon.runner import WorkerDiedError, WorkerStartError, ordered
from gnomon.runner.base import MOST_BATCH, START_TRIES, WINDOW, Feed, JobOutcome


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_results_in_the_order_of_the_items(jobs: int) -> None:
    assert list(ordered(work.square, range(20), jobs=jobs)) == [n * n for n in range(20)]
    assert list(ordered(work.slow_when_even, range(8), jobs=jobs)) == list(range(8))
    assert list(ordered(work.square, [], jobs=jobs)) == []


def test_one_job_is_this_process_and_more_are_others() -> None:
    assert set(ordered(work.who, range(3))) == {os.getpid()}
    assert os.getpid() not in set(ordered(work.who, range(3), jobs=2))


@pytest.mark.parametrize("jobs", [1, 2])
def test_items_without_end_are_taken_as_they_are_needed(jobs: int) -> None:
    items = count()
    results = ordered(work.square, items, jobs=jobs)
    assert list(islice(results, 5)) == [0, 1, 4, 9, 16]
    assert next(items) <= 5 + WINDOW * jobs * MOST_BATCH
    results.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_is_raised_in_its_turn_with_its_class(jobs: int) -> None:
    results = ordered(work.fails_at_three, range(9), jobs=jobs)
    assert list(islice(results, 3)) == [0, 1, 2]
    with pytest.raises(InfeasibleError) as caught:
        next(results)
    told = caught.value
    assert (told.message, told.where, told.hint, told.nearest) == ("three", "--number", "Take four.", {"number": 4})
    assert told.exit_code == 4


def test_errors_of_any_class_come_back() -> None:
    with pytest.raises(MissingExtraError, match="this needs the package 'ray'"):
        list(ordered(work.lacks_an_extra, range(2), jobs=2))
    with pytest.raises(RuntimeError, match="OddError: 1 and 2"):
        list(ordered(work.fails_oddly, range(2), jobs=2))


@pytest.mark.parametrize(
    "error",
    [
        InputError("m", where="w", hint="h"),
        MissingExtraError("p", "e", "w"),
        UnwrittenError(InputError("m", where="w"), "answer"),
        WorkerDiedError({"batch": 3}),
        WorkerStartError({"batch": 3}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_being_sent(error: InputError) -> None:
    sent = pickle.loads(pickle.dumps(error))
    assert type(sent) is type(error)
    assert (str(sent), sent.__dict__) == (str(error), error.__dict__)


def test_a_worker_that_dies_is_told_by_its_item() -> None:
    results = ordered(work.dies_at_five, range(12), jobs=2)
    assert list(islice(results, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(WorkerDiedError, match="ran 5"):
        next(results)


def test_the_others_go_on_where_one_dies() -> None:
    results = list(ordered(work.dies_at_five, range(12), jobs=2, died=lambda item: -item))
    assert results == [0, 1, 2, 3, 4, -5, *range(6, 12)]


def test_a_worker_that_was_killed_by_chance_costs_nothing(tmp_path: Path) -> None:
    items = [(number, str(tmp_path)) for number in range(12)]
    assert list(ordered(work.dies_once, items, jobs=2)) == list(range(12))
    assert (tmp_path / "died").exists()


def killed_at_start(folder: Path, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(times):
        (folder / str(number)).touch()
    monkeypatch.setenv(fragile.FOLDER, str(folder))


def test_workers_that_are_killed_as_they_start_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_at_start(tmp_path, START_TRIES - 1, monkeypatch)
    assert list(ordered(fragile.square, range(9), jobs=2)) == [n * n for n in range(9)]
    assert not list(tmp_path.iterdir()), "none was killed"


def test_starts_are_not_tried_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_at_start(tmp_path, 3 * START_TRIES, monkeypatch)
    with pytest.raises(WorkerStartError, match=f"{START_TRIES} worker processes in a row .* for [01]"):
        list(ordered(fragile.square, range(9), jobs=2))


def test_without_ray_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"ray.*gnomon\[ray\]"):
        list(ordered(work.square, range(3), ray="local"))


class TestFeed:
    def drained(self, feed: Feed[int]) -> list[Any]:
        return [(item, outcome.value) for item, outcome in feed.ready()]

    def test_outcomes_wait_for_those_before_them(self) -> None:
        feed = Feed([10, 11, 12], workers=1)
        for _ in range(3):
            feed.take()
        feed.put(2, JobOutcome(value="c"), 1.0)
        assert self.drained(feed) == []
        feed.put(0, JobOutcome(value="a"), 1.0)
        assert self.drained(feed) == [(10, "a")]
        feed.put(1, JobOutcome(value="b"), 1.0)
        assert self.drained(feed) == [(11, "b"), (12, "c")]

    def test_no_more_is_out_than_the_window(self) -> None:
        feed = Feed(range(1000), workers=2)
        taken = []
        while batch := feed.take():
            taken += batch
        assert len(taken) == 2 * WINDOW
        feed.put(5, JobOutcome(value=5), 1.0)  # not the first: it still takes its place
        assert feed.take() == []
        feed.put(0, JobOutcome(value=0), 1.0)
        list(feed.ready())
        assert feed.take() == [(8, 8)]

    def test_quick_items_travel_together(self) -> None:
        feed = Feed(range(100_000), workers=1)
        for _ in range(200):
            for index, item in feed.take():
                feed.put(index, JobOutcome(value=item), 1e-5)
            list(feed.ready())
        assert len(feed.take()) == MOST_BATCH
