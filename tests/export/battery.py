"""What every exported plan must keep: the words that it starts are the plan, in the same memory, and they fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.export import read_back, read_back_training
from tests.export.read_back import Parse, Process, deployed, run_script

import gnomon
from gnomon.engines.vllm.launch import version_of
from gnomon.engines.vllm.platforms import has_image, platform_of
from gnomon.errors import InputError
from gnomon.execution.startable import located, startable
from gnomon.graph.support import unpriced
from gnomon.load import model as load_model
from gnomon.load.plan import plan_pool
from gnomon.load.training import planned_step
from gnomon.planning.training.report import report_step
from gnomon.spec import Plan
from gnomon.spec.answers import Fit, Prediction

MASTER = "10.0.0.7"


def check_serving(plan: Plan, folder: Path, parse: Parse) -> None:
    """Both targets of a plan that serves."""
    check_script(plan, folder, parse)
    check_manifest(plan, parse)


def check_script(plan: Plan, folder: Path, parse: Parse) -> None:
    """Every process of every node of launch.sh."""
    script = gnomon.export(plan, "vllm").files["launch.sh"]
    nodes = _nodes(script)
    by_node = [_started(script, folder / str(node), node, nodes) for node in range(nodes)]
    read = [[parse(process.words[1:]) for process in started] for started in by_node]
    spanned = read[0][0].nnodes
    assert all(process.words[0] == "serve" for started in by_node for process in started)
    assert {process.vendor for started in by_node for process in started} == {plan_pool(plan).chip.vendor}
    heads = [one for started in read for one in started if not one.headless]
    assert len(heads) == plan.replicas
    if spanned > 1:
        _check_spread(read, by_node, spanned)
    for started in by_node:
        used = [device for process in started for device in process.devices]
        assert len(used) == len(set(used))
        assert max(used) < plan_pool(plan, 10**6).machine_chips
    chips = len(by_node[0][0].devices) * spanned
    assert chips == plan.ranks
    for head in heads:
        same(plan, deployed(head, chips))


def _nodes(script: str) -> int:
    said = [line for line in script.splitlines() if "with NODE from 0 to" in line]
    return int(said[0].rstrip(".").rpartition(" ")[2]) + 1 if said else 1


def _started(script: str, folder: Path, node: int, nodes: int) -> list[Process]:
    arguments = [str(node)] if nodes > 1 else []
    return run_script(script, folder, "vllm", *arguments, MASTER_ADDR=MASTER)


def _check_spread(read: list[list[Any]], by_node: list[list[Process]], spanned: int) -> None:
    """Replicas over several nodes: numbered, all with the address of the first, which alone takes requests."""
    for node, ((one,), (process,)) in enumerate(zip(read, by_node, strict=True)):
        assert (one.nnodes, one.node_rank, one.master_addr) == (spanned, node % spanned, MASTER)
        assert one.headless == (node % spanned > 0)
        assert len(process.devices) == len(by_node[0][0].devices)


def check_manifest(plan: Plan, parse: Parse) -> None:
    """The Deployment of a plan, or a reason why there is none."""
    platform = platform_of(plan_pool(plan).chip)
    try:
        text = gnomon.export(plan, "kubernetes").files["deployment.yaml"]
    except InputError as error:
        spread = plan.ranks > plan_pool(plan, 10**6).machine_chips
        assert spread or not (platform and has_image(platform, version_of(plan))), error
        return
    one, replicas, vendor, product = read_back.read_kubernetes(text, parse)
    assert (replicas, one.chips, vendor) == (plan.replicas, plan.ranks, plan_pool(plan).chip.vendor)
    assert not product or product in plan_pool(plan).chip.aliases
    same(plan, one)


def same(plan: Plan, one: read_back.Deployed) -> None:
    """A replica read back is the plan's: in memory, and in the time of a step."""
    ours, theirs = _fit(plan), one.fit(plan.chip)
    assert theirs.fits
    assert (theirs.parts, theirs.kv_blocks, theirs.max_context) == (ours.parts, ours.kv_blocks, ours.max_context)
    if not unpriced(load_model(plan.checkpoint or plan.model)) and not plan.strategy.techniques:
        assert one.predict(plan.chip).time_s.value == _predict(plan, one).time_s.value


def _words(plan: Plan) -> dict[str, Any]:
    degrees = {name: getattr(plan.strategy, name) for name in ("tp", "pp", "ep", "cp", "dp")}
    return {
        "dtype": plan.dtype,
        "kv_dtype": plan.kv_dtype or None,
        "engine": plan.engine.label,
        "settings": plan.engine.settings,
        **degrees,
    }


def _fit(plan: Plan) -> Fit:
    return gnomon.fit(plan.checkpoint or plan.model, on=f"{plan.chip}:{plan.ranks}", **_words(plan))


def _predict(plan: Plan, one: read_back.Deployed) -> Prediction:
    own = read_back.Deployed(model=plan.checkpoint or plan.model, chips=one.chips, words=_words(plan))
    return own.predict(plan.chip)


def check_training(plan: Plan, folder: Path, parse: read_back_training.Parse) -> None:
    """Megatron-LM's options, and torchrun's processes around them."""
    ready = startable(located(plan), "megatron", gnomon.fit)
    script = gnomon.export(plan, "megatron").files["run.sh"]
    (process,) = run_script(script, folder, "torchrun", MASTER_ADDR=MASTER, NODE_RANK="0")
    words = list(process.words)
    start = next(place for place, word in enumerate(words) if word.endswith("pretrain_gpt.py"))
    launcher = dict(zip(words[:start:2], words[1:start:2], strict=True))
    chips = int(launcher["--nnodes"]) * int(launcher["--nproc-per-node"])
    assert chips == plan.chips
    assert int(launcher["--nproc-per-node"]) <= plan_pool(plan, 10**6).machine_chips
    said = parse(words[start + 1 :])
    theirs = read_back_training.simulated(said, plan.chip, chips, folder)
    ours = report_step(planned_step(ready))
    assert theirs.fits
    assert theirs.peak_memory_bytes.value == ours.peak_memory_bytes.value
    assert theirs.step_time_s.value == ours.step_time_s.value
    assert theirs.step.job.model.parameters == ours.step.job.model.parameters
