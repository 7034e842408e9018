"""What the built-in runner finds by name: techniques, optimizers, ways to recompute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.oracles.torch_ranks import LLAMA, LOAD

from gnomon.engines.torch import optimizers, recompute, techniques
from gnomon.engines.torch.checks import check_job
from gnomon.engines.torch.launch import Measuring
from gnomon.engines.torch.optimizers import UpdateRule
from gnomon.engines.torch.techniques import RunnerTechnique, RunningTechnique
from gnomon.errors import InputError
from gnomon.load import parse_pool
from gnomon.spec import Recipe, Strategy
from gnomon.spec.recompute import WAYS
from gnomon.spec.training import OPTIMIZERS
from gnomon.spec.training_job import TrainingJob
from gnomon.techniques import techniques as priced_techniques

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
import torch

pytestmark = pytest.mark.oracle

JOB = TrainingJob(
    model=LLAMA, pool=parse_pool("H100:8"), strategy=Strategy(), recipe=Recipe(micro_batch=4), load=LOAD, dtype="fp32"
)
ASKED = Measuring(steps=3, warmup=0, seed=7, device="cpu")


class FrozenLayers(RunningTechnique):
    """Everything but the head is frozen; passes and steps are counted."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.passes: list[tuple[str, int, int]] = []
        self.steps, self.seen, self.values = 0, 0, values

    def build(self, part: Any) -> None:
        for name, weight in part.named_parameters():
            assert weight.is_meta
            weight.requires_grad_(name == "head.weight")

    def drawn(self, module: Any) -> None:
        self.seen += not any(weight.is_meta for weight in module.parameters())

    def home(self) -> Any:
        return torch.device("cpu")

    @contextmanager
    def step(self) -> Iterator[None]:
        yield
        self.steps += 1

    @contextmanager
    def run_pass(self, kind: str, chunk: int, micro: int) -> Iterator[None]:
        self.passes.append((kind, chunk, micro))
        yield

    def result(self) -> Mapping[str, Any]:
        return {"steps": self.steps, "passes": len(self.passes), "seen": self.seen, "first": self.passes[:3]}


class Frozen(RunnerTechnique):
    name = "frozen"

    def check(self, job: TrainingJob, values: Mapping[str, Any]) -> None:
        if values["parts"] != 1:
            raise InputError("parts is not 1", where="strategy.techniques", hint="Use 1.")

    def start(self, job: TrainingJob, values: Mapping[str, Any], place: Any) -> RunningTechnique:
        return FrozenLayers(values)


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> TrainingJob:
    known = {**techniques.techniques(), "frozen": Frozen()}
    monkeypatch.setattr(techniques, "techniques", lambda: known)
    return replace(JOB, strategy=Strategy(techniques=("frozen",)), techniques={"frozen": {"parts": 1}})


def run(job: TrainingJob) -> dict[str, Any]:
    from gnomon.engines.torch.train import train

    return train(job, ASKED)


def test_hooks_of_a_technique_are_called(frozen: TrainingJob) -> None:
    found = run(frozen)
    (told,) = found["techniques"]
    assert told["frozen"] == {
        "steps": 3,
        "passes": 3 * 2 * 4,
        "seen": LLAMA.layers + 1,
        "first": [("F", 0, 0), ("B", 0, 0), ("F", 0, 1)],
    }
    plain = run(JOB)
    assert plain["losses"][0] == found["losses"][0] and plain["techniques"] == [{}]
    assert plain["losses"][1] < found["losses"][1] < found["losses"][0]  # the head alone learns, and less


def test_a_technique_is_refused_by_its_check_and_by_its_name(frozen: TrainingJob) -> None:
    with pytest.raises(InputError, match=r"parts is not 1"):
        check_job(replace(frozen, techniques={"frozen": {"parts": 2}}))
    asked = replace(JOB, strategy=Strategy(techniques=("thawed:parts=2",)), techniques={"thawed": {"parts": 2}})
    with pytest.raises(InputError, match=r"does not support the technique thawed:parts=2. .*frozen"):
        check_job(asked)


def test_states_at_home_elsewhere_learn_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's copy of fp32 weights and gradients, beside working weights in bf16."""

    class Away(RunnerTechnique):
        name = "away"

        def start(self, job: TrainingJob, values: Mapping[str, Any], place: Any) -> RunningTechnique:
            found = RunningTechnique()
            found.home = lambda: torch.device("cpu")  # type: ignore[method-assign]
            return found

    monkeypatch.setattr(techniques, "techniques", lambda: {"away": Away()})
    for dtype in ("fp32", "bf16"):
        plain = replace(JOB, dtype=dtype)
        away = replace(plain, techniques={"away": {}}, strategy=Strategy(techniques=("away",)))
        assert run(away)["losses"] == run(plain)["losses"]


class ByWeight(UpdateRule):
    """AdamW over whole weights, whose shapes and names it sees."""

    name = "lion"
    by_weight = True
    zero = (0,)
    shapes: dict[str, tuple[int, ...]]

    def make(self, masters: Mapping[str, Any], place: Any) -> Any:
        self.shapes = {name: tuple(one.shape) for name, one in masters.items()}
        return torch.optim.AdamW(list(masters.values()), lr=optimizers.LEARNING_RATE)


def test_an_optimizer_may_ask_for_whole_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = ByWeight()
    monkeypatch.setattr(optimizers, "optimizers", lambda: {"lion": rule})
    monkeypatch.setattr("gnomon.engines.torch.optimizer.optimizers", lambda: {"lion": rule})
    monkeypatch.setattr("gnomon.engines.torch.parallel.optimizers", lambda: {"lion": rule})
    job = replace(JOB, recipe=replace(JOB.recipe, optimizer="lion"))
    found = run(job)["losses"]
    assert rule.shapes["layers.3.attn.q.weight"] == (64, 64) and rule.shapes["head.weight"] == (256, 64)
    monkeypatch.undo()
    np.testing.assert_allclose(found, run(JOB)["losses"], rtol=1e-6)
    monkeypatch.setattr(optimizers, "optimizers", lambda: {"lion": rule})
    with pytest.raises(InputError, match=r"does not shard lion by ZeRO 1. Use 0"):
        check_job(replace(job, strategy=Strategy(dp=2), recipe=replace(job.recipe, zero=1)))


def test_names_are_those_of_plans() -> None:
    assert optimizers.names() and set(optimizers.optimizers()) <= set(OPTIMIZERS)
    assert set(recompute.MODES) <= set(WAYS)
    assert set(techniques.names()) <= set(priced_techniques())
    for name, one in (*optimizers.optimizers().items(), *techniques.techniques().items()):
        assert one.name == name
