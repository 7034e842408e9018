"""What docs/sweeps.md shows is what is there: its sweep is the example's, and its other files are read."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from tests.contract.asking import say

from gnomon.api.sweep import parameters
from gnomon.load.sweep import read_sweep

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sweeps.md").read_text()


def test_the_sweep_that_is_shown_is_the_example() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert yaml.safe_load(block) == yaml.safe_load((ROOT / "examples" / "sweep.yaml").read_text())
    assert len(read_sweep(ROOT / "examples" / "sweep.yaml", parameters())) == 32


def test_flags_that_are_named_are_there() -> None:
    known = say("sweep --help").out + say("compare --help").out
    named = set(re.findall(r"(?<![\w-])--[a-z]+", re.sub(r"(?m)^(#SBATCH|srun|head=).*$", "", PAGE)))
    assert named - {"--fresh", "--all"} <= set(re.findall(r"--[a-z]+", known))
