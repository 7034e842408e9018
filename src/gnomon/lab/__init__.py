"""Techniques of papers run on the user's GPU against a baseline: checked first, then timed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from gnomon.errors import unknown_name
from gnomon.lab.base import Experiment

_FOLDER = Path(__file__).with_name("experiments")
EXPERIMENTS = {
    path.stem.replace("_", "-"): f"gnomon.lab.experiments.{path.stem}"
    for path in sorted(_FOLDER.glob("*.py"))
    if not path.stem.startswith("_")
}
"""Modules by the paper's slug, found by their files. Each has `EXPERIMENT` and imports neither PyTorch nor Triton."""


def experiment(slug: str) -> Experiment:
    if slug not in EXPERIMENTS:
        raise unknown_name("experiment", slug, EXPERIMENTS, hint="`gnomon lab` lists them.")
    found: Experiment = import_module(EXPERIMENTS[slug]).EXPERIMENT
    return found
