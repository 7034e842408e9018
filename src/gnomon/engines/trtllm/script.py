"""The shell script that writes the YAML and starts a plan's TensorRT-LLM servers."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.engines.shell import comment
from gnomon.engines.trtllm.launch import OPTIONS_FILE, headline, options_yaml, servers
from gnomon.spec import Plan

_TRAP = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"
"""Several servers are stopped together when one of them, or the shell, ends."""
_END = "END_OF_OPTIONS"


def script(plan: Plan, notes: Sequence[str] = ()) -> str:
    """The text of `launch.sh`; notes stand in its header."""
    found = servers(plan)
    last = found.where.nodes - 1
    lines = ["#!/usr/bin/env bash", headline(plan), *map(comment, notes)]
    lines += [comment(f"On every node: ./launch.sh NODE, with NODE from 0 to {last}.")] if last else []
    lines += ["set -euo pipefail", "", f"cat > {OPTIONS_FILE} << '{_END}'", options_yaml(plan).rstrip(), _END, ""]
    if last:
        lines += [
            'node="${1:-}"',
            f'if ! [[ "$node" =~ ^(0|[1-9][0-9]{{0,8}})$ ]] || (( node > {last} )); then',
            f'  echo "usage: $0 NODE, from 0 to {last}" >&2',
            "  exit 2",
            "fi",
        ]
    full, few = found.of(0), found.where.on_the_last
    if len(full) == 1:
        return "\n".join([*lines, f"export {full[0].assignment}", f"exec {full[0].command}"]) + "\n"
    lines += [_TRAP, *(f"{server.shell} &" for server in full[:few])]
    if full[few:]:
        lines += [f"if (( node < {last} )); then", *(f"  {server.shell} &" for server in full[few:]), "fi"]
    return "\n".join([*lines, "wait -n"]) + "\n"
