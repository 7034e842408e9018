"""Memory tiers of the built-in runner beside runs without them: the same is learnt, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.oracles.torch_ranks import GPT, LLAMA, LOAD

import gnomon
from gnomon.engines.torch.checks import check_job
from gnomon.engines.torch.launch import Measuring
from gnomon.errors import InputError
from gnomon.load import parse_pool
from gnomon.spec import Recipe, Strategy
from gnomon.spec.training_job import TrainingJob
from gnomon.techniques import TRAINING, applied

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")

import torch

pytestmark = pytest.mark.oracle

STEPS, MICROS = 3, 4
JOB = TrainingJob(
    model=LLAMA, pool=parse_pool("H100:8"), strategy=Strategy(), recipe=Recipe(micro_batch=4), load=LOAD, dtype="fp32"
)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors take longer on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def job(*named: str, **changes: Any) -> TrainingJob:
    values = applied(TRAINING, named).values
    return replace(JOB, strategy=Strategy(techniques=named), techniques=values, **changes)


def run(asked: TrainingJob) -> dict[str, Any]:
    from gnomon.engines.torch.train import train

    return train(asked, Measuring(steps=STEPS, warmup=0, seed=7, device="cpu"))


@pytest.fixture(scope="module")
def plain() -> dict[str, dict[str, Any]]:
    return {dtype: run(job(dtype=dtype)) for dtype in ("fp32", "bf16")}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "named",
    [
        ("offload-activations",),
        ("offload-activations:share=0.5,copies=blocking",),
        ("offload-activations:layers=1,in_flight=1",),
        ("offload-activations:in_flight=4", "offload-optimizer"),
        ("offload-optimizer",),
    ],
    ids=str,
)
def test_the_same_is_learnt(plain: dict[str, Any], named: tuple[str, ...], dtype: str) -> None:
    found = run(job(*named, dtype=dtype))
    assert found["losses"] == plain[dtype]["losses"]
    assert found["grad_norms"] == plain[dtype]["grad_norms"]


def moved(*named: str, **changes: Any) -> dict[str, int]:
    (told,) = run(job(*named, **changes))["techniques"]
    found: dict[str, int] = told["offload-activations"]
    return found


def test_what_goes_out_comes_back_and_is_what_is_priced() -> None:
    """All layers but the last, of every micro-batch of every step; the host holds those of one micro-batch at most."""
    found = moved("offload-activations", dtype="bf16")
    assert found["bytes_out"] == found["bytes_in"] > 0 == found["host_bytes"]
    passes = STEPS * LOAD.global_batch // JOB.recipe.micro_batch
    assert found["most_host_bytes"] == found["bytes_out"] / passes
    half = moved("offload-activations:share=0.5", dtype="bf16")
    assert half["bytes_out"] < 0.7 * found["bytes_out"]
    assert moved("offload-activations:share=0", dtype="bf16")["bytes_out"] == 0


def test_bytes_are_those_that_are_priced() -> None:
    """Of a network whose norms PyTorch runs as one operator on a CPU too."""
    told = gnomon.simulate_training(
        GPT, on="H100", seq=LOAD.seq, global_batch=LOAD.global_batch, micro_batch=4, zero=0, engine="torch",
        dtype="fp32", techniques=["offload-activations"],
    )  # fmt: skip
    found = moved("offload-activations", model=GPT)["most_host_bytes"] / (GPT.layers - 1)
    rows = JOB.recipe.micro_batch * LOAD.seq
    small = 4 * rows * GPT.blocks[0].attention.heads  # a number per head stays
    assert found == told.step.host_bytes / GPT.layers - small


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (job("offload-activations:modules=core_attn"), "offloads all that a layer saves"),
        (job("offload-activations", recipe=Recipe(recompute="full")), "without recomputation"),
        (replace(job("offload-activations"), strategy=Strategy(tp=2)), "does not offload activations of cut layers"),
        (job("offload-optimizer:share=0.5"), "keeps all states in the host's memory"),
        (job("offload-optimizer:tier=nvme"), "keeps all states in the host's memory"),
        (job("offload-parameters"), "does not support the technique offload-parameters"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_it_does_not_run_is_refused(asked: TrainingJob, why: str) -> None:
    with pytest.raises(InputError, match=why):
        check_job(asked)
