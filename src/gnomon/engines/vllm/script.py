"""The shell script that starts a plan's vLLM servers."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.engines.shell import script_of
from gnomon.engines.vllm.launch import headline, servers
from gnomon.spec import Plan


def script(plan: Plan, notes: Sequence[str] = ()) -> str:
    """The text of `launch.sh`; notes stand in its header."""
    return script_of(servers(plan), headline(plan), notes)
