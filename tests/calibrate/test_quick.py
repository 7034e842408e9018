"""`gnomon calibrate --quick` on a card made of formulas: its factors come out, and predictions use and name them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.calibrate.test_session import TORCH, FakeCard

import gnomon
from gnomon import catalog
from gnomon.calibrate import quick, session
from gnomon.calibrate.collect import key
from gnomon.calibrate.lab import Skipped
from gnomon.cost.card import COMPUTE, ENERGY, HOST, MEMORY, NARROW
from gnomon.errors import CalibrationError, GnomonError
from gnomon.load.cards import card_path, forget_cards
from gnomon.load.profiles import forget_profiles, profile_for, shipped_profile

H200 = catalog.chip("H200")
SPEEDS = {COMPUTE: 0.95, NARROW: 0.9, MEMORY: 1.04, HOST: 0.8}
FACTOR = {key(task): name for name, tasks in quick.TASKS.items() for task in tasks}


class QuickLab:
    """Kernels that take what they took on the profile's card, divided by this card's speeds."""

    speeds: dict[str, float] = SPEEDS
    slower: float = 1.25
    """A sustained GEMM beside a burst of it."""
    lacks: tuple[str, ...] = ()

    def __init__(self, torch: Any, watched: FakeCard) -> None:
        self.known = quick._references()["chips"][H200.name]

    def settle(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass

    def measure(self, name: str, shape: dict[str, Any]) -> dict[str, Any]:
        if name in self.lacks:
            raise Skipped("RuntimeError: no such kernel")
        row: dict[str, Any] = {"op": name, "time_us": 1.0}
        if name == "sustained" and shape["name"] == "bf16":
            assert shape["seconds"] >= 2.5
            return row | {"time_us": 1400.0 * self.slower, "burst_us": 1400.0, "flops": 2.0 * 8192**3}
        task = key((name, shape))
        if task in FACTOR:
            row["time_us"] = self.known["time_us"][task] / self.speeds[FACTOR[task]]
        return row


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[QuickLab]:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(session, "torch_module", lambda: TORCH)
    monkeypatch.setattr(session, "first_card", FakeCard)
    chosen = type("Lab", (QuickLab,), {})
    monkeypatch.setattr(session, "Lab", chosen)
    forget_cards()
    forget_profiles()
    return chosen


def _run(tmp_path: Path, **asked: Any) -> Any:
    return gnomon.calibrate(tmp_path / "raw.json", quick=True, **asked)


def _step_s(on: str = "H200") -> Any:
    return gnomon.predict("llama-3.1-8b", on=on, phase="decode", batch=32, context=1024).time_s


def test_factors_come_out_and_predictions_use_and_name_them(lab: type[QuickLab], tmp_path: Path) -> None:
    before, other = _step_s(), _step_s("H100")
    found = _run(tmp_path)
    assert {name: found.factors[name] for name in SPEEDS} == pytest.approx(SPEEDS, rel=1e-3)
    power = shipped_profile(H200).power
    known = quick._references()["chips"][H200.name]["sustained"]
    squares = [slow**2 * power["limit"] * H200.tdp_w for slow in (1.25, known["time_us"] / known["burst_us"])]
    here, there = (square - power["active_w"] for square in squares)
    assert found.factors[ENERGY] == pytest.approx(here / there, rel=1e-3)
    answer = gnomon.predict("llama-3.1-8b", on="H200", phase="decode", batch=32, context=1024)
    after = answer.time_s
    assert all("this card's factors" in line["time_s"]["source"] for line in answer.to_dict()["breakdown"])
    assert before.value / 1.04 < after.value < before.value  # memory is faster; what is not memory keeps its time
    assert (after.high - after.low) / after.value < (before.high - before.low) / before.value
    assert _step_s("H100").value == other.value
    raw = json.loads((tmp_path / "raw.json").read_text())
    assert raw["schema"] == quick.RAW and len(raw["rows"]) == len(quick.tasks_of(H200))
    assert found.table == str(tmp_path / "raw.json") and found.in_use


def test_cards_of_one_kind_differ_where_none_was_measured(lab: type[QuickLab]) -> None:
    assert shipped_profile(H200).system_spread < profile_for(H200).system_spread


def test_written_elsewhere_it_changes_nothing(lab: type[QuickLab], tmp_path: Path) -> None:
    before = _step_s()
    found = _run(tmp_path, profile=tmp_path / "card.yaml")
    assert not found.in_use and _step_s().value == before.value
    assert yaml.safe_load((tmp_path / "card.yaml").read_text())["factors"][MEMORY] == pytest.approx(1.04, rel=1e-3)


def test_a_kernel_that_cannot_run_is_named_and_its_factor_left_out(lab: type[QuickLab], tmp_path: Path) -> None:
    lab.lacks = ("gemm_fp8",)
    found = _run(tmp_path)
    assert NARROW not in found.factors and any("gemm_fp8" in task for task in found.skipped)


def test_a_slower_host_makes_a_host_bound_step_slower(lab: type[QuickLab], tmp_path: Path) -> None:
    def small() -> float:
        return gnomon.predict("qwen3-0.6b", on="H200", phase="decode", batch=8, context=128).time_s.value

    before = small()
    _run(tmp_path)
    assert small() == pytest.approx(before / SPEEDS[HOST], rel=1e-3)


def test_another_chip_and_a_card_out_of_range_are_refused(lab: type[QuickLab], tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="this machine's card is H200"):
        _run(tmp_path, on="H100")
    lab.speeds = SPEEDS | {COMPUTE: 0.3}
    with pytest.raises(CalibrationError, match=r"compute is 0\.30 times"):
        _run(tmp_path)
    assert not card_path(H200.name).exists()


BROKEN = {
    "schema": ({"schema": "gnomon.card/9"}, "newer Gnomon"),
    "chip": ({"chip": "B200"}, "is of chip 'B200'"),
    "factors": ({"factors": {}}, "has no factors"),
    "unknown": ({"factors": {"speed": 1.0}}, "'speed', which is not a factor"),
    "text": ({"factors": {"memory": "fast"}}, "memory is 'fast'"),
    "zero": ({"factors": {"memory": 0.0}}, "memory is '0.0'"),
    "nan": ({"factors": {"compute": float("nan")}}, "compute is 'nan'"),
    "date": ({"date": 3}, "has no date"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_card_file_is_one_line(lab: type[QuickLab], tmp_path: Path, name: str) -> None:
    _run(tmp_path)
    change, expected = BROKEN[name]
    path = card_path(H200.name)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | change))
    forget_cards()
    with pytest.raises(GnomonError, match=expected):
        _step_s()


def test_a_profile_of_ones_own_needs_no_factors(lab: type[QuickLab], tmp_path: Path) -> None:
    _run(tmp_path)
    shipped = yaml.safe_load((catalog.PROFILES / f"{H200.name.lower()}.yaml").read_text())
    own = tmp_path / "home" / "profiles" / f"{H200.name.lower()}.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(yaml.safe_dump(shipped))
    forget_profiles()
    assert "factors" not in profile_for(H200).source


def test_rows_without_a_reference_are_beside_the_profile(lab: type[QuickLab]) -> None:
    chip = catalog.chip("H100")
    rows = [
        {"task": key(task), "time_us": 2.0 * (quick.modelled_us(task, chip, shipped_profile(chip)) or 1.0)}
        for task in quick.TASKS[COMPUTE]
    ]
    factors, _, against = quick.factors_of(rows, chip, shipped_profile(chip))
    assert factors == {COMPUTE: pytest.approx(0.5)} and "the times of the profile" in against


def test_it_is_run_and_shown_from_the_command_line(
    lab: type[QuickLab], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gnomon.cli.run import run

    lab.lacks = ("gemm_fp8",)
    out = str(tmp_path / "rows.json")
    assert run(["calibrate", "--quick", "--on", "h200", "--out", out]) == 0
    text = capsys.readouterr().out
    assert "1.040x" in text and "memory bandwidth" in text
    assert str(card_path(H200.name)) in text and out in text and "no such kernel" in text
    assert json.loads(Path(out).read_text())["skipped"]
