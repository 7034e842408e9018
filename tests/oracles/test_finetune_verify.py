"""The steps that are to be measured on a GPU, tried on a CPU: small networks with everything else as it is there."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools.finetune_verify import CASES, MEASURED, Case, measurements

from tools import finetune_verify

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
pytestmark = pytest.mark.oracle

MODELS = Path(__file__).parents[2] / "src" / "gnomon" / "catalog" / "data" / "models"
SMALL = {
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512,
}  # fmt: skip
OPTIONS: dict[str, Any] = {"device": "cpu", "steps": 2, "seconds": 600.0, "out": None, "again": False}


def small(case: Case, folder: Path) -> Case:
    """The same case of a network of the same family, and of short sequences."""
    config = json.loads((MODELS / f"{case.model}.json").read_text(encoding="utf-8"))
    config |= SMALL | ({"num_experts": 8, "num_experts_per_tok": 2} if "num_experts" in config else {})
    file = folder / case.model / "config.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(config))
    return replace(case, model=str(file.parent), seq=case.seq // 64)


PARTS = ("qlora", "activations", "experts")
"""Of which one case is run: what the others add is tested where it is run without a plan's process of its own."""


def cases(folder: Path) -> list[Case]:
    firsts = {case.part: case for case in reversed(CASES)}
    return [small(firsts[part], folder) for part in PARTS]


def test_plans_are_run_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen, copy = cases(tmp_path / "models"), tmp_path / "copy.json"
    finetune_verify.predict(tmp_path, chosen)
    finetune_verify.run(tmp_path, Namespace(**OPTIONS | {"out": copy}))
    runs = measurements(tmp_path / MEASURED)
    assert {name: found.get("error") for name, found in runs.items()} == {case.name: None for case in chosen}
    assert measurements(copy) == runs
    packed = next(found for name, found in runs.items() if name.startswith("qlora"))
    assert packed["techniques"]["qlora"]["nf4_kernel"] == "PyTorch's operators"
    capsys.readouterr()
    finetune_verify.report(tmp_path)
    said = capsys.readouterr().out
    assert said.count("memory unknown") == len(chosen) and "not measured" not in said
