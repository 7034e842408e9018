"""The plan that a report of `simulate train` proposes is for the same job."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any

import pytest
from tests.cli.fakes import Calls, install

import gnomon
from gnomon.cli.run import run
from gnomon.spec.questions.objectives import PlanTrainingQuestion
from gnomon.spec.questions.training import TrainingQuestion

JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "images": (
        "qwen2.5-vl-7b",
        {"images": 2, "image": "640x480", "freeze": "vision", "power_limit_w": 500.0, "optimizer": "adamw-bf16"},
    ),
    "source": ("t5-large", {"seq": 512, "source": 400, "dtype": "bf16", "engine": "megatron"}),
    "formats": ("llama-3.2-3b", {"dtype": "fp8-current", "bf16_layers": "1,2", "fp8_param_gather": True, "zero": 1}),
    "further layers": ("llama-3.2-3b", {"mtp_layers": 1, "techniques": ["lora:rank=8"], "tokens": 1e9}),
    "lengths": (
        "llama-3.2-3b",
        {"lengths": "lognormal:mean=700,cv=1.2", "packing": "ffd", "document_masking": True, "sampling": "balanced",
         "seed": 3},
    ),
    "failures": (
        "llama-3.2-3b",
        {"tokens": 1e12, "failures": "rsc-1", "checkpoint_to": "shared:100GB/s", "checkpoint_every": "500",
         "checkpoint_mode": "lazy", "spares": "4", "detection_time_s": 120.0, "restart_time_s": 90.0,
         "repair_time_s": 7200.0, "grid": "FR"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("job", JOBS)
def test_all_that_says_what_is_trained_is_said_again(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, given = JOBS[job]
    asked: dict[str, Any] = {"on": "H100:8", "seq": 2048, "global_batch": 16} | given
    lines = str(gnomon.simulate_training(model, **asked)).splitlines()
    command = next(line for line in lines if "gnomon plan train" in line)
    calls = Calls()
    install(monkeypatch, calls)
    assert run(shlex.split(command.split("gnomon ", 1)[1])) == 0
    ((_, (question,), _),) = calls.made
    assert isinstance(question, PlanTrainingQuestion)
    for name in {one.name for one in fields(TrainingQuestion)} & set(given) - {"engine"}:
        said = getattr(question, name)
        assert (list(said) if isinstance(said, tuple) else said) == given[name], name


def test_every_field_of_the_question_is_in_some_job() -> None:
    """A field that is added has to be said again too."""
    tried = {name for _, given in JOBS.values() for name in given} | {"model", "seq", "global_batch"}
    assert {one.name for one in fields(TrainingQuestion)} <= tried
