"""The text of `gnomon calibrate`."""

from __future__ import annotations

from gnomon.report.text import Style, headed, next_steps, words
from gnomon.spec.answers import Result
from gnomon.units import format_count


def render(answer: Result, style: Style) -> str:
    payload = answer.to_dict()
    counts = ", ".join(f"{count:,} {name}" for name, count in payload["rows"].items() if count)
    rows_seen = f"{counts}, in " if counts else "from "
    lines = [style.strong(payload["title"]), f"  {rows_seen}{payload['table']}", ""]
    if payload["families"]:
        rows = [("operators", "rows", "median error", "p90 error")]
        for name, family in payload["families"].items():
            errors = family["held_out"]
            rows.append((name, format_count(family["rows"]), f"{errors['median']:.1%}", f"{errors['p90']:.1%}"))
        lines += [*headed(rows, "<>>>", style), "  errors are on shapes the fit had not seen", ""]
    lines += [f"  skipped {count:,}: {reason}" for reason, count in payload.get("skipped", {}).items()]
    lines += [f"  note: {note}" for note in payload.get("notes", ())]
    if payload.get("skipped") or payload.get("notes"):
        lines.append("")
    if payload.get("profile"):
        used = (
            "predictions for {chip} now use {profile}" if payload["in_use"] else "wrote {profile}, which is not in use"
        )
        lines += [f"  {used.format(chip=payload['chip'], profile=payload['profile'])}", ""]
    again = words("gnomon", "calibrate", "--out", payload["table"], "--budget", "15m")
    step = words("gnomon", "predict", "llama-3.1-8b", "--on", payload["chip"], "--batch", 32, "--context", 1024)
    return "\n".join([*lines, *next_steps(*([again] if payload["rows"].get("left") else []), step)])
