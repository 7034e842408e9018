"""Techniques of papers run on the user's GPU against a baseline: checked first, then timed."""

from __future__ import annotations

from importlib import import_module

from gnomon.errors import unknown_name
from gnomon.lab.base import Experiment

EXPERIMENTS = {
    "deep-optimizer-states": "gnomon.lab.deep_optimizer_states",
    "gptq": "gnomon.lab.gptq",
    "datastates-llm": "gnomon.lab.datastates_llm",
}
"""Modules by the paper's slug. Each has `EXPERIMENT`."""


def experiment(slug: str) -> Experiment:
    if slug not in EXPERIMENTS:
        raise unknown_name("experiment", slug, EXPERIMENTS, hint="`gnomon lab` lists them.")
    found: Experiment = import_module(EXPERIMENTS[slug]).EXPERIMENT
    return found
