"""The text of `gnomon lab`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report.text import Style, digits, headed, next_steps, table
from gnomon.spec.answers import Result
from gnomon.units import format_bytes, format_count, format_duration

GAINS = {
    "seconds": "the plain version's speed",
    "bytes": "less memory than the plain version",
    "error": "less error than the plain version",
}
"""A gain in words, by what it is of."""


def render(answer: Result, style: Style) -> str:
    payload = answer.to_dict()
    for key, told in (("experiments", _list), ("runs", _batch), ("predicted", _preview)):
        if key in payload:
            return told(payload, style)
    return _outcome(payload, style)


def _list(payload: Mapping[str, Any], style: Style) -> str:
    lines = []
    for entry in payload["experiments"]:
        lines += [f"{style.strong(entry['slug'])}  {entry['title']}", f"  checks that {entry['checks']}"]
        if entry["gain"]:
            lines += [f"  ran on {entry['ran_on']}: {times(entry['gain'])} {GAINS[entry['unit']]}, sustained"]
        rows = [(f"--size {size['name']}=", format_count(size["default"]), size["what"]) for size in entry["sizes"]]
        lines += [*table(rows, "<><"), ""]
    lines += ["  needs PyTorch: pip install 'gnomon[torch]'; without a GPU, --device cpu checks and times nothing", ""]
    return "\n".join([*lines, *next_steps("gnomon lab run gptq", "gnomon lab run gptq --device cpu")])


def _batch(payload: Mapping[str, Any], style: Style) -> str:
    rows = [(run["slug"], run["state"], run["file"] or run["log"] or "", run["why"]) for run in payload["runs"]]
    return "\n".join(
        [style.strong(f"the lab on {payload['device']}"), *table(rows, "<<<<"), "", *next_steps("gnomon lab")]
    )


def _preview(payload: Mapping[str, Any], style: Style) -> str:
    lines = []
    for found in payload["predicted"]:
        lines += [f"{style.strong(found['slug'])} on {payload['device']}: {found['title']}"]
        if not found["rows"]:
            lines += ["  nothing is predicted: what it measures is not known from the chip"]
        rows = [(row["what"], prediction(row) + _of(row), _unpredicted(row)) for row in found["rows"]]
        lines += [*(table(rows, "<><") if rows else ()), *footnotes(found["rows"]), ""]
    lines += ["  rates that were measured on the machine: --rates FILE.json of a run there", ""]
    return "\n".join([*lines, *next_steps(f"gnomon lab run {payload['predicted'][0]['slug']} --out measured.json")])


def _unpredicted(row: Mapping[str, Any]) -> str:
    """Why a row has no prediction, where it has none."""
    if row["lacks"]:
        return f"needs {row['lacks']}"
    return "" if row["prediction"] else "not predicted"


def _of(row: Mapping[str, Any]) -> str:
    """What a gain is of, where that is not seconds."""
    unit = row.get("unit", "seconds")
    return f" of {unit}" if unit != "seconds" and (row.get("gain") or row.get("prediction")) else ""


def _outcome(payload: Mapping[str, Any], style: Style) -> str:
    good = [check for check in payload["checks"] if check["ok"]]
    verdict = f"{len(good)} of {len(payload['checks'])} checks hold"
    lines = [style.strong(payload["title"]), f"  {_where(payload)}", ""]
    lines += [f"  {style.good(verdict) if payload['ok'] else style.bad(verdict)}"]
    lines += [f"  failed: {_check(check)}" for check in payload["checks"] if not check["ok"]]
    timed = [row for row in payload["compared"] if row["technique"]["seconds"] is not None]
    lines += ["", *_times(timed, payload["references"], style), *footnotes(timed)] if timed else []
    lines += ["", *(f"  {note}" for note in payload["notes"]), f"  {comparable(payload)}", ""]
    return "\n".join([*lines, *next_steps("gnomon lab", f"gnomon lab run {payload['slug']} --out measured.json")])


def _where(payload: Mapping[str, Any]) -> str:
    clock = [f"{payload['sm_hz'] / 1e6:.0f} MHz"] if payload["sm_hz"] else []
    versions = [f"{name} {version}" for name, version in payload["versions"].items() if version]
    return ", ".join([payload["device"], *clock, *versions, payload["date"]])


def _check(check: Mapping[str, Any]) -> str:
    found = "NaN" if check["difference"] is None else digits(check["difference"])
    return f"{check['what']}: {found}, at most {digits(check['bound'])}"


def _times(timed: list[Any], references: Mapping[str, Any], style: Style) -> list[str]:
    rows = [("", "plain", "technique", "gain", "burst", "predicted", "spread", "GPU memory", "")]
    for row in timed:
        plain, mine = row["plain"], row["technique"]
        rows.append(
            (
                row["what"],
                format_duration(plain["seconds"]),
                format_duration(mine["seconds"]),
                (times(row["gain"]) or "not known") + _of(row),
                times(row["burst_gain"]),
                prediction(row),
                f"{max(plain['spread'], mine['spread']):.0%}",
                f"{format_bytes(plain['gpu_bytes'])} and {format_bytes(mine['gpu_bytes'])}",
                str(row["shape"].get("way", "")),
            )
        )
    for name, row in references.items():
        spread = "" if row["spread"] is None else f"{row['spread']:.0%}"
        seconds = "-" if row["seconds"] is None else format_duration(row["seconds"])
        rows.append((f"for reference: {name}", seconds, "", "", "", "", spread, format_bytes(row["gpu_bytes"]), ""))
    bursts = any(row[4] for row in rows[1:])
    shown: list[tuple[str, ...]] = [row if bursts else (*row[:4], *row[5:]) for row in rows]
    return headed(shown, "<" + ">" * (len(shown[0]) - 2) + "<", style)


def times(gain: float | None) -> str:
    """`1.47x`; empty where it is not known."""
    return f"{digits(gain)}x" if gain else ""


def prediction(row: Mapping[str, Any]) -> str:
    """What was predicted of a row, marked where it is a fit to the same run or of another kernel."""
    found = row.get("prediction")
    if not found:
        return times(row.get("predicted_gain"))
    return times(found["gain"]) + ("" if found["kind"] == "prediction" else f", {found['kind']}")


def footnotes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Who predicts, and what a burst left to be done."""
    by = dict.fromkeys(
        f"predicted by {row['prediction']['by']} ({row['prediction']['kind']})" for row in rows if row.get("prediction")
    )
    left = dict.fromkeys(
        f"a burst left {format_duration(row['deferred_s'])} of work when the clock stopped; its gain sustained is "
        + (row["sustained"]["how"] if row["sustained"] else "not known")
        for row in rows
        if row.get("burst")
    )
    return [f"  {text}" for text in (*left, *by)]


def comparable(payload: Mapping[str, Any]) -> str:
    """Whether the paper's own claim can be set beside the run."""
    found = payload["comparable"]
    word = "comparable" if found["comparable"] else "not comparable"
    return f"the paper's claim, {found['claim']}, is {word} with this: {found['why']}"
