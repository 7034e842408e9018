"""vLLM's operations: launch commands and scripts, containers, commands read back, and the engine run for real."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gnomon.engines.operations import Container
from gnomon.engines.vllm import ENGINE, launch
from gnomon.engines.vllm.degrees import arranged
from gnomon.engines.vllm.drafts import NONE
from gnomon.engines.vllm.imported import config_command, import_command, own_command
from gnomon.engines.vllm.launch import (
    first_command,
    headline,
    layout,
    not_expressed,
    own_checkpoint,
    servers,
    version_of,
)
from gnomon.engines.vllm.options import fill
from gnomon.engines.vllm.platforms import Platform, has_image, not_run, platform_of, refused_dtype
from gnomon.engines.vllm.roles import (
    graph_worker,
    pool_server,
    pools_not_expressed,
    routed_by,
    router,
    router_policies,
)
from gnomon.engines.vllm.script import script
from gnomon.errors import InputError
from gnomon.load.hf import model as load_model
from gnomon.load.plan import plan_pool
from gnomon.spec import Plan, ServingLoad

if TYPE_CHECKING:
    from gnomon.engines.vllm.runner import VllmRunner

__all__ = [
    "INSTALL",
    "NAME",
    "TITLE",
    "as_measured",
    "check",
    "check_measured",
    "command",
    "config_command",
    "container",
    "file_options",
    "graph_worker",
    "headline",
    "import_command",
    "layout",
    "not_expressed",
    "own_checkpoint",
    "own_command",
    "pool_server",
    "pools_not_expressed",
    "program",
    "routed_by",
    "router",
    "router_policies",
    "runner",
    "script",
    "servers",
    "version_of",
    "versions",
]
NAME, TITLE = ENGINE.name, ENGINE.title
INSTALL = "pip install 'gnomon[vllm]'"
STARTUP_PROBES = 180
"""Ten seconds each: half an hour to load the weights and capture graphs."""
MADE_HERE = ("bf16", "fp16", "fp8")
"""Formats that vLLM makes of dummy weights."""
IN_PROCESS = {"front_end": "in_process"}
"""How the runner calls the engine, whatever a plan says."""
NOT_PASSED_ON = ("enable_prefix_caching", *IN_PROCESS)
"""Settings that the runner sets itself: prompts are random, so prefixes are never shared."""

command = first_command


def file_options(plan: Plan) -> list[str]:
    return []


def check(plan: Plan) -> None:
    chip = plan_pool(plan).chip
    if why := not_run(chip):
        hint = "Plan it for a chip that vLLM runs on (`gnomon chips`)."
        raise InputError(why, where="chip", hint=hint)
    if why := refused_dtype(chip, plan.dtype):
        raise InputError(why, where="dtype", hint="Plan it in fp16.")
    model = load_model(plan.model)
    given = arranged(plan.strategy, plan.engine.settings)[1]
    settings = fill(given, model, plan_pool(plan), launch.release_of(plan))
    if error := launch.no_weights(plan, model) or launch.not_offloaded(plan, model) or launch.no_draft_model(settings):
        raise error


def container(plan: Plan) -> Container:
    platform = _platform(plan)
    words = launch.command(plan)
    return Container(
        image=f"{platform.image}:v{version_of(plan)}",
        resource=platform.resource,
        command=tuple(words[:2]),
        args=(*words[2:], "--port", str(launch.FIRST_PORT)),
        weights=words[2],
        port=launch.FIRST_PORT,
        health="/health",
        startup_probes=STARTUP_PROBES,
        environment=launch.environment(plan),
    )


def _platform(plan: Plan) -> Platform:
    """The device resource of the chips, and the image for them. Raises InputError where there is none."""
    chip = plan_pool(plan).chip
    platform = platform_of(chip)
    if platform is None:
        hint = "Plan it for a chip that vLLM runs on: gnomon chips."
        raise InputError(f"there is no image for it: {not_run(chip)}", where="chip", hint=hint)
    if not has_image(platform, version_of(plan)):
        raise InputError(
            f"no image of vLLM {version_of(plan)} is published for {chip.name} (the platform {platform.name})",
            where="chip",
            hint="Export it to vllm, and start launch.sh where vLLM was built for it.",
        )
    return platform


def program() -> list[str]:
    found = shutil.which("vllm")
    if found:
        return [found]
    return [sys.executable, "-m", "vllm.entrypoints.cli.main"] if importlib.util.find_spec("vllm") else []


def check_measured(plan: Plan) -> None:
    if isinstance(plan.load, ServingLoad) and plan.load.images is not None:
        hint = "Plan it without --images."
        raise InputError("requests with images are not measured yet", where="load.images", hint=hint)
    if plan.dtype not in MADE_HERE and plan.dtype != load_model(plan.model).dtype:
        hint = f"Verify a plan in {', '.join(MADE_HERE)}, or of a checkpoint that is stored in {plan.dtype}."
        raise InputError(f"vLLM does not make weights in {plan.dtype} itself", where="dtype", hint=hint)
    if error := launch.not_offloaded(plan, load_model(plan.model)):
        raise error
    if plan.engine.settings.get("speculative_method", NONE) != NONE:
        message = "how many drafts are accepted is not measured with dummy weights"
        raise InputError(message, where="setting speculative_method", hint="Verify the plan without drafts.")


def runner(plan: Plan, config: Mapping[str, Any]) -> VllmRunner:
    from gnomon.engines.vllm.runner import VllmRunner

    os.environ.update(launch.environment(plan))
    return VllmRunner(config, _arguments(plan))


def _arguments(plan: Plan) -> dict[str, Any]:
    """The plan's settings as vLLM's engine takes them."""
    _, settings = arranged(plan.strategy, plan.engine.settings)
    given = {name: value for name, value in settings.items() if name not in NOT_PASSED_ON}
    given |= {"tensor_parallel_size": plan.strategy.tp, "dtype": "bfloat16"}
    if plan.strategy.ep > 1:
        given["enable_expert_parallel"] = True
    if plan.dtype == "fp8":
        given["quantization"] = "fp8"
    if plan.kv_dtype == "fp8":
        given["kv_cache_dtype"] = "fp8"
    return given


def as_measured(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**settings, **IN_PROCESS}


def versions() -> dict[str, str]:
    from gnomon.engines.vllm.runner import versions as found

    return found()
