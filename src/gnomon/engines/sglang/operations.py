"""SGLang's operations: launch commands, scripts, containers, commands read back. It is not run for real here."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from gnomon.engines.operations import Container
from gnomon.engines.sglang import ENGINE, checks, launch
from gnomon.engines.sglang.imported import config_command, import_command, own_command
from gnomon.engines.sglang.launch import first_command, headline, layout, not_expressed, servers, version_of
from gnomon.engines.sglang.roles import (
    graph_worker,
    pool_server,
    pools_not_expressed,
    routed_by,
    router,
    router_policies,
)
from gnomon.engines.shell import script_of
from gnomon.engines.vllm.launch import no_weights, own_checkpoint
from gnomon.engines.vllm.platforms import platform_of
from gnomon.errors import InputError
from gnomon.load.hf import model as load_model
from gnomon.load.plan import plan_pool
from gnomon.spec import Plan

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
INSTALL = "pip install sglang"
STARTUP_PROBES = 180
"""Ten seconds each: half an hour to load the weights and capture graphs."""

command = first_command


def file_options(plan: Plan) -> list[str]:
    return []


def check(plan: Plan) -> None:
    if why := checks.not_run(plan_pool(plan).chip):
        raise InputError(why, where="chip", hint="Plan it for a chip that SGLang runs on (`gnomon chips`).")
    with checks.as_sglang():
        if error := no_weights(plan, load_model(plan.model)):
            raise error


def script(plan: Plan, notes: Sequence[str] = ()) -> str:
    return script_of(servers(plan), headline(plan), notes)


def container(plan: Plan) -> Container:
    platform = platform_of(plan_pool(plan).chip)
    if platform is None or platform.name != "cuda":
        raise InputError(
            f"no image of SGLang {version_of(plan)} is known here for {plan.chip}",
            where="chip",
            hint="Export it to sglang, and start launch.sh where SGLang was built for it.",
        )
    words = launch.command(plan)
    at = len(launch.PROGRAM)
    return Container(
        image=f"{launch.IMAGE}:v{version_of(plan)}",
        resource=platform.resource,
        command=tuple(words[:at]),
        args=(*words[at:], "--host", "0.0.0.0", "--port", str(launch.FIRST_PORT)),
        weights=words[at + 1],
        port=launch.FIRST_PORT,
        health="/health",
        startup_probes=STARTUP_PROBES,
    )


def program() -> list[str]:
    """In the place of a command's first word, which is `python`."""
    return [sys.executable] if importlib.util.find_spec("sglang") else []


def check_measured(plan: Plan) -> None:
    _not_run()


def runner(plan: Plan, config: Mapping[str, Any]) -> NoReturn:
    _not_run()


def as_measured(settings: Mapping[str, Any]) -> dict[str, Any]:
    return dict(settings)


def versions() -> NoReturn:
    _not_run()


def _not_run() -> NoReturn:
    raise InputError(
        "Gnomon does not run SGLang itself yet",
        where="engine.name",
        hint="Start the plan's command, and measure it with SGLang's bench_serving.",
    )
