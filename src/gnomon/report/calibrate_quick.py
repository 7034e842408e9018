"""The text of `gnomon calibrate --quick`."""

from __future__ import annotations

from gnomon.report.text import Style, headed, next_steps, words
from gnomon.spec.answers import Result

NAMES = {
    "compute": "arithmetic, 16 bits",
    "compute_fp8": "arithmetic, fp8",
    "memory": "memory bandwidth",
    "energy": "energy per FLOP at full clock",
    "host": "launches of the host",
}


def render(answer: Result, style: Style) -> str:
    payload = answer.to_dict()
    rows = [("", "beside the profile", "kernels spread by")]
    for name, value in payload["factors"].items():
        spread = payload["spread"].get(name)
        rows.append((f"  {NAMES[name]}", f"{value:.3f}x", "-" if spread is None else f"{spread:.1%}"))
    lines = [style.strong(payload["title"]), f"  beside {payload['against']}", "", *headed(rows, "<>>", style), ""]
    lines += [f"  measured in spite of: {note}" for note in payload["notes"]]
    lines += [f"  not measured: {task} ({why})" for task, why in payload["skipped"].items()]
    where = "predictions for this chip now use" if payload["in_use"] else "predictions do not look at"
    lines += [f"  {where} {payload['profile']}; what was measured is in {payload['table']}", ""]
    step = words("gnomon", "predict", "llama-3.1-8b", "--on", payload["chip"], "--batch", 32, "--context", 1024)
    return "\n".join([*lines, *next_steps(step)])
