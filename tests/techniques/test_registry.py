"""Where techniques come from, and what a pass of one does to a step."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.layer_cost import tapes_of
from gnomon.errors import InputError
from gnomon.graph.layers import NodePass
from gnomon.graph.layers.writer import Writer
from gnomon.graph.passes.freeze import freeze
from gnomon.graph.tape import TapeNode
from gnomon.sim.training import SCHEDULES
from gnomon.techniques import TRAINING, Technique, Trial

registry = import_module("gnomon.techniques")
"""`gnomon.techniques` is a function of the public face."""


class FrozenEmbedding(Technique[TrainingCase]):
    """Without the gradient of the embedding's table."""

    name = "frozen-embedding"
    work = (TRAINING,)
    title = idea = "The embedding is not trained"
    trials = (Trial(paper="gpipe", words="frozen-embedding"),)

    def program(self, case: TrainingCase, values: Any) -> NodePass:
        def freeze(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            if part != "embedding":
                return nodes
            return [replace(node, wgrad=()) for node in nodes]

        return freeze


def simulate(**more: Any) -> Any:
    return gnomon.simulate_training("llama-3.2-1b", on="H100", seq=2048, global_batch=2, **more)


def test_a_technique_of_another_package_is_used_by_name(outside: dict[str, Any]) -> None:
    outside["frozen-embedding"] = FrozenEmbedding()
    plain, frozen = simulate(), simulate(techniques=["frozen-embedding"])
    assert frozen.step_time_s.value < plain.step_time_s.value
    assert frozen.plan.strategy.techniques == ("frozen-embedding",)


def test_a_pass_is_seen_by_search_and_simulation_alike(outside: dict[str, Any]) -> None:
    outside["frozen-embedding"] = FrozenEmbedding()
    found = gnomon.plan_training(
        "llama-3.2-1b", cluster="H100", seq=2048, global_batch=2, techniques=["frozen-embedding"]
    )
    again = simulate(techniques=["frozen-embedding"], recompute=found.best.plan.engine.settings["recompute"],
                     micro_batch=found.best.plan.engine.settings["micro_batch"])  # fmt: skip
    assert again.step_time_s.value == pytest.approx(found.best.step_time_s.value, rel=1e-12)


class FrozenLayers(FrozenEmbedding):
    """No layer is trained: gradients only pass through."""

    name = "frozen-layers"

    def program(self, case: TrainingCase, values: Any) -> NodePass:
        def freeze(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            return [replace(node, frozen=True) for node in nodes] if part == "layer" else nodes

        return freeze


def test_frozen_weights_have_no_gradients_and_save_nothing_for_them(outside: dict[str, Any]) -> None:
    outside["frozen-layers"] = FrozenLayers()
    plain, frozen = simulate(), simulate(techniques=["frozen-layers"])
    usual, tape = (tapes_of(one.step.job.model, one.step.cut, one.step.traits)["layer"] for one in (plain, frozen))
    (there, back), (same, less) = (
        [sum(op.flops(frozen.step.batch)[0] for op in ops) for ops in (of.forward_ops(), of.backward_ops("none"))]
        for of in (usual, tape)
    )
    assert same == there and not tape.parameters and tape.frozen_parameters == usual.parameters
    gemms = sum(op.flops(frozen.step.batch)[0] for op in tape.forward_ops() if op.kind == "gemm")
    assert back - less == pytest.approx(gemms, rel=1e-9), "the GEMMs by weight are left out"
    assert frozen.memory_parts[0]["activations"] < 0.8 * plain.memory_parts[0]["activations"]
    trained = 1 - 16 * usual.parameters / plain.step.job.model.parameters
    for part, share in (("weights", 1.0), ("gradients", trained), ("optimizer", trained)):
        assert frozen.memory_parts[0][part] == pytest.approx(share * plain.memory_parts[0][part], rel=1e-9)


class FrozenNetwork(FrozenEmbedding):
    """Nothing is trained but the norm before the head."""

    name = "frozen-network"

    def program(self, case: TrainingCase, values: Any) -> NodePass:
        def frozen(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            kept = [node for node in nodes if node.name == "head.norm"]
            rest = freeze([node for node in nodes if node not in kept], writer, first=part == "embedding")
            return kept + [
                replace(node, packed_bytes=node.parameters / 2, unpacked_bytes=2 * node.parameters)
                if node.name == "ffn.down"
                else node
                for node in rest
            ]

        return frozen


@pytest.mark.parametrize("engine", ["megatron", "torchtitan", "transformers"])
def test_frozen_weights_of_every_part_are_held_once_and_packed_ones_in_their_format(
    outside: dict[str, Any], engine: str
) -> None:
    outside["frozen-network"] = FrozenNetwork()
    load = {"on": "H100", "seq": 512, "global_batch": 1, "engine": engine}
    plain = gnomon.simulate_training("llama-3.2-1b", **load)
    found = gnomon.simulate_training("llama-3.2-1b", **load, techniques=["frozen-network"])
    model, memory = found.step.job.model, found.memory_parts[0]
    hidden, layers, inner = model.hidden, model.layers, model.blocks[0].feed_forward.inner
    packed, each = layers * hidden * inner, plain.step.traits.optimizers["adamw"].weight_bytes
    weights = each * (model.parameters - packed) + packed / 2
    assert memory["weights"] == pytest.approx(weights, rel=1e-5)
    assert found.trainable_parameters == hidden and plain.trainable_parameters == model.parameters
    assert memory["optimizer"] == pytest.approx(hidden * plain.step.traits.optimizers["adamw"].state_bytes, rel=1e-9)
    assert memory["working"] >= 2 * hidden * inner, "a packed matrix is unpacked while it is used"


def test_frozen_weights_are_gathered_with_the_others_where_they_are_shared_out(outside: dict[str, Any]) -> None:
    outside["frozen-network"] = FrozenNetwork()
    load = {"on": "H100:8", "seq": 512, "global_batch": 8, "techniques": ["frozen-network"]}
    whole, shared = (gnomon.simulate_training("llama-3.2-1b", **load, zero=zero) for zero in (0, 3))
    assert shared.memory_parts[0]["weights"] < 0.5 * whole.memory_parts[0]["weights"]
    assert shared.step.figures.forward_s[0] > whole.step.figures.forward_s[0]


@pytest.mark.parametrize("given", [RuntimeError("broken"), object()], ids=["raises", "is something else"])
def test_a_package_that_is_broken_is_named(outside: dict[str, Any], given: Any) -> None:
    outside["other"] = given
    with pytest.raises(InputError, match="other"):
        simulate(techniques=["other"])


def test_every_file_is_found() -> None:
    assert {"offload-optimizer", "gpipe", "interleaved", "kv-swap", "int4-weights"} <= set(registry.techniques())


def test_last_resorts_train_something_else_than_the_network() -> None:
    """So no search tries them by itself."""
    named = [registry.technique(name) for name in registry.last_resorts()]
    assert named and all("parameters" in one.changes and not one.searched for one in named)


SAID_IN = re.compile(r"techniques/|engines/|papers/|lab/|accuracy/")
"""Techniques name what they exclude, engines what they express, papers and experiments what they try, and accuracy what
published runs had."""


OTHER_MEANINGS = {*SCHEDULES, "int4-weights"}
"""Schedules, and a format of GEMMs."""


@pytest.mark.heavy
def test_no_technique_is_named_outside_its_file() -> None:
    known, root = set(registry.techniques()) - OTHER_MEANINGS, Path(gnomon.__file__).parent
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not SAID_IN.match(name):
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            said = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
            assert not said & known, name


def test_a_file_is_named_after_its_technique() -> None:
    for name, one in registry.techniques().items():
        assert type(one).__module__ == f"gnomon.techniques.{name.replace('-', '_')}"
        assert registry._named(name) is one


def test_one_technique_imports_no_other() -> None:
    """Serving with one imports nothing of training."""
    code = "from gnomon.techniques import technique; technique('kv-swap'); import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = {name for name in done.stdout.split() if name.startswith("gnomon.techniques.")}
    own = {"applied", "base", "hosts", "kv_swap", "outside"}
    assert found == {f"gnomon.techniques.{name}" for name in own}


def test_every_line_of_the_list_says_something(capsys: pytest.CaptureFixture[str]) -> None:
    """Some techniques come from no paper of the index, some exclude none."""
    from gnomon.cli.run import run

    assert run(["techniques"]) == 0
    sources = [line for line in capsys.readouterr().out.splitlines() if line.startswith("    from")]
    assert sources and all(re.match(r"    from [a-z0-9]", line) for line in sources)
    assert all(trial.paper for one in registry.techniques().values() for trial in one.trials)
