"""The shell script that writes the YAML and starts a plan's TensorRT-LLM servers."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.engines.shell import script_of
from gnomon.engines.trtllm.launch import OPTIONS_FILE, headline, options_yaml, servers
from gnomon.spec import Plan

_END = "END_OF_OPTIONS"


def script(plan: Plan, notes: Sequence[str] = ()) -> str:
    """The text of `launch.sh`; notes stand in its header."""
    written = [f"cat > {OPTIONS_FILE} << '{_END}'", options_yaml(plan).rstrip(), _END, ""]
    return script_of(servers(plan), headline(plan), notes, written)
