"""The built-in training runner beside itself: however a plan cuts the work up, the same is learnt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.torch_ranks import GPT, LLAMA, LOAD, MODELS, RANKS, Case, cases

from gnomon.engines.torch.launch import Measuring
from gnomon.errors import GnomonError, InputError
from gnomon.load import parse_pool, plan_to_yaml, write_plan
from gnomon.load.training import job_of
from gnomon.sim.training import schedule
from gnomon.spec import EngineChoice, MoeFfn, Plan, Recipe, Strategy, TrainingLoad
from gnomon.spec.training_job import TrainingJob

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
import torch

pytestmark = pytest.mark.oracle

ROOT = Path(__file__).parents[2]
CASES = cases()
LEARN_OTHERWISE = ("lora:rank=8",)
"""Techniques that change what is learnt."""
EXACT = {"losses": 2e-6, "grad_norms": 1e-4}
"""Seen: 3e-7 and 4e-5. A sum of squares in one long fp32 buffer is off by more than the gradients are."""
COARSE = {"losses": 3e-4, "grad_norms": 3e-3}
"""bf16 work; seen: 3e-5 and 6e-4."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All plans, by four processes that are started once, and by eight."""
    return run_by(RANKS, tmp_path_factory) | run_by(2 * RANKS, tmp_path_factory)


def run_by(ranks: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("ranks") / "out.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [*launcher, "-m", "tests.oracles.torch_ranks", str(out)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def reference(case: Case) -> str:
    tail, optimizer = {"fp32": "", "bf16": ", bf16"}[case.dtype], case.recipe.optimizer
    if case.techniques and case.techniques[0] in LEARN_OTHERWISE:
        return f"{case.model} alone, {case.techniques[0]}"
    return f"{case.model} alone" + (tail if optimizer == "adamw" else f", {optimizer}")


@pytest.mark.parametrize("model", MODELS)
def test_there_is_something_to_learn(measured: dict[str, Any], model: str) -> None:
    losses = measured[f"{model} alone"]["losses"]
    assert losses[0] == pytest.approx(np.log(MODELS[model].vocab), abs=0.1)
    assert losses[-1] < losses[0] - 0.2


@pytest.mark.parametrize("name", CASES)
def test_every_plan_learns_the_same(measured: dict[str, Any], name: str) -> None:
    expected = measured[reference(CASES[name])]
    exact = CASES[name].dtype == "fp32" and CASES[name].recipe.optimizer == "adamw"
    for key, tolerance in (EXACT if exact else COARSE).items():
        steps = CASES[name].steps
        np.testing.assert_allclose(measured[name][key], expected[key][:steps], rtol=tolerance, err_msg=key)


@pytest.mark.parametrize("name", ["llama alone, bf16", "llama alone, adamw-bf16"])
def test_bf16_learns_about_what_fp32_does(measured: dict[str, Any], name: str) -> None:
    exact = measured["llama alone"]["losses"]
    assert measured[name]["losses"] != exact[: CASES[name].steps]
    np.testing.assert_allclose(measured[name]["losses"], exact[: CASES[name].steps], rtol=1e-3)


def test_a_process_alone_has_nothing_to_shard_over(measured: dict[str, Any]) -> None:
    from gnomon.engines.torch.train import train

    asked = JOB | {"recipe": Recipe(micro_batch=2, zero=3)}
    found = train(TrainingJob(**asked), Measuring(steps=3, warmup=0, seed=7, device="cpu"))
    np.testing.assert_allclose(found["losses"], measured["llama alone"]["losses"][:3], rtol=EXACT["losses"])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.strategy.ranks > 1])
def test_ranks_run_the_tasks_of_the_schedule(measured: dict[str, Any], name: str) -> None:
    strategy, recipe = CASES[name].strategy, CASES[name].recipe
    micros = LOAD.global_batch // (strategy.dp * recipe.micro_batch)
    orders = schedule(recipe.schedule).tasks(strategy.pp, strategy.vp, micros)
    for rank, actions in enumerate(measured[name]["actions"]):
        stage = rank // (strategy.dp * strategy.cp * strategy.tp)
        assert [tuple(action) for action in actions] == [tuple(task[:3]) for task in orders[stage]]


