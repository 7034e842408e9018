"""The text of `gnomon models`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.networks import STEPS, network_step
from gnomon.report.shapes import layer_lines
from gnomon.report.text import INDENT, Style, headed, next_steps, table, words
from gnomon.spec.answers import Result
from gnomon.units import format_bytes, format_count, format_short_count


def render(answer: Result, style: Style) -> str:
    payload = answer.to_dict()
    models = payload["models"]
    if len(models) == 1 and "shapes" in models[0]:
        return "\n".join(_one(models[0], style))
    if not models:
        return f"{INDENT}no model matches\n\n" + "\n".join(next_steps(words("gnomon", "models")))
    rows: list[tuple[str, ...]] = [
        ("model", "kind", "parameters", "active", "layers", "context", "KV per token", "published as")
    ]
    rows += [_row(model) for model in models]
    steps = [words("gnomon", "models", "show", models[0]["name"])]
    steps += [_first_step(model, model["name"]) for model in models if model["priced"]][:1]
    return "\n".join([*headed(rows, "<<>>>>><", style), "", *next_steps(*steps)])


def _row(model: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        model["name"],
        model["kind"],
        format_short_count(model["parameters"]),
        format_short_count(model["active_parameters"]),
        str(model["layers"]),
        format_count(model["max_context"]),
        format_bytes(model["kv_bytes_per_token_bf16"]) if model["kv_bytes_per_token_bf16"] else "-",
        model["hub_id"] if "/" in model["hub_id"] else model["title"],
    )


def _one(model: Mapping[str, Any], style: Style) -> list[str]:
    shapes, name = model["shapes"], model["name"]
    title = f"{model['title']}: {model['kind']}, family {model['family']}"
    lines = [style.strong(title), *table(_facts(model), "<<"), "", f"{INDENT}layers"]
    lines += [INDENT + line for line in layer_lines(shapes["blocks"])]
    for tower in shapes.get("towers", []):
        lines += [f"{INDENT}{tower['name']} tower, {tower['hidden']:,} wide"]
        lines += [INDENT + line for line in layer_lines(tower["blocks"])]
    if not model["priced"]:
        lines += ["", f"{INDENT}cannot be priced yet: it has {model['why_not_priced']}"]
    lines += ["", *([f"{INDENT}source: {model['source']}"] if model["source"] else [])]
    reference = name if model["hub_id"] else model["source"]
    steps = [words("gnomon", "models", "show", reference, "--shapes")]
    if model["priced"]:
        steps.insert(0, _first_step(model, reference))
    return [*lines, *next_steps(*steps)]


def _first_step(model: Mapping[str, Any], reference: str) -> str:
    """What to ask of it."""
    if model["kind"] in STEPS:
        return network_step(model, (reference, "--on", "H100"))
    return words("gnomon", "fit", reference, "--on", "H100")


def _facts(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    total = format_count(model["parameters"])
    if model["active_parameters"] != model["parameters"]:
        total += f", {format_short_count(model['active_parameters'])} active per token"
    towers = [f"{format_short_count(size)} in the {name} tower" for name, size in model["towers"].items()]
    facts = [("parameters", ", ".join([total, *towers]))]
    if model["mtp_parameters"]:
        facts.append(
            ("drafting", f"{format_short_count(model['mtp_parameters'])} more in MTP layers that draft tokens")
        )
    facts += [
        ("weights", _weights(model["weights_bytes"])),
        ("width", f"{model['hidden']:,}, vocabulary of {model['vocab']:,}"),
    ]
    facts.append(("context", f"{format_count(model['max_context'])} tokens"))
    if model["kv_bytes_per_token_bf16"]:
        facts.append(("KV per token", f"{format_bytes(model['kv_bytes_per_token_bf16'])} in bf16"))
    if model["state_bytes_per_sequence"]:
        kept, wide = format_bytes(model["state_bytes_per_sequence"]), model["state_dtype"] == "fp32"
        format = "fp32 but for convolutions" if wide else model["state_dtype"]
        facts.append(("state", f"{kept} per sequence under vLLM, in {format}"))
    source = model["source_bytes_per_token_bf16"]
    if source:
        facts.append(("KV of a source", f"{format_bytes(source)} per token of a tower in bf16"))
    if "/" in model["hub_id"]:
        facts.append(("published as", model["hub_id"]))
    return facts


def _weights(sizes: Mapping[str, float]) -> str:
    """All bytes, and those of each format, most first, where there are several."""
    if len(sizes) == 1:
        return "".join(f"{format_bytes(size)} in {name}" for name, size in sizes.items())
    parts = [f"{format_bytes(size)} in {name}" for name, size in sorted(sizes.items(), key=lambda item: -item[1])]
    return f"{format_bytes(sum(sizes.values()))}: {', '.join(parts)}"
