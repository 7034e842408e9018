"""What every experiment keeps to, without PyTorch: names, sizes, the rule of strides, and what errors name."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from gnomon.cli.run import run
from gnomon.errors import InputError, MissingExtraError, UnknownNameError
from gnomon.lab import EXPERIMENTS, experiment
from gnomon.lab.base import (
    PREDICTIONS,
    UNITS,
    Amounts,
    Check,
    Compared,
    Findings,
    LabClaim,
    LabRow,
    LabRun,
    Outcome,
    Predicted,
    Rates,
    RateUnknown,
    Sustained,
    beaten,
    parse_sizes,
    row_from_dict,
    row_to_dict,
)
from gnomon.lab.batch import BatchLimits, run_batch, to_dict
from gnomon.lab.bench import Bench
from gnomon.lab.experiments.deep_optimizer_states import Queues, best_stride, seconds_per_parameter
from gnomon.lab.int4 import rows_of, tiles
from gnomon.lab.keep import keep
from gnomon.load.chips import chip as find_chip
from gnomon.papers.executed import executed
from gnomon.papers.executed import outcome as stored_outcome
from gnomon.papers.index import file_of


@pytest.mark.parametrize("slug", EXPERIMENTS)
def test_every_experiment(slug: str) -> None:
    found = experiment(slug)
    assert found.slug == slug
    assert found.title and found.checks
    assert found.claim.what and found.claim.why and isinstance(found.claim.comparable, bool)
    assert len({size.name for size in found.sizes}) == len(found.sizes)
    for size in found.sizes:
        assert size.least <= size.on_cpu <= size.most
        assert size.least <= size.default <= size.most
    assert found.read_sizes({}, "cuda") == {size.name: size.default for size in found.sizes}
    assert found.read_sizes({}, "cpu") == {size.name: size.on_cpu for size in found.sizes}


GUIDE = Path(__file__).parents[2] / "docs" / "lab.md"
RATE = ("_bytes_s", "_parameters_s", "_flops_s", "_launches_s", "_hz")


@pytest.mark.parametrize("slug", EXPERIMENTS)
def test_every_prediction_is_of_a_row_that_has_not_run(slug: str) -> None:
    """From the chip and from rates of the machine alone, at any sizes."""
    found, chip = experiment(slug), find_chip("H200")
    assert all(name.endswith(RATE) for name in found.rates), "a rate, not a time of the run"
    rates = Rates(names=found.rates, measured=dict.fromkeys(found.rates, 1e10))
    for device in ("cuda", "cpu"):
        rows = found.rows(found.read_sizes({}, device))
        assert len({row.what for row in rows}) == len(rows)
        for row in rows:
            assert row.unit in UNITS
            told = found.predict(row, rates, chip)
            assert told is None or (told.by and told.kind in PREDICTIONS and 0 < told.gain < math.inf)


def test_a_prediction_is_given_rates_and_no_times() -> None:
    rates = Rates(names=("link_bytes_s", "cpu_hz"), measured={"link_bytes_s": 5, "iteration_s": 1.0})
    assert rates["link_bytes_s"] == 5.0
    with pytest.raises(RateUnknown, match="cpu_hz"):
        rates["cpu_hz"]
    with pytest.raises(KeyError, match="iteration_s is not among the rates"):
        rates["iteration_s"]


def test_sizes_are_read_and_refused() -> None:
    found = experiment("deep-optimizer-states")
    assert found.read_sizes({"parameters": "1.2e9"}, "cpu")["parameters"] == 1_200_000_000
    with pytest.raises(UnknownNameError, match=r"parametres.*parameters"):
        found.read_sizes({"parametres": "5"}, "cpu")
    for text in ("-1", "0", "1.5", "much", "1e12", "nan"):
        with pytest.raises(InputError, match="--size parameters"):
            found.read_sizes({"parameters": text}, "cpu")
    assert parse_sizes(["a=1", "b=2=3"]) == {"a": "1", "b": "2=3"}
    for words in (["a"], ["=1"], ["a="], ["a=1", "a=2"]):
        with pytest.raises(InputError, match="--size"):
            parse_sizes(words)


def test_a_layer_is_not_rounded_by_too_few_tokens() -> None:
    found = experiment("gptq")
    with pytest.raises(InputError, match="--size tokens"):
        found.read_sizes({"tokens": "1"}, "cpu")
    sizes = found.read_sizes({"tokens": "64", "layer": "4096"}, "cpu")
    with pytest.raises(InputError, match=r"--size tokens: 64 tokens are too few for this layer\. Give at least 256"):
        found.work(None, sizes)


def outcome(*checks: Check, rows: tuple[Compared, ...] = ()) -> Outcome:
    where = {"device": "cpu", "sm_hz": None, "date": "2026-11-15", "versions": {}, "notes": (), "wall_s": 1.0}
    claim = LabClaim(what="twice as fast", comparable=False, why="another GPU")
    return Outcome(slug="x", title="X", sizes={}, findings=Findings(checks=checks, compared=rows), claim=claim, **where)


def test_a_run_is_good_when_all_its_checks_are() -> None:
    good, bad = Check(what="a", difference=1.0, bound=1.0), Check(what="b", difference=math.nan, bound=1.0)
    assert outcome(good).ok
    assert not outcome(good, bad).ok
    assert not outcome().ok
    assert [check["ok"] for check in outcome(good, bad).to_dict()["checks"]] == [True, False]


def took(seconds: float | None) -> LabRun:
    return LabRun(seconds=seconds, spread=0.0, repeats=3, gpu_bytes=0)


def test_the_guide_names_those_with_results() -> None:
    (told,) = [line for line in GUIDE.read_text(encoding="utf-8").splitlines() if "Results of an H200 ship for" in line]
    named = re.findall(r"`([a-z0-9-]+)`", told.split("ship for", 1)[1].split(";", 1)[0])
    assert executed() == set(named)


def test_one_of_many_alike() -> None:
    run = LabRun(seconds=6.0, spread=0.1, repeats=2, gpu_bytes=5, host_bytes=7, samples_s=(4.0, 8.0))
    assert run.each(4) == LabRun(seconds=1.5, spread=0.1, repeats=2, gpu_bytes=5, host_bytes=7, samples_s=(1.0, 2.0))
    assert took(None).each(4) == took(None)


def row(technique: float | None, **more: Any) -> Compared:
    return Compared(what="a step", plain=took(3.0), technique=took(technique), **({"deferred_s": 0.0} | more))


def test_the_gain_is_of_times_that_were_measured() -> None:
    assert row(2.0).gain == 1.5 and not row(2.0).burst and row(2.0).burst_gain is None
    assert row(None).gain is None and not row(None, deferred_s=1.0).burst


def test_whoever_compares_says_what_was_left_to_do() -> None:
    with pytest.raises(TypeError, match="deferred_s"):
        Compared(what="a step", plain=took(3.0), technique=took(2.0))  # type: ignore[call-arg]


def test_the_headline_of_a_burst_is_what_is_sustained_or_nothing() -> None:
    burst = row(0.1, deferred_s=2.0)
    assert burst.burst and burst.burst_gain == pytest.approx(30) and burst.gain is None
    kept = row(0.1, deferred_s=2.0, sustained=Sustained(seconds=2.0, how="measured"))
    assert kept.gain == 1.5 and kept.burst_gain == pytest.approx(30)
    (told,) = outcome(rows=(kept,)).to_dict()["compared"]
    assert (told["gain"], told["burst"], told["deferred_s"]) == (1.5, True, 2.0)
    assert row_from_dict(told) == kept


def test_a_gain_may_be_of_bytes_or_error() -> None:
    """Whatever its seconds are."""
    half = row(6.0, deferred_s=5.0, unit="bytes", amounts=Amounts(plain=8e9, technique=2e9))
    assert half.gain == 4.0 and not half.burst and half.burst_gain is None
    (told,) = outcome(rows=(half,)).to_dict()["compared"]
    assert (told["unit"], told["amounts"]) == ("bytes", {"plain": 8e9, "technique": 2e9})
    assert row_from_dict(told) == half and half.row == LabRow(what="a step", unit="bytes")
    assert row(6.0, unit="error", amounts=Amounts(plain=0.0, technique=0.0)).gain is None
    for wrong in ({"unit": "bytes"}, {"amounts": Amounts(plain=1, technique=1)}, {"unit": "joules"}):
        with pytest.raises(InputError, match="a step"):
            row(2.0, **wrong)


@pytest.mark.parametrize("kind", PREDICTIONS)
def test_only_a_prediction_of_what_ran_is_one(kind: str) -> None:
    of_seconds = Predicted.of_seconds(3.0, 1.5, "its profile").to_dict()
    assert of_seconds == {"gain": 2.0, "by": "its profile", "kind": "prediction", "plain_s": 3.0, "technique_s": 1.5}
    found = row_to_dict(row(2.0), Predicted(gain=1.4, by="its profile", kind=kind))
    assert found["predicted_gain"] == (1.4 if kind == "prediction" else None)
    assert found["prediction"] == {"gain": 1.4, "by": "its profile", "kind": kind}


def test_a_way_that_beats_the_papers_is_said() -> None:
    other = Compared(what="another", plain=took(3.0), technique=took(1.5), deferred_s=0.0, of_paper=False)
    (told,) = outcome(rows=(row(2.0), other)).to_dict()["notes"]
    assert told == "another, which is not what the paper proposes, is faster here: 2x against 1.5x of a step"
    assert not outcome(rows=(row(1.0), other)).to_dict()["notes"]


@pytest.mark.parametrize("slug", sorted(executed()))
def test_stored_results_say_all_of_it(slug: str) -> None:
    found = stored_outcome(slug)
    rows = tuple(map(row_from_dict, found["compared"]))
    assert found["comparable"]["why"] and found["comparable"]["claim"] == experiment(slug).claim.what
    assert set(beaten(rows)) <= set(found["notes"])
    for told, one in zip(found["compared"], rows, strict=True):
        assert told["gain"] == one.gain and told["burst_gain"] == one.burst_gain
    assert rows[0].of_paper, "the headline is the paper's"


def test_the_stride_balances_the_queues() -> None:
    slow_cpu = Queues(up_bytes_s=55e9, down_bytes_s=55e9, cpu_parameters_s=1e9, gpu_parameters_s=100e9)
    assert best_stride(slow_cpu, 12) == 2
    # One parameter in two: 14 bytes each way against one on the CPU.
    assert seconds_per_parameter(slow_cpu, 2) == pytest.approx(max(1 / 1e9, 14 / 55e9) / 2)
    slow_link = Queues(up_bytes_s=5e9, down_bytes_s=5e9, cpu_parameters_s=1e9, gpu_parameters_s=100e9)
    # Four on the CPU take as long as 12 + 4 x 2 bytes on the link.
    assert best_stride(slow_link, 12) == 5
    assert best_stride(slow_link, 4) == 4
    assert best_stride(slow_cpu, 1) == 2


def test_tiles_cover_every_row_and_split_no_further_than_groups() -> None:
    for m, n, groups in ((1, 8192, 64), (16, 4096, 112), (2048, 28672, 64), (3, 64, 2)):
        found = tiles(m, n, groups, 132)
        assert found
        assert all(1 <= tile.splits <= groups for tile in found)
        assert len({tile.name for tile in found}) == len(found) <= 24
        assert any(tile.kernel == "vector" for tile in found) == (m <= 4)
    assert [rows_of(m) for m in (1, 16, 17, 32, 33, 2048)] == [16, 16, 32, 32, 64, 64]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "SLUG: give experiments by name, or --all"),
        (["run", "gptq", "--all", "--out-dir", "x"], "SLUG: give experiments by name, or --all"),
        (["run", "gptq", "datastates-llm"], "SLUG: 2 experiments need a folder"),
        (["run", "gptq", "--seconds", "5"], "--seconds: is for --out-dir"),
        (["run", "--all", "--out-dir", "x", "--size", "m=1"], "--size: is for one experiment"),
        (["run", "--all", "--out-dir", "x", "--device", "tpu"], "--device: 'tpu' is not a device"),
        (["predict", "gptqq"], "unknown experiment 'gptqq'"),
        (["predict", "--size", "m=1"], "--size: is for one experiment"),
        (["predict", "gptq", "--on", "H20000"], "unknown chip"),
        (["run", "gptqq"], "unknown experiment 'gptqq'. Near: gptq"),
        (["run", "gptq", "--size", "layer"], "--size: 'layer' is not name=value"),
        (["run", "gptq", "--size", "layer=x"], "--size layer: 'x'"),
        (["run", "gptq", "--device", "tpu"], "--device: 'tpu' is not a device"),
        (["run", "gptq", "--out", "no/such/folder/x.json"], "--out"),
    ],
)
def test_what_is_wrong_is_named(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", *words]) == 2
    assert said in capsys.readouterr().err


def test_only_another_outcome_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "notes.json"
    for text in ("my notes", '{"schema": "gnomon.plan/1"}', "[1]"):
        mine.write_text(text)
        assert run(["lab", "run", "gptq", "--device", "tpu", "--out", str(mine)]) == 2
        assert "--out" in (said := capsys.readouterr().err) and "not an outcome of `gnomon lab`" in said
        assert mine.read_text() == text
    for text in ("", '{"schema": "gnomon.lab/1"}'):
        mine.write_text(text)
        assert run(["lab", "run", "gptq", "--device", "tpu", "--out", str(mine)]) == 2
        assert "not a device" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_torch_the_extra_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "run", "gptq"]) == 2
    assert "pip install 'gnomon[torch]'" in capsys.readouterr().err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab"]) == 0
    text = capsys.readouterr().out
    assert all(slug in text for slug in EXPERIMENTS)
    assert "--size parameters=" in text
    assert run(["lab", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["experiments"]
    assert [entry["slug"] for entry in listed] == list(EXPERIMENTS)
    assert all({"slug", "ran_on", "gain", "predicted", "checks"} <= set(entry) for entry in listed)
    assert run(["lab", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["experiments"] == listed


def test_what_a_run_will_find_is_told_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["lab", "predict", "deep-optimizer-states", "--on", "H200", "--json"]
    assert run(words) == 0
    (found,) = json.loads(capsys.readouterr().out)["predicted"]
    lacking = {row["what"]: row["lacks"] for row in found["rows"]}
    assert lacking.pop("update phase, stride 1") is None
    assert lacking and set(lacking.values()) == {"cpu_update_parameters_s"}
    file = str(file_of("deep-optimizer-states", "lab.json"))
    assert run([*words, "--rates", file]) == 0
    (found,) = json.loads(capsys.readouterr().out)["predicted"]
    stored = {row["what"]: row for row in json.loads(Path(file).read_text())["compared"]}
    for told in found["rows"]:
        there = stored[told["what"]]["prediction"]
        assert (told["prediction"] or {}).get("gain") == (there or {}).get("gain")
    assert run([*words[:3], "--on", "H100", "--rates", file]) == 2
    assert "was run on NVIDIA H200" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_a_batch_needs_torch_before_it_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "run", "--all", "--out-dir", str(tmp_path), "--device", "cpu"]) == 2
    assert "pip install 'gnomon[torch]'" in capsys.readouterr().err


def test_a_batch_stops_in_time(tmp_path: Path) -> None:
    """A log says why one failed, and none is started where too little time is left."""
    limits = BatchLimits(seconds=60, total_s=1)
    (one,) = run_batch(["gptq"], "cpu", tmp_path, limits, lambda _: None)
    assert (one.state, one.file, one.log) == ("not started", None, None)
    (one,) = run_batch(["no-such"], "cpu", tmp_path, BatchLimits(seconds=60), lambda _: None)
    assert one.state == "failed" and "unknown experiment" in Path(one.log or "").read_text()
    assert not to_dict([one], "cpu")["ok"]


def kept_result(folder: Path, **changed: Any) -> Path:
    path = folder / "out.json"
    found = {"schema": "gnomon.lab/1", "slug": "gptq", "ok": True, "device": "NVIDIA H200", "date": "2026-12-01"}
    path.write_text(json.dumps(found | {"wall_s": 1.0} | changed))
    return path


def test_a_later_result_is_kept_beside_the_first(tmp_path: Path) -> None:
    index = tmp_path / "index"
    (index / "gptq").mkdir(parents=True)
    names = [keep(kept_result(tmp_path, wall_s=float(turn)), index) for turn in (1, 2, 3)]
    assert [path.name for path in names if path] == [
        "lab.json", "lab-nvidia-h200-2026-12-01.json", "lab-nvidia-h200-2026-12-01-2.json"
    ]  # fmt: skip
    assert keep(kept_result(tmp_path, wall_s=2.0, notes=["predicted again"]), index) is None
    assert json.loads((index / "gptq" / "lab.json").read_text())["wall_s"] == 1.0
    for wrong, said in ({"ok": False}, "checks failed"), ({"device": "cpu"}, "CPU"), ({"slug": "x"}, "no paper"):
        with pytest.raises(InputError, match=said):
            keep(kept_result(tmp_path, **wrong), index)


def test_a_row_without_a_prediction_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "predict", "tensor-core-dissection", "--on", "H200"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  fp16, zeros")]
    assert line.endswith("not predicted")


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_kernels_name_the_package_that_is_missing(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """On a GPU before anything runs; a CPU has no kernels."""
    bench = Bench(None, device, lambda _: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    bench.need_triton("a packing kernel")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    missing = pytest.raises(MissingExtraError, match="a packing kernel needs the package 'triton'")
    with missing if device == "cuda" else nullcontext():
        bench.need_triton("a packing kernel")
