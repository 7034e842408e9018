"""What a plan with `--with auto` weighs of vLLM's options: prefix caching, drafts, KV blocks in host memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gnomon.engines.base import EngineOption
from gnomon.engines.vllm.drafts import DRAFTS, NONE
from gnomon.engines.vllm.offload import GIB
from gnomon.spec import Pool

HOST_SHARE = 0.5
"""Of a host's memory that the replicas on it may keep KV blocks in: an assumption; the rest is the engine's and the
system's."""
UNSHARED = "prompts of the load share no beginnings"


def options_to_weigh(given: Mapping[str, Any], pools: Sequence[Pool], *, shares: bool) -> tuple[EngineOption, ...]:
    return (*_prefix_caching(given, shares), *_drafts(given), *_offloading(given, pools, shares))


def _prefix_caching(given: Mapping[str, Any], shares: bool) -> Iterator[EngineOption]:
    name, setting = "prefix-caching", "enable_prefix_caching"
    if not shares:
        yield EngineOption(name=name, on={}, reject_reason=UNSHARED)
    elif setting in given:
        yield EngineOption(name=name, on={}, reject_reason=f"--set {setting}={str(given[setting]).lower()} is given")
    else:
        yield EngineOption(name=name, on={}, off={setting: False}, usual=True)


def _drafts(given: Mapping[str, Any]) -> Iterator[EngineOption]:
    """Only where a method and its acceptance are given: how many drafts are accepted is a matter of the texts."""
    named = {name: given[name] for name in DRAFTS if name in given}
    if given.get("speculative_method", NONE) == NONE or "draft_acceptance" not in given:
        yield EngineOption(name="speculative-decoding", on={}, reject_reason="no acceptance of drafts is given")
    else:
        yield EngineOption(name="speculative-decoding", on=named)


def _offloading(given: Mapping[str, Any], pools: Sequence[Pool], shares: bool) -> Iterator[EngineOption]:
    name, setting = "kv-offloading", "kv_offloading_size"
    rooms = [pool.machine.memory_bytes / pool.machine_chips if pool.machine else 0.0 for pool in pools]
    size = int(HOST_SHARE * min(rooms, default=0.0) / GIB)
    if setting in given:
        yield EngineOption(name=name, on={}, reject_reason=f"--set {setting}={given[setting]} is given")
    elif not shares:
        yield EngineOption(name=name, on={}, reject_reason=UNSHARED)
    elif size < 1:
        yield EngineOption(name=name, on={}, reject_reason="the host's memory is not known")
    else:
        yield EngineOption(name=name, on={setting: size})
