"""An engine's steps as `gnomon calibrate --engine` writes them: every field that a fit takes, of its kind and size."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gnomon.errors import CalibrationError
from gnomon.load.schemas import check_schema

SCHEMA = "gnomon.engine-rows/1"
MOST = 1e9
"""No other figure of a measured step is beyond this."""
SECONDS, MANY, LONG = (1e-7, 1e4), (1.0, 1e5), (1.0, 1e7)
"""The least and the most of a time, of sequences or kernels, and of tokens."""
WHOLE = (
    "sequences", "tokens", "kernels", "max_model_len", "requests", "output", "prompts", "before_sequences",
    "before_prompts", "before_tokens",
)  # fmt: skip
RANGES = {
    "egress_s": SECONDS, "time_s": SECONDS, "least_s": SECONDS, "ttft_s": SECONDS, "scheduled_s": SECONDS,
    "step_s": SECONDS, "device_s": SECONDS, "graph_launch_s": SECONDS, "sequences": MANY, "kernels": (1.0, 1e7),
    "tokens": LONG, "context": LONG, "max_model_len": LONG, "p90_s": SECONDS, "cpu_s": SECONDS, "requests": MANY,
    "output": LONG, "prompts": MANY, "before_sequences": MANY, "before_prompts": (0.0, 1e5),
    "before_tokens": (0.0, 1e7),
}  # fmt: skip
PROMPT = ("model", "tokens", "time_s", "least_s")
NEEDED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "vllm": {
        "frontend": ("egress_s",),
        "prompt": PROMPT,
        "prompt_again": PROMPT,
        "decode": ("model", "sequences", "context", "time_s"),
        "beside": ("model", "sequences", "tokens", "ttft_s"),
        "launch": (
            "model",
            "time_s",
            "sequences",
            "prompts",
            "tokens",
            "before_sequences",
            "before_prompts",
            "before_tokens",
        ),
        "egress": ("sequences", "egress_s"),
        "front": ("cpu_s", "requests", "steps", "outputs"),
        "burst": ("model", "requests", "tokens", "output", "ttft_s", "p90_s"),
        "rate": ("model", "requests", "rate_per_s", "tokens", "output", "ttft_s", "p90_s"),
    },
    "transformers": {"decode": ("step_s", "device_s", "kernels")},
}
"""By engine and kind of row: what it must have."""


def check_steps(data: Mapping[str, Any], where: str, engines: Collection[str]) -> None:
    """Refuse what is no such file, naming the row and the field."""
    check_schema(data.get("schema"), SCHEMA, where)
    engine = data.get("engine")
    if not isinstance(engine, str) or engine not in engines:
        raise CalibrationError(f"engine '{engine}' is none of {', '.join(engines)}", where=where)
    for name, kind in (("date", str), ("versions", Mapping), ("models", Mapping), ("rows", list), ("host", str)):
        if not isinstance(data.get(name), kind) or not data[name]:
            raise CalibrationError(f"has no {name}", where=where, hint="Measure it again.")
    if not isinstance(data["versions"].get(engine), str):
        raise CalibrationError(f"versions have no {engine}", where=where, hint="Measure it again.")
    if engine == "vllm":
        _check_number(data.get("max_model_len"), "max_model_len", where)
        broken = next((name for name, config in data["models"].items() if not isinstance(config, Mapping)), None)
        if broken is not None:
            raise CalibrationError(f"models: '{broken}' has no configuration", where=where)
    for place, row in enumerate(data["rows"], 1):
        _check_row(row, NEEDED[engine], data["models"], f"{where} row {place}")


def _check_row(row: Any, kinds: Mapping[str, tuple[str, ...]], models: Collection[str], where: str) -> None:
    if not isinstance(row, Mapping) or "kind" not in row:
        raise CalibrationError("says not what it is of", where=where)
    if row["kind"] not in tuple(kinds):
        raise CalibrationError(f"kind '{row['kind']}' is none of {', '.join(kinds)}", where=where)
    missing = next((name for name in kinds[row["kind"]] if name not in row), None)
    if missing:
        raise CalibrationError(f"has no {missing}", where=where)
    for name, value in row.items():
        if name in RANGES or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            _check_number(value, name, where)
    if "model" in kinds[row["kind"]] and (not isinstance(row["model"], str) or row["model"] not in models):
        raise CalibrationError(f"is of model '{row['model']}', which is not among the models", where=where)


def _check_number(value: Any, name: str, where: str) -> None:
    least, most = RANGES.get(name, (0.0, MOST))
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not least <= value <= most or (name in WHOLE and value != int(value)):
        kind = "a whole number" if name in WHOLE else "a number"
        raise CalibrationError(f"{name} is '{value}', not {kind} from {least:g} to {most:g}", where=where)
