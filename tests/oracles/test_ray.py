"""Sweeps on Ray: the same bytes as processes give, and the same errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed; run `make test-oracles`")

from tests.runner import work  # noqa: E402

from gnomon.api.sweep import sweep  # noqa: E402
from gnomon.errors import InfeasibleError, InputError  # noqa: E402
from gnomon.runner import WorkerDiedError, ordered  # noqa: E402
from gnomon.runner import cluster as cluster_module  # noqa: E402

pytestmark = pytest.mark.oracle
STEPS: dict[str, Any] = {
    "command": "predict",
    "fixed": {"model": "llama-3.2-1b", "on": "H100"},
    "over": {"dtype": ["bf16", "fp8"], "batch": [0, 1, 2, 4, 8, 16, 32, 64], "context": [0, 128, 512, 2048]},
}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One for all tests, which Gnomon finds and leaves running."""
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_the_same_bytes_as_processes(tmp_path: Path) -> None:
    sweep(STEPS, out=tmp_path / "serial.jsonl")
    report = sweep(STEPS, out=tmp_path / "ray.jsonl", ray="local", jobs=2)
    assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "serial.jsonl").read_bytes()
    assert (report.questions, report.refused) == (64, 8)


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    sweep(STEPS, out=tmp_path / "serial.jsonl")
    whole = (tmp_path / "serial.jsonl").read_bytes()
    sweep(STEPS, out=tmp_path / "ray.jsonl")
    (tmp_path / "ray.jsonl").write_bytes(whole[: len(whole) // 3])
    report = sweep(STEPS, out=tmp_path / "ray.jsonl", ray="local")
    assert (tmp_path / "ray.jsonl").read_bytes() == whole
    assert 0 < report.found < 64


def test_results_in_order_and_errors_with_their_class() -> None:
    assert list(ordered(work.slow_when_even, range(30), ray="local", jobs=2)) == list(range(30))
    results = ordered(work.fails_at_three, range(9), ray="local", jobs=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InfeasibleError, match="three"):
        next(results)


def test_a_worker_that_dies_is_told_by_its_item(tmp_path: Path) -> None:
    results = list(ordered(work.dies_at_five, range(12), ray="local", jobs=2, died=lambda item: -item))
    assert results == [0, 1, 2, 3, 4, -5, *range(6, 12)]
    with pytest.raises(WorkerDiedError, match="ran 5"):
        list(ordered(work.dies_at_five, range(12), ray="local", jobs=2))
    items = [(number, str(tmp_path)) for number in range(12)]
    assert list(ordered(work.dies_once, items, ray="local", jobs=2)) == list(range(12))


def test_workers_stand_where_their_caller_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lengths.csv").write_text("input_tokens,output_tokens\n" + "100,8\n" * 20)
    fixed = {"model": "llama-3.2-1b", "on": "H100", "trace": "lengths.csv"}
    sweep({"command": "simulate serve", "fixed": fixed, "over": {"rate": [5, 10]}}, out="a.jsonl", ray="local")
    rows = [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()]
    assert [row["answer"]["requests"] for row in rows] == [20, 20]


def test_another_version_of_gnomon_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_version", lambda: "99.0")
    with pytest.raises(InputError, match=r"a worker cannot run it: .*the caller 99\.0"):
        sweep(STEPS, out=tmp_path / "a.jsonl", ray="local")
    assert (tmp_path / "a.jsonl").read_bytes() == b""


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_a_cluster_that_is_not_there(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(InputError, match=f"--ray: '{address}' cannot be reached"):
        list(ordered(work.square, range(3), ray=address))
