"""Which of vLLM's two ways of offloading weights settings choose (`create_offloader`, `OffloadConfig`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gnomon.engines.vllm.option import Option
from gnomon.errors import InputError

AUTO: Literal["auto"] = "auto"
UVA: Literal["uva"] = "uva"
PREFETCH: Literal["prefetch"] = "prefetch"
OFFLOADERS = (AUTO, UVA, PREFETCH)
RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
"""Which model runner vLLM starts, where it is not to choose."""
Backend = Literal["", "uva", "prefetch"]
OPTIONS = (
    Option(
        "cpu_offload_gb", float, "GiB of weights of each rank that stay in the host's memory, read over the link",
        default=0.0, low=0, high=2**20,
        idle="it is 0, or weights are prefetched instead",
    ),
    Option(
        "offload_backend", str, "how weights on the host reach the chip: auto is by the settings that are given",
        default=OFFLOADERS[0], choices=OFFLOADERS,
        idle="no weights are on the host, or the settings choose it anyway",
    ),
    Option(
        "offload_group_size", int, "layers of a group, the last of which are copied from the host in every step",
        default=0, low=0,
        idle="no weights are prefetched",
    ),
    Option(
        "offload_num_in_group", int, "layers of each group that are copied",
        default=1,
        idle="no weights are prefetched, which offload_group_size asks for",
    ),
    Option(
        "offload_prefetch_step", int, "layers ahead that copies begin, and buffers for them on the chip",
        default=1,
        idle="no weights are prefetched, which offload_group_size asks for",
    ),
)  # fmt: skip
SETTINGS = tuple(option.name for option in OPTIONS)
"""The first is of UVA, the last three of prefetching."""


def backend(settings: Mapping[str, Any]) -> Backend:
    """Which way weights are offloaded (`create_offloader`); empty where none are."""
    asked = settings["offload_backend"]
    grouped, size = settings["offload_group_size"] > 0, settings["cpu_offload_gb"] > 0
    if asked == PREFETCH or (asked == AUTO and grouped):
        return PREFETCH
    return UVA if size else ""


def without_effect(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings of one way of offloading where another one is taken, or none, and the name of the way that these
    settings choose anyway."""
    how = backend(settings)
    unread = {PREFETCH: SETTINGS[:1], UVA: SETTINGS[2:]}.get(how, SETTINGS)
    chosen = how == backend({**settings, "offload_backend": AUTO})
    return (*unread, *(("offload_backend",) if chosen else ()))


def check_offloading(settings: Mapping[str, Any]) -> None:
    """As vLLM's `OffloadConfig` has it."""
    group, of_group = settings["offload_group_size"], settings["offload_num_in_group"]
    if settings["offload_backend"] != PREFETCH and not group:
        return
    if of_group > group:
        raise InputError(
            f"{of_group} is more than offload_group_size {group}, which vLLM refuses",
            where="setting offload_num_in_group",
            hint=f"Set offload_group_size to at least {of_group}.",
        )
