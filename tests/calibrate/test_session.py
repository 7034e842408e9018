"""`gnomon calibrate` from the card to the profile, on a card made of formulas."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.calibrate.fake_bench import FakeBench

import gnomon
from gnomon import catalog
from gnomon.calibrate import card, session
from gnomon.calibrate.plan_file import plan_path
from gnomon.calibrate.shapes import designs
from gnomon.errors import CalibrationError, InputError

KINDS = {
    "experts": "moe", "attention_decode": "attention_decode", "attention_forward": "attention_forward",
    "gemm": "gemm", "gemm_batched": "gemm",
}  # fmt: skip
TORCH = SimpleNamespace(
    __version__="2.11.0",
    version=SimpleNamespace(cuda="13.0"),
    cuda=SimpleNamespace(get_device_name=lambda _: "NVIDIA H200", device_count=lambda: 1),
)


class FakeCard:
    """A card that is idle and well, but for what a test says of it."""

    def __init__(self, **ills: Any) -> None:
        self.ills = ills

    @property
    def name(self) -> str:
        return str(self.ills.get("name", "NVIDIA H200"))

    def others(self) -> int:
        return int(self.ills.get("others", 0))

    def busy(self) -> float:
        return float(self.ills.get("busy", 0.0))

    def limits_w(self) -> tuple[float, float]:
        return self.ills.get("limits_w", (700.0, 700.0))  # type: ignore[no-any-return]

    def reasons(self) -> int:
        return int(self.ills.get("reasons", 0x4))

    def notes(self) -> tuple[str, ...]:
        return ("ECC on",)


class FakeLab(FakeBench):
    def __init__(self, torch: Any, watched: FakeCard) -> None:
        super().__init__(KINDS)
        self.watched = watched

    def settle(self) -> tuple[str, ...]:
        hz = self.watched.ills.get("hz", 1.98e9)
        return card.below_clock(hz, 1.98e9, 300.0, 700.0)

    def close(self) -> None:
        pass


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCard:
    watched = FakeCard()
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(session, "torch_module", lambda: TORCH)
    monkeypatch.setattr(session, "first_card", lambda: watched)
    monkeypatch.setattr(session, "Lab", FakeLab)
    return watched


@pytest.mark.heavy
def test_a_card_is_measured_and_its_profile_is_used(machine: FakeCard, tmp_path: Path) -> None:
    ticks: list[tuple[int, int, str]] = []
    out, most = tmp_path / "t.csv", designs(["moe"], vllm=False)[0].most
    found = gnomon.calibrate(out, families=["moe"], progress=lambda *tick: ticks.append(tick))
    assert found.chip == "H200-SXM-141GB"
    assert found.rows["measured"] + found.rows["skipped"] == ticks[-2][1] == most
    assert ticks[-1][2] == "fitting"
    assert found.skipped == {"RuntimeError: no such kernel": found.rows["skipped"]}
    assert list(found.families) == ["moe.bf16", "moe.bf16.torch"]
    assert found.families["moe.bf16"]["held_out"]["mean"] < 0.1
    assert found.notes == ("ECC on",)
    assert Path(found.profile).read_text().count("moe.bf16") == 2
    again = gnomon.calibrate(out, families=["moe"])
    assert again.rows["kept"] == found.rows["measured"]
    assert again.rows["measured"] == 0
    assert again.families == found.families


ILLS: dict[str, tuple[dict[str, Any], str]] = {
    "another process": ({"others": 1}, "1 other process computes on it"),
    "others": ({"others": 3}, "3 other processes compute on it"),
    "busy": ({"busy": 0.4}, "40% busy with somebody else's work"),
    "a lowered limit": ({"limits_w": (500.0, 700.0)}, "lowered from 700 to 500 W"),
    "heat": ({"reasons": 0x24}, "too hot"),
    "clocks set": ({"reasons": 0x2}, "set by hand"),
    "a locked clock": ({"hz": 1.2e9}, "stays at 1200 of 1980 MHz"),
}


@pytest.mark.slow
@pytest.mark.parametrize("ill", ILLS)
def test_a_card_that_cannot_be_trusted(machine: FakeCard, tmp_path: Path, ill: str) -> None:
    machine.ills, reason = ILLS[ill]
    out = tmp_path / "t.csv"
    with pytest.raises(CalibrationError, match="the card cannot be trusted now") as refused:
        gnomon.calibrate(out, families=["batched"])
    assert reason in str(refused.value)
    assert not out.exists()
    found = gnomon.calibrate(out, families=["batched"], force=True)
    assert any(reason in note for note in found.notes)
    assert reason in json.dumps([json.loads(line) for line in plan_path(out).read_text().splitlines()])


def test_an_unknown_family_and_a_table_of_another_run(machine: FakeCard, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown family of operators 'gem'"):
        gnomon.calibrate(tmp_path / "t.csv", families=["gem"])
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(CalibrationError, match="holds another table"):
        gnomon.calibrate(tmp_path / "t.csv", families=["moe"])


@pytest.mark.heavy
def test_what_was_not_measured_stays_as_shipped_and_says_so(machine: FakeCard, tmp_path: Path) -> None:
    found: Any = gnomon.calibrate(tmp_path / "t.csv", families=["moe"])
    shipped = yaml.safe_load((catalog.PROFILES / "h200-sxm-141gb.yaml").read_text())
    kept = yaml.safe_load(Path(found.profile).read_text())
    assert kept["power"] == shipped["power"]
    gemm = kept["families"]["gemm.bf16"]
    assert gemm["coefficients"] == shipped["families"]["gemm.bf16"]["coefficients"]
    assert gemm["source"].startswith(f"shipped with Gnomon, {shipped['date']}")
    assert "source" not in kept["families"]["moe.bf16"]


def test_the_card_that_is_watched_is_the_one_measured(machine: FakeCard, tmp_path: Path) -> None:
    machine.ills = {"name": "NVIDIA L4"}
    with pytest.raises(CalibrationError, match="PyTorch measures NVIDIA H200, and the driver watches NVIDIA L4"):
        gnomon.calibrate(tmp_path / "t.csv", families=["moe"], force=True)
