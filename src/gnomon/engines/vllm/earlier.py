"""What releases of vLLM that are predicted alone had not: settings, degrees, formats and chips, refused or listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gnomon.engines.base import Deployment
from gnomon.engines.vllm.releases import Release
from gnomon.errors import InputError
from gnomon.spec import Chip, NotModelled

ALIKE = (
    "its kernels, what it keeps of memory, and under load its scheduler with chunked prompts are those of vLLM 0.24: "
    "not modelled as they were"
)


def check_taken(named: Mapping[str, Any], settings: Mapping[str, Any], usual: Mapping[str, Any], of: Release) -> None:
    """Raise InputError for a setting that a release has not, unless it is given as the release works anyway."""
    for name in named:
        if name not in of.takes and settings[name] != usual[name]:
            hint = f"Leave it out, or use another version. It has {', '.join(of.takes)}."
            raise InputError(f"{of.title} has no {name}={settings[name]}", where=f"setting {name}", hint=hint)


def check_release(deployment: Deployment, of: Release) -> None:
    """Raise InputError for degrees and formats that a release has not."""
    if not of.operated:
        check_offered(deployment, of.title, of.degrees, of.formats, of.caches)


def check_offered(
    deployment: Deployment, title: str, degrees: tuple[str, ...], formats: tuple[str, ...], caches: tuple[str, ...]
) -> None:
    """Raise InputError for what is not among the degrees beside tensor parallelism, formats of weights and of the
    cache."""
    for name in ("pp", "dp", "ep"):
        degree = getattr(deployment.strategy, name)
        if degree > 1 and name not in degrees:
            raise InputError(
                f"{degree} is not 1, and {title} has no other", where=f"--{name}", hint="Use 1, or another engine."
            )
    stored = {format.name for block in deployment.model.blocks for _, format in block.formats}
    for name in sorted(stored - {*formats}):
        hint = f"Use one of {', '.join(formats)}, or another engine."
        raise InputError(f"weights in {name} are not priced for {title}", where="--dtype", hint=hint)
    if deployment.kv_dtype not in caches:
        hint = f"Known: {', '.join(caches)}."
        raise InputError(f"{title} keeps no cache in {deployment.kv_dtype}", where="--kv-dtype", hint=hint)


def not_run(chip: Chip, of: Release) -> str:
    """Why a release does not run on a chip that later ones run on; empty where it does."""
    known = of.operated or chip.generation in of.generations
    return "" if known else f"{of.title} does not run on {chip.name}: it is older than {chip.generation} chips there"


def as_today(of: Release) -> Iterator[NotModelled]:
    """What is priced as in today's releases."""
    if not of.operated:
        yield NotModelled(option=f"--engine vllm@{of.version}", why=ALIKE)
