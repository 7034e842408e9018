"""Results of benchmarks that are one JSON object: vLLM's and GuideLLM's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnomon.errors import InputError
from gnomon.load.files import MIB, read_json
from gnomon.load.recorded.found import Found
from gnomon.load.recorded.guidellm import read_guidellm
from gnomon.load.recorded.vllm_bench import read_vllm_bench
from gnomon.load.rows import NOTHING_RUN

MAX_OBJECT = 256 * MIB
"""Bytes of a file that is read at once: its values take several times as many."""
READERS: dict[str, Callable[[dict[str, Any], Path], Found]] = {
    "input_lens": read_vllm_bench,
    "benchmarks": read_guidellm,
}
"""By the key that only that format has."""
KNOWN = "one of vllm bench serve --save-detailed, of GuideLLM, or a JSON object per line"


def read_object(file: Path) -> Found:
    """The requests of a file."""
    found = read_json(file, MAX_OBJECT)
    for key, read in READERS.items():
        if key in found:
            return read(found, file)
    hint = _hint(found)
    raise InputError(f"is a JSON object, and not {KNOWN}", where=str(file), hint=f"{hint} {NOTHING_RUN}".strip())


def _hint(found: dict[str, Any]) -> str:
    """What the file may be instead."""
    if "total_input_tokens" in found and "request_throughput" in found:
        return "A result of vllm bench serve has its requests with --save-result --save-detailed."
    if "experiments" in found:
        return "Files of GenAI-Perf have no lengths; AIPerf writes profile_export.jsonl."
    if "aiperf_version" in found or "input_config" in found:
        return "AIPerf has its requests in profile_export.jsonl."
    return ""
