"""Training steps in Markdown, row by row: how far off, on what, and what was fitted on what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gnomon.report.accuracy.grid import grid
from gnomon.report.text import digits, gib

JOB = {
    "model": "model",
    "chip": "chip",
    "chips": "chips",
    "engine": "engine",
    "dtype": "format",
    "seq": "tokens per sequence",
    "tp": "TP",
    "pp": "PP",
    "vp": "VP",
    "dp": "DP",
    "micro_batch": "micro-batch",
    "global_batch": "batch",
    "recompute": "recompute",
    "sequence_parallel": "sequence parallel",
    "zero": "ZeRO",
    "optimizer": "optimizer",
}
"""What tells runs apart, and its heading."""
NOTHING = "-"

FITTED = """\
No constant of Gnomon was fitted to a training result on this page. Fitted were single operators, by chip:

- A100: GEMMs and elementwise kernels to published operator tables, collectives inside a node to published
  NCCL tables; between nodes a fixed share of the data sheet's bandwidth counts. The tables differ among themselves by
  more than most errors below. Which one was used, and why, is in the notes of the A100's profile
  (`src/gnomon/catalog/data/profiles/a100-sxm-80gb.yaml`).
- H200: GEMMs, attention, elementwise kernels and the clock under the power limit to operators that we timed
  one by one.
- The host's time to launch a kernel, which counts in small networks only: PyTorch's from steps of a tiny network of
  ours, Megatron-LM's from runs of small networks on one node that vTrain published. None of them is among the rows
  below.

What an engine runs, keeps and overlaps is a list of its kernels, version by version, not a fit."""

DEGREES = """\
TP, PP and DP are tensor, pipeline and data parallel degrees, VP the parts of the network a pipeline stage holds: with
more than one the schedule is the interleaved one, else 1F1B. Batches are in sequences."""

ABSENT = "The measured steps are in Gnomon's repository (`measurements/`), which are not available here."


def training(payload: Mapping[str, Any]) -> str:
    """The list of training steps. Tables whose every column was read come before those with recalled ones."""
    read = [table for table in payload["published"] if not table["recalled"]]
    recalled = [table for table in payload["published"] if table["recalled"]]
    parts = ["# Training steps, predicted beside published and measured", DEGREES, "## What was fitted on what", FITTED]
    parts += [f"Profiles used: {', '.join(payload['profiles'])}.", "## Published"]
    parts += [part for table in read for part in _published(table)]
    parts += ["## Published, with columns recalled"] if recalled else []
    parts += [part for table in recalled for part in _published(table)]
    parts += ["## Measured by us"]
    parts += [part for table in payload["measured"] for part in _measured(table)] or [ABSENT]
    return "\n\n".join(parts) + "\n"


def peers(payload: Mapping[str, Any]) -> Iterator[str]:
    """Errors of other tools on the same rows, with their source."""
    for table in payload["published"]:
        for peer in table["peers"]:
            yield f"{peer['name']} on {name_of(table)}: {peer['mean_error']:.1%}, {peer['note']}."


def name_of(table: Mapping[str, Any]) -> str:
    if "conditions" in table:
        return f"{table['conditions']['device']}, {table['conditions']['date']}"
    return f"{table['authors']} {table['year']}, {table['table'].partition(',')[0]}"


def _published(table: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name_of(table)}"
    said = f"{table['authors']}, *{table['title']}*, {table['year']}, {table['table']}: <{table['address']}>."
    yield f"{said} Read from {table['read_from']}."
    counted = f"TFLOP/s are per GPU, {table['counted']}." if table["counted"] else ""
    recalled = f"Recalled, not read: {', '.join(table['recalled'])}." if table["recalled"] else ""
    yield from filter(None, (counted, recalled, *table["notes"]))
    yield from _tables(table["rows"])


def _measured(table: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name_of(table)}"
    given = table["conditions"]
    versions = ", ".join(f"{name} {text}" for name, text in given.items() if name not in ("device", "date"))
    yield f"Whole steps of `gnomon verify`, with {versions}: the median step, and memory at the fullest moment."
    yield from _tables(table["rows"])


def _tables(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One table a quantity; what all its runs share is said once."""
    cells = {heading: [_word(row["job"][name]) for row in rows] for name, heading in JOB.items()}
    same = {heading: column[0] for heading, column in cells.items() if len(set(column)) == 1}
    yield "All rows: " + ", ".join(f"{heading} {cell}" for heading, cell in same.items()) + "."
    told = [name for name, heading in JOB.items() if heading not in same]
    for what in dict.fromkeys(row["what"] for row in rows):
        chosen = [_cells(row, told) for row in rows if row["what"] == what]
        kept = [heading for heading in chosen[0] if any(line[heading] != NOTHING for line in chosen)]
        yield grid([kept, *([line[heading] for heading in kept] for line in chosen)], "<" + ">" * (len(kept) - 1))


def _cells(row: Mapping[str, Any], told: Sequence[str]) -> dict[str, str]:
    """A line by heading."""
    unit = "s" if row["unit"] == "s" else "GiB"
    return {JOB[name]: _word(row["job"][name]) for name in told} | {
        "TFLOP/s": digits(row["tflops"]) if "tflops" in row else NOTHING,
        f"{row['what']}, {unit}": _value(row, "measured"),
        "predicted": _value(row, "predicted"),
        "band": NOTHING if row["low"] is None else f"{_value(row, 'low')} to {_value(row, 'high')}",
        "error": f"{row['error']:+.1%}",
        "in band": {None: NOTHING, True: "yes", False: "no"}[row["inside"]],
    }


def _value(row: Mapping[str, Any], name: str) -> str:
    return digits(row[name], 4) if row["unit"] == "s" else gib(row[name])


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
