"""`gnomon chips`: lists that can be cut and sorted, one chip opened up, new ones, and names for the shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gnomon import catalog
from gnomon.cli.run import run

Out = pytest.CaptureFixture[str]


def answer(capsys: Out, *words: str) -> Any:
    assert run(["chips", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def text(capsys: Out, *words: str) -> str:
    assert run(["chips", *words]) == 0
    return capsys.readouterr().out


def test_all_of_them_fit_a_hundred_columns(capsys: Out) -> None:
    lines = text(capsys).splitlines()
    assert max(map(len, lines)) <= 100
    names = [line.split()[0] for line in lines if line.startswith("  ") and line.endswith("/h")]
    assert sorted(names) == sorted(catalog.chip_names())
    assert "NVIDIA Hopper" in lines
    assert lines.index("NVIDIA Volta") < lines.index("NVIDIA Hopper") < lines.index("NVIDIA Blackwell")
    assert any("fp16 125" in line for line in lines if line.split()[:1] == ["V100-SXM2-16GB"])


def test_cut_and_sorted(capsys: Out) -> None:
    found = answer(capsys, "--vendor", "nvidia", "--architecture", "hopper", "--memory", "90GB", "--sort", "bandwidth")
    chips = found["chips"]
    assert {chip["vendor"] for chip in chips} == {"NVIDIA"}
    assert {chip["architecture"] for chip in chips} == {"Hopper"}
    assert "H100-SXM-80GB" not in [chip["name"] for chip in chips]
    assert "H100-NVL-94GB" in [chip["name"] for chip in chips]
    rates = [chip["memory_bandwidth_bytes_s"] for chip in chips]
    assert rates == sorted(rates, reverse=True)
    prices = [chip["price_usd_h"] for chip in answer(capsys, "--sort", "price")["chips"]]
    assert prices == sorted(prices)
    assert len(answer(capsys, "--memory", "80GiB")["chips"]) > 20
    assert answer(capsys, "--memory", "80") == answer(capsys, "--memory", "80GB")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--vendor", "nvidea"], "--vendor: unknown vendor 'nvidea'. Near: NVIDIA"),
        (["--architecture", "Hoper"], "--architecture: unknown architecture 'Hoper'. Near: Hopper"),
        (["--memory", "much"], "--memory: 'much' is not a size"),
        (["--sort", "beauty"], "--sort: unknown order 'beauty'. Near: rate"),
        (["--vendor", " "], "--vendor: is empty"),
        (["show", "H1000"], "unknown chip 'H1000'. Near: H100-SXM-80GB"),
        (["show", "none.yaml"], "none.yaml: no such file"),
        (["new", "H100"], "NAME: 'H100' is already the name of H100-SXM-80GB"),
        (["new", "a:b"], "NAME: 'a:b' cannot be a chip's name"),
        (["new", "nvidia"], "NAME: 'nvidia' cannot be a chip's name"),
        (["new", "x" * 200], "cannot be a chip's name"),
        (["new", "mine", "--like", "H1000"], "--like: unknown chip 'H1000'"),
        (["new", "mine", "--out", "/proc/none/x.yaml"], "/proc/none: cannot be made"),
    ],
)
def test_what_is_wrong(words: list[str], message: str, capsys: Out) -> None:
    assert run(["chips", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_one_opened_up(capsys: Out) -> None:
    shown = text(capsys, "show", "a100 pcie")
    for part in (
        "A100-PCIe-80GB: NVIDIA Ampere, 2021, nodes of 8", "NVIDIA A100 data sheet (2026-11)", "estimated",
        "bf16, sparse", "by a bridge, NVLink3 bridge", "typical machine: PCIe4-8", "host of 64 cores", "cloud prices",
    ):  # fmt: skip
        assert part in shown
    assert "typical reading of an idle board, from memory" in text(capsys, "show", "a100 pcie 40gb")
    (chip,) = answer(capsys, "show", "a100 pcie")["chips"]
    assert set(chip["sources"]) >= {"memory_bytes", "rates_flops.bf16", "sparse_flops.bf16", "scaleout.latency_s"}
    assert chip["confidence"]["scaleout.latency_s"] == "estimated"
    assert chip["machine"]["host"]["cores"] == 64
    assert chip["prices"][0]["usd_h"] <= chip["prices"][-1]["usd_h"]


def test_a_new_one(capsys: Out, own_history: Path) -> None:
    made = answer(capsys, "new", "My Chip 48GB", "--like", "L40S")
    assert made["schema"] == "gnomon.chips.new/1"
    file = own_history / "chips" / "my-chip-48gb.yaml"
    assert made["file"] == str(file)
    assert file.read_text() == made["text"]
    assert "My Chip 48GB" in text(capsys, "show", "my-chip-48gb")
    assert "My Chip 48GB" in text(capsys, "--architecture", "Ada")
    assert run(["chips", "new", "my-chip-48gb"]) == 2
    refused = capsys.readouterr().err
    assert "'my-chip-48gb' is already a chip of your own" in refused and str(file.parent) in refused
    assert run(["predict", "llama-3.2-1b", "--on", "my-chip-48gb:2"]) == 0


def test_a_new_one_elsewhere(capsys: Out, tmp_path: Path) -> None:
    file = tmp_path / "sub" / "mine.yaml"
    told = text(capsys, "new", "mine", "--out", str(file))
    assert f"gnomon chips show {file}" in told  # a name would not find it there
    assert f"`gnomon chips show {file}`" in file.read_text()
    assert run(["predict", "llama-3.2-1b", "--on", f"{file}:2"]) == 0
    assert f"--fleet {file}:8" in capsys.readouterr().out
    assert run(["chips", "new", "mine", "--out", str(file)]) == 2
    assert "is there already. Edit it" in capsys.readouterr().err


def test_a_new_one_in_the_place_of_another(capsys: Out) -> None:
    assert answer(capsys, "new", "H100", "--replace")["replaces"] == "H100-SXM-80GB"
    assert "estimated" in text(capsys, "show", "nvidia h100")


def completed(shell: str, line: str) -> list[str]:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_TYPER_COMPLETE_ARGS": line}
    environment = os.environ | words | {"_GNOMON_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(
        [sys.executable, "-m", "gnomon"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.heavy
def test_names_for_the_shell() -> None:
    assert completed("bash", "gnomon predict m --on GB3") == ["GB300", "GB300-SXM", "GB300-279GB", "GB300-NVL72"]
    assert "H100:8,L40S" in completed("bash", "gnomon plan serve m --fleet H100:8,L40")
    assert any("TPU-v6e" in word for word in completed("zsh", "gnomon chips show TPU-v6"))
    assert completed("bash", "gnomon predict m --on zzz") == []


def test_a_broken_file_of_the_users_does_not_stop_completion(own_history: Path) -> None:
    (own_history / "chips").mkdir(parents=True)
    (own_history / "chips" / "bad.yaml").write_text("{")
    assert "GB300" in completed("bash", "gnomon predict m --on GB3")