def test_stages_are_those_that_are_priced() -> None:
    from gnomon.engines.torch.parallel import stages

    def found(pp: int, given: str = "", layers: int = 6) -> list[int]:
        model = replace(LLAMA, blocks=(replace(LLAMA.blocks[0], count=layers),))
        recipe = Recipe(layers_per_stage=given)
        held = stages(TrainingJob(**JOB | {"model": model, "strategy": Strategy(pp=pp), "recipe": recipe}))
        assert [n for one in held for n in one] == list(range(layers))
        return [len(one) for one in held]

    assert found(4) == [1, 2, 2, 1] and found(3) == [2, 2, 2]
    assert found(4, "0,1,4,1") == [0, 1, 4, 1] and found(1, "0,1,4,1") == [6]


JOB: dict[str, Any] = {
    "model": LLAMA, "pool": parse_pool("H100:8"), "strategy": Strategy(), "recipe": Recipe(), "load": LOAD,
    "dtype": "fp32",
}  # fmt: skip
MOE = replace(LLAMA, blocks=(replace(LLAMA.blocks[0], ffn=MoeFfn(experts=4, topk=2, inner=64)),))
GROUPED = replace(MOE, blocks=(replace(MOE.blocks[0], ffn=replace(MOE.blocks[0].ffn, groups=2)),))
WINDOWED = replace(LLAMA, blocks=(replace(LLAMA.blocks[0], mixer=replace(LLAMA.blocks[0].mixer, window=16)),))
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "parts": ({"strategy": Strategy(pp=4, vp=2), "recipe": Recipe(schedule="interleaved")}, r"4 layers .* 8 equal"),
    "layers of stages": (
        {"strategy": Strategy(pp=2), "recipe": Recipe(layers_per_stage="3,2")},
        r"layers_per_stage: 3,2 sums to 5 layers of 4",
    ),
    "heads": ({"strategy": Strategy(tp=8)}, r"4 key-value heads .* Use 4"),
    "batch": ({"strategy": Strategy(dp=3)}, r"load.global_batch: 16 .* Use 15 or 18"),
    "experts cut": (
        {"model": MOE, "strategy": Strategy(tp=2)},
        r"mixtures of experts.*strategy.tp|strategy.tp: .*experts",
    ),
    "experts of a dense model": ({"strategy": Strategy(dp=2, ep=2)}, r"strategy.ep: .*has no experts. Use 1"),
    "too few ranks for ep": ({"model": MOE, "strategy": Strategy(dp=2, ep=4)}, r"strategy.ep"),
    "grouped experts": ({"model": GROUPED}, r"no groups of experts.*megatron"),
    "tied pipeline": ({"model": MODELS["tied"], "strategy": Strategy(pp=2)}, r"strategy.pp: .* Use 1"),
    "positions": ({"model": GPT, "load": TrainingLoad(seq=128, global_batch=16)}, r"64 learned positions.* at most 64"),
    "window": ({"model": WINDOWED}, r"has one of 16 tokens.* at most 16"),
    "pieces of a sequence": ({"strategy": Strategy(cp=3)}, r"strategy.cp, two pieces a rank: 32 tokens .*"),
    "heads traded for tokens": (
        {"strategy": Strategy(cp=8), "recipe": Recipe(cp_comm="a2a")},
        r"strategy.cp: 4 heads .* Use 4",
    ),
    "ways to share keys": ({"strategy": Strategy(cp=2), "recipe": Recipe(cp_comm="mail")}, r"'mail'.*p2p"),
    "half-filled 1f1b": ({"strategy": Strategy(pp=4), "recipe": Recipe(micro_batch=8)}, r"global batch of 32 or more"),
    "vp without interleaving": ({"strategy": Strategy(pp=2, vp=2)}, r"strategy.vp: .*schedule interleaved"),
    "interleaving without vp": (
        {"strategy": Strategy(pp=2), "recipe": Recipe(schedule="interleaved")},
        r"needs vp of 2 or more",
    ),
    "two copies of a network on three ranks": (
        {"strategy": Strategy(pp=3), "recipe": Recipe(schedule="dualpipe")},
        r"strategy.pp: .*even number.* Use 4",
    ),
    "split backward with tensor parallelism": (
        {"strategy": Strategy(tp=2, pp=2), "recipe": Recipe(schedule="zb-h1")},
        r"strategy.tp: .* does not split backward passes with tp 2",
    ),
    "split backward with sharded weights": (
        {"strategy": Strategy(pp=2, dp=2), "recipe": Recipe(schedule="zb-h1", zero=3)},
        r"zero 3.* Use 1",
    ),
    "split backward that recomputes": (
        {"strategy": Strategy(pp=2), "recipe": Recipe(schedule="zb-h1", recompute="selective")},
        r"recompute selective.* Use none",
    ),
    "odd interleaving": (
        {"strategy": Strategy(pp=2, vp=2), "recipe": Recipe(micro_batch=16, schedule="interleaved")},
        r"multiple of 32",
    ),
    "fp16": ({"dtype": "fp16"}, r"does not train in fp16.*bf16"),
    "optimizer": ({"recipe": Recipe(optimizer="adamw-bf16")}, r"adamw-bf16 does not support fp32"),
    "nobody else": ({"strategy": Strategy(dp=2)}, r"needs 2 processes, not 1.*torchrun --nproc-per-node 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_is_refused(name: str) -> None:
    from gnomon.engines.torch.train import train

    given, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        train(TrainingJob(**JOB | given), Measuring(steps=1, warmup=0, device="cpu"))


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 256,
        "max_position_embeddings": 64,
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    return Plan(
        model=str(file),
        chip="H200-SXM-141GB",
        replicas=1,
        strategy=Strategy(pp=2),
        dtype="bf16",
        engine=EngineChoice(name="torch", settings={"micro_batch": 2, "recompute": "selective"}),
        load=TrainingLoad(seq=16, global_batch=8),
    )


def started(plan: Plan, measuring: Measuring, tell: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    from gnomon.engines.torch.runner import run

    return run(job_of(plan), plan_to_yaml(plan), tell, measuring)


def test_a_plan_is_run_by_processes_of_its_own(plan: Plan) -> None:
    said: list[str] = []
    found = started(plan, Measuring(steps=2, warmup=1, device="cpu"), said.append)
    assert len(found["step_s"]) == len(found["losses"]) == 2 and min(found["step_s"]) > 0
    assert found["tokens_per_step"] == 128 and len(found["actions"]) == 2
    assert found["peak_memory_bytes"] == [None, None] and found["versions"]["torch"] == torch.__version__
    assert said[0] == "starting 2 processes" and said[1].startswith("warm-up 1 of 1: ")
    assert said[-1].startswith("step 2 of 2: ")


def test_the_runner_says_what_is_missing(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(InputError, match=r"needs 2 GPUs and this machine has 1\. .*cpu"):
        started(plan, Measuring())
    with pytest.raises(InputError, match=r"steps: 0 is less than 1"):
        started(plan, Measuring(steps=0, device="cpu"))
    monkeypatch.setattr("gnomon.engines.torch.runner.WORKER", "gnomon.engines.torch.nobody")
    with pytest.raises(GnomonError, match=r"exited with code 1: .*No module named gnomon.engines.torch.nobody"):
        started(replace(plan, strategy=Strategy()), Measuring(device="cpu"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(GnomonError, match=r"pip install 'gnomon\[torch\]'"):
        started(plan, Measuring(device="cpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="has the GPU that is to be missing")
def test_a_rank_that_fails_says_so_on_one_line(plan: Plan, tmp_path: Path) -> None:
    write_plan(replace(plan, strategy=Strategy()), tmp_path / "plan.yaml")
    words = [sys.executable, "-m", "gnomon.engines.torch.worker", str(tmp_path / "plan.yaml")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: --device: PyTorch finds no GPU here. Use --device cpu.\n"


def test_the_first_cause_is_told() -> None:
    from gnomon.engines.torch.worker import described

    outer = RuntimeError("stage 3 failed to run forward:\n lots of shapes")
    outer.__cause__ = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")
    assert described(outer, 3).startswith("rank 3 ran out of memory.")
    assert "Tried to allocate 2.00 GiB" in described(outer, 3) and "\n" not in described(outer, 3)
    assert described(ValueError("odd\nshape"), 1) == "rank 1 failed: ValueError: odd"
