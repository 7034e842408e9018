"""The text of `gnomon models`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.text import Style, next_steps, table, words
from gnomon.units import format_bytes, format_count, format_short_count


def render(payload: Mapping[str, Any], style: Style) -> str:
    models = payload["models"]
    rows: list[tuple[str, ...]] = [("model", "parameters", "active", "layers", "context", "KV a token", "published as")]
    rows += [_row(model) for model in models]
    lines = table(rows, "<>>>>><")
    first = models[0]["name"] if models else "llama-3.1-8b"
    steps = next_steps(
        words("gnomon", "fit", first, "--on", "H100"),
        words("gnomon", "predict", first, "--on", "H100", "--phase", "decode", "--batch", 32, "--context", 1024),
    )
    source = [f"  source: {models[0]['source']}"] if len(models) == 1 and models[0]["source"] else []
    return "\n".join([style.faint(lines[0]), *lines[1:], *source, "", *steps])


def _row(model: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        model["name"],
        format_short_count(model["parameters"]),
        format_short_count(model["active_parameters"]),
        str(model["layers"]),
        format_count(model["max_context"]),
        format_bytes(model["kv_bytes_per_token_bf16"]),
        model["hub_id"] if "/" in model["hub_id"] else model["title"],
    )
