"""Adapters under the built-in runner: what plain PyTorch learns, however a plan cuts the work up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.adapter_ranks import ALONE, ASKED, JOB, LEARNT, asked, cases

from gnomon.engines.torch.checks import check_job
from gnomon.errors import InputError
from gnomon.spec import Recipe, Strategy
from gnomon.spec.training_job import TrainingJob

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
import torch
from torch import nn
from torch.nn import functional as F

pytestmark = pytest.mark.oracle
ROOT = Path(__file__).parents[2]
TOLERANCE = {"losses": 2e-6, "grad_norms": 1e-4}


def run(job: TrainingJob) -> dict[str, Any]:
    from gnomon.engines.torch.train import train

    return train(job, ASKED)


class Plain(nn.Module):  # type: ignore[misc]
    """A matrix that is not trained, and two thin ones."""

    def __init__(self, base: nn.Linear, rank: int, magnitudes: bool, quantised: bool) -> None:
        super().__init__()
        weight = base.weight.data
        self.register_buffer("weight", four_bits(weight) if quantised else weight.clone())
        self.bias = base.bias
        self.a, self.b = (
            nn.Parameter(torch.empty(rank, weight.shape[1])),
            nn.Parameter(torch.empty(weight.shape[0], rank)),
        )
        self.m = nn.Parameter(weight.norm(dim=1)) if magnitudes else None

    def forward(self, x: Any) -> Any:
        if self.m is None:
            return F.linear(x, self.weight, self.bias) + 2 * (x @ self.a.T @ self.b.T)
        summed = self.weight + 2 * self.b @ self.a
        return F.linear(x, summed * (self.m / summed.detach().norm(dim=1))[:, None], self.bias)


def four_bits(weight: Any) -> Any:
    """Each weight the nearest of sixteen quantiles of a normal distribution, times the largest of its block of 64."""
    from gnomon.engines.torch.nf4 import CODES

    blocks = weight.reshape(-1, 64)
    largest = blocks.abs().max(1, keepdim=True).values
    nearest = ((blocks / largest)[:, :, None] - torch.tensor(CODES)).abs().argmin(2)
    return (torch.tensor(CODES)[nearest] * largest).reshape(weight.shape)


def reference(kind: str) -> list[float]:
    """Losses of a plain loop: one batch a step, clipped gradients, AdamW."""
    from gnomon.engines.torch.data import sequences
    from gnomon.engines.torch.model import Part, rope_table
    from gnomon.engines.torch.parallel import _initial

    model = JOB.model
    place = type("Here", (), {"device": torch.device("cpu")})()
    part = Part(model, range(model.layers), JOB.load.seq, Recipe())
    for name, weight in part.named_parameters():
        weight.data.copy_(_initial(name, weight, ASKED.seed, place)).requires_grad_(False)
        weight.requires_grad_(False)
    for number, layer in part.layers.items():
        for half, parent in (("attn", layer.attn), ("ffn", layer.ffn)):
            for name, linear in list(parent.named_children()):
                if isinstance(linear, nn.Linear):
                    made = Plain(linear, 8, kind == "dora", kind == "qlora")
                    drawn = _initial(f"layers.{number}.{half}.{name}.lora_a", made.a, ASKED.seed, place)
                    made.a.data.copy_(drawn)
                    made.b.data.zero_()
                    setattr(parent, name, made)
    part.rope = rope_table(JOB.load.seq, model.blocks[0].mixer.head_dim, torch.float32, "cpu")
    trained = [weight for weight in part.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    losses = []
    for step in range(ASKED.steps):
        rows = torch.from_numpy(
            sequences(
                seed=ASKED.seed, step=step, numbers=range(JOB.load.global_batch), seq=JOB.load.seq, vocab=model.vocab
            )
        )
        loss = part(rows[:, :-1], rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize("kind", ["lora", "qlora", "dora"])
def test_losses_are_those_of_a_plain_loop(kind: str) -> None:
    found = run(asked(ALONE, f"{kind}:rank=8" + (",double_quant=no" if kind == "qlora" else "")))
    expected = reference(kind)
    np.testing.assert_allclose(found["losses"], expected, rtol=2e-6)
    assert expected[-1] < expected[0] - LEARNT


def test_results_name_what_ran() -> None:
    (told,) = run(asked(ALONE, "qlora:rank=8"))["techniques"]
    block = JOB.model.blocks[0]
    matrices = sum(tensor.rows * tensor.columns for tensor in block.tensors(JOB.model.hidden) if tensor.columns > 1)
    assert told["qlora"]["nf4_kernel"] == "PyTorch's operators"
    assert told["qlora"]["packed_parameters"] == JOB.model.layers * matrices


@pytest.mark.parametrize("targets", ["all-linear", "attention", "qkv", "qv"])
def test_what_is_trained_is_what_is_priced(targets: str) -> None:
    from gnomon.engines.torch.engine import ADAPTERS
    from gnomon.engines.torch.style import style
    from gnomon.graph.layers import Cut, layer
    from gnomon.techniques.adapters import AdapterPass

    (told,) = run(asked(ALONE, f"lora:rank=8,targets={targets}"))["techniques"]
    how = AdapterPass(style=ADAPTERS, rank=8, targets=targets)
    tape = layer(JOB.model, JOB.model.blocks[0], Cut(seq=JOB.load.seq), style(JOB.model), (how,))
    assert told["lora"]["trained_parameters"] == JOB.model.layers * tape.parameters


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All plans, by four processes that are started once."""
    out = tmp_path_factory.mktemp("ranks") / "out.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    done = subprocess.run(
        [*launcher, "-m", "tests.oracles.adapter_ranks", str(out)],
        cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.mark.parametrize("kind", ["lora", "qlora", "dora"])
def test_every_plan_learns_the_same(measured: dict[str, Any], kind: str) -> None:
    alone = run(asked(ALONE, f"{kind}:rank=8"))
    for name in [name for name in cases() if name.startswith(f"{kind} ")]:
        narrow = "bf16" in name
        for key, tolerance in TOLERANCE.items():
            limit = 100 * tolerance if narrow else tolerance
            np.testing.assert_allclose(measured[name][key], alone[key], rtol=limit, err_msg=f"{name}: {key}")


REFUSED = [
    ("qlora", Strategy(tp=2), Recipe(), "qlora with tensor parallelism"),
    ("dora", Strategy(tp=2), Recipe(), "dora with tensor parallelism"),
    ("qlora", Strategy(dp=2), Recipe(zero=3), "packed weights are whole on every rank"),
    ("lora:dropout=0.1", Strategy(), Recipe(recompute="full"), "keeps no random state"),
    ("lora", Strategy(pp=2), Recipe(schedule="zb-h1"), "does not split backward passes"),
]


@pytest.mark.parametrize(("text", "strategy", "recipe", "why"), REFUSED)
def test_what_it_does_not_run_is_refused(text: str, strategy: Strategy, recipe: Recipe, why: str) -> None:
    with pytest.raises(InputError, match=why):
        check_job(asked(replace(JOB, strategy=strategy, recipe=recipe), text))
