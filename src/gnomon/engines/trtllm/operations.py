"""TensorRT-LLM's operations: `trtllm-serve` commands with their YAML, scripts, containers, commands read back."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gnomon.engines.operations import Container
from gnomon.engines.trtllm import ENGINE, launch
from gnomon.engines.trtllm.imported import config_command, import_command, own_command
from gnomon.engines.trtllm.launch import (
    file_options,
    first_command,
    headline,
    layout,
    not_expressed,
    own_checkpoint,
    servers,
    version_of,
)
from gnomon.engines.trtllm.platforms import IMAGE, RESOURCE, not_run
from gnomon.engines.trtllm.roles import (
    graph_worker,
    pool_server,
    pools_not_expressed,
    routed_by,
    router,
    router_policies,
)
from gnomon.engines.trtllm.script import script
from gnomon.errors import InputError
from gnomon.load.hf import model as load_model
from gnomon.load.plan import plan_pool
from gnomon.spec import Plan

if TYPE_CHECKING:
    from gnomon.engines.replay import Runner

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
INSTALL = "pip install tensorrt-llm"
STARTUP_PROBES = 180
"""Ten seconds each: half an hour to load the weights, tune kernels and capture graphs."""
NOT_RUN = "Gnomon does not run TensorRT-LLM itself"

command = first_command


def check(plan: Plan) -> None:
    if why := not_run(plan_pool(plan).chip):
        hint = "Plan it for a chip that TensorRT-LLM runs on (`gnomon chips`)."
        raise InputError(why, where="chip", hint=hint)
    if error := launch.no_weights(plan, load_model(plan.model)):
        raise error


def container(plan: Plan) -> Container:
    """The image writes the YAML that its server reads before it starts it."""
    if why := not_run(plan_pool(plan).chip):
        raise InputError(f"there is no image for it: {why}", where="chip", hint="Plan it for a chip it runs on.")
    words = [*launch.command(plan), "--host", "0.0.0.0", "--port", str(launch.FIRST_PORT)]
    return Container(
        image=f"{IMAGE}:{version_of(plan)}",
        resource=RESOURCE,
        command=("bash", "-c"),
        args=(launch.with_yaml(plan, words),),
        weights=words[1],
        port=launch.FIRST_PORT,
        health="/health",
        startup_probes=STARTUP_PROBES,
    )


def program() -> list[str]:
    found = shutil.which("trtllm-serve")
    if found:
        return [found]
    return [sys.executable, "-m", "tensorrt_llm.commands.serve"] if importlib.util.find_spec("tensorrt_llm") else []


def check_measured(plan: Plan) -> None:
    hint = "Start the exported launch.sh and send it a load."
    raise InputError(NOT_RUN, where="engine.name", hint=hint)


def runner(plan: Plan, config: Mapping[str, Any]) -> Runner:
    raise InputError(NOT_RUN, where="engine.name", hint="Start the exported launch.sh and send it a load.")


def as_measured(settings: Mapping[str, Any]) -> dict[str, Any]:
    return dict(settings)


def versions() -> dict[str, str]:
    return {}
