"""The page of `gnomon accuracy`, in Markdown: the summary first; rows are in lists of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gnomon.report.accuracy import lists
from gnomon.report.accuracy.grid import HEADS, grid, left_out, scored, scores
from gnomon.report.accuracy.training import name_of, peers, training
from gnomon.report.accuracy.worst import MOST, worst
from gnomon.report.text import Style, next_steps
from gnomon.spec.answers import Result

INTRO = """\
`gnomon accuracy` shows these results, `gnomon accuracy --fresh` computes them again, and `make accuracy` stores them
and writes this page: no prediction on it was typed in. An error is predicted over measured, less one: above zero,
Gnomon expects more than it took. Mean, median and p90 are of absolute errors, the bias of signed ones; the worst is
the largest single error. Intervals are meant to contain 90% of the measurements; a half-width is half an
interval relative to its value, at the median. Nothing was fitted to a step or a deployment below, nor to a training run
but for those in the group `fitted`, and errors of operators are of fits that had not seen the shapes, or the chips,
they are tested on."""

ON_WORST = f"""\
Of all below, the {MOST} operator tables, steps, groups of deployments and groups of training runs with the largest
errors: do not rely on predictions of their kind."""

ON_OPERATORS = """\
Fits of one kind of operator in one format, by one framework on one chip, tested on whole shapes set aside (all rows
of the same n and k, say), not on random rows. Published tables are tested on rows above {least_us:g} us, those timed
inside CUDA graphs above {least_graph_us:g} us, {most_rows} of them at most, where there are {least_rows} or more;
tables that time the host or beat the chip's peak are left out. One line stands for several tables: the mean error is
the mean of theirs, the band's share that of all their rows."""

ON_UNSEEN = """\
Each chip predicted with coefficients that were fitted to the nearest other chips under the same framework (of its
generation where there are any), and its own data sheet, as happens to a chip that nobody has measured."""

ON_STEPS = """\
Single batches and whole loads of networks under a real vLLM, measured by us with dummy weights: experts are visited as
those route, which may be less evenly than a trained network does."""

ON_DEPLOYMENTS = """\
Published loads under vLLM, TensorRT-LLM and SGLang, simulated with as many clients (or as large a batch) as they had,
each client sending its next request when the last is answered, so that never more are in flight than there are
clients, and lengths as published. TTFT and TPOT are means over the run, as published ones are: the first requests of
all clients, which come at once, count in both. Of the engines' own years all rows are taken (of TensorRT-LLM the half
of the plans that its host figures were not fitted to), of others some of every deployment, the same ones every time;
rows that others of the same plan contradict are left out. InferenceX's servers are set as its scripts set them;
elsewhere a cache whose format is not recorded is taken to be in that of the activations. Rows whose first tokens wait
for a full cache are counted apart: a little more or less memory changes them several times over. Rows of vLLM are
predicted as 0.24: those of 2023 and 2024, in a group of their own, show how far the engine has come as much as how
far off Gnomon is. SGLang's rows were read from the web (`measurements/published`); TPOT and TTFT are medians there,
as published. Those whose source does not say which form its card has are predicted as SXM, in a group of their own."""

ON_DISAGGREGATED = """\
Rows with prefill and decode replicas apart are simulated as `gnomon simulate serve --pool` does; no fit uses any of
them. Throughput is not published: it follows from the clients and what each of their requests takes, measured and
predicted alike. The table does not say whether MTP drafted tokens. Where InferenceX's configurations have a row's point
only without it, MTP is off; where they have it with and without, the row is counted apart (MTP not recorded) and
predicted without. Replicas with data-parallel attention that are refused under load are priced by one decode step at
the load of a steady closed loop (TPOT, one decode step); their first tokens and throughput are not predicted."""

AICONFIGURATOR = """\
AIConfigurator, on a sample of its own: TPOT 22%, TTFT 46%; from a comparison known to us, not run by us, and not on
these rows."""

ON_RUNS = """\
Published training runs, each under the engine and version it had, or the closest one, which its list names. Where a
source leaves out something that the plan needs, such as the recomputation, a usual value is taken and the run is
counted as partly assumed; what its own page says beside the table is taken from there. Where only a rate is printed,
seconds follow from it by the formula that the source counts FLOPs with. Runs whose figures were recalled, not read, and
those that something was fitted to (the host's launch time of Megatron-LM 3.0 to half of vTrain's single-node runs, the
kernels of PyTorch 2.0 to half of MosaicML's, kernels around experts to half of Megatron-Bridge's mixtures) are in
groups of their own, and so are those of BigScience on V100, whose page has 125 to 225 s for the same plan on different
days. Runs whose memory alone was published are compared by that.
Of the table's rows so many are predicted, with these errors, each run by its first figure and by quantity:"""

ON_COVERAGE = """\
Of steps, deployments and training runs with an interval, by the engine and version that were measured, where there are
20 rows or more; the first line pools all of them, smaller groups included. A p-value below 5% says that the interval
is too narrow or too wide there (exact binomial test against 90%). Half-width over error compares medians: above 3 an
interval is wider than it need be."""

FEW = 40
"""Tables that a terminal is shown one by one."""
NEXT = ("gnomon accuracy --chip H100 --family gemm", "gnomon accuracy --page accuracy-page")

LISTS = {
    "operators": lists.operators,
    "steps": lists.steps,
    "deployments": lists.deployments,
    "runs": lists.runs,
    "training": training,
}
"""Files of rows, by name."""


def page(payload: Mapping[str, Any], beside: str = "accuracy") -> str:
    """The page; its lists and pictures lie in the folder `beside` it."""
    hurry = " Quick run: fewer rows than `make accuracy` compares." if payload["quick"] else ""
    parts = [f"# {payload['title']}", f"Computed {payload['date']}.{hurry}", INTRO]
    parts += ["## Where it is worst", ON_WORST, table] if (table := worst(payload)) else []
    parts += ["## Summary", summary(payload)]
    parts += ["## Coverage of the 90% intervals", ON_COVERAGE, covered(payload)] if payload["coverage"] else []
    parts += [f"![Error by family and chip]({beside}/families.svg)", "## Operators"]
    rules = {"least_graph_us": payload["operators"]["rules"]["least_us"], **payload["operators"]["rules"]}
    parts += [ON_OPERATORS.format(**rules), _families(payload), *_ours(payload)]
    parts += [f"![Predicted over measured by size]({beside}/sizes.svg)", f"![What bands hold]({beside}/coverage.svg)"]
    parts += [_list(beside, "operators")]
    parts += ["## Chips not seen", ON_UNSEEN, _unseen(payload), "## Steps", ON_STEPS, _section(payload, "steps")]
    parts += [_list(beside, "steps"), "## Deployments", ON_DEPLOYMENTS, ON_DISAGGREGATED]
    parts += [_section(payload, "deployments")]
    parts += [*_kept_out(payload), f"![Deployments, predicted against measured]({beside}/deployments.svg)"]
    parts += [AICONFIGURATOR, _counts(payload["deployments"]), _list(beside, "deployments")]
    parts += [
        "## Training runs",
        ON_RUNS,
        _whole(payload["runs"]),
        _section(payload, "runs"),
        _counts(payload["runs"]),
        _list(beside, "runs"),
    ]
    parts += ["## Training steps of papers, and ours", _training(payload), *peers(payload), _list(beside, "training")]
    parts += ["## The data", _truth(payload)]
    return "\n\n".join(part for part in parts if part) + "\n"


def brief(payload: Mapping[str, Any], *, narrow: bool = False) -> str:
    """What a terminal shows: the summary, then the tables of what is left when only a few are, and of a part of the
    results (`narrow`) the tables that were left out."""
    parts = [f"{payload['title']}, computed {payload['date']}", summary(payload)]
    parts += ["Coverage of the 90% intervals:", covered(payload)] if payload["coverage"] else []
    tables = payload["operators"]["tables"]
    if 0 < len(tables) <= FEW:
        parts.append(scored(lists.TABLE, tables))
    left = payload["operators"]["left_out"] if narrow else []
    if left:
        more = f", {len(left) - FEW} more in --out FILE.md" if len(left) > FEW else ""
        parts += [f"Operator tables left out, and why{more}:", left_out(left[:FEW], "table")]
    parts.append("\n".join(next_steps(*NEXT)))
    return "\n\n".join(parts) + "\n"


def render(answer: Result, style: Style) -> str:
    """The text of the answer, as `gnomon.report.render` gives it."""
    return brief(answer.to_dict(), narrow=bool(getattr(answer, "narrowed_to", None))).removesuffix("\n")


def listed(payload: Mapping[str, Any]) -> dict[str, str]:
    """The lists by file name."""
    return {f"{name}.md": make(payload) for name, make in LISTS.items()}


def summary(payload: Mapping[str, Any]) -> str:
    """One line a kind of thing that is predicted."""
    rows: list[tuple[str, ...]] = [("what", "of", *HEADS)]
    for found in payload["operators"]["families"]:
        of = "ours" if found["source"] == "ours" else "published"
        rows.append((f"operator: {found['kind']}", f"{of}, {_tables(found['tables'])}", *scores(found)))
    for found in _by_kind(payload["unseen_chips"]):
        rows.append((f"operator on a chip not seen: {found['kind']}", _tables(found["tables"]), *scores(found)))
    for name, title in (("steps", "step, ours"), ("deployments", "deployment"), ("runs", "training run")):
        rows += [
            (f"{title}: {row['what']}", row.get("group", "vLLM 0.24"), *scores(row)) for row in payload[name]["totals"]
        ]
    rows += [(f"training step: {what}", of, *found) for of, what, found in _training_rows(payload)]
    return grid(rows, "<<" + ">" * len(HEADS))


def covered(payload: Mapping[str, Any]) -> str:
    """How many measurements each engine's intervals contain."""
    rows = [("engine", "what", "rows", "in band", "share", "p-value", "half-width", "median error", "width/error")]
    for found in payload["coverage"]:
        inside, banded = found["inside"], found["banded"]
        figures = (f"{banded:,}", f"{inside:,}", f"{inside / banded:.0%}", f"{found['p_value']:.3f}")
        widths = (f"{found[name]:.1%}" for name in ("half_width", "median_error"))
        rows.append((found["engine"], found["what"], *figures, *widths, f"{found['half_width_over_error']:.1f}"))
    return grid(rows, "<<" + ">" * 7)


def _families(payload: Mapping[str, Any]) -> str:
    rows = [("kind", "tables", "rows", "mean error", "worst table", "its mean", "in band", "half-width")]
    for found in payload["operators"]["families"]:
        figures = scores(found)
        names = (found["kind"], f"{found['tables']} {found['source']}", figures[0], figures[1])
        rows.append((*names, found["worst_table"], f"{found['worst_table_error']:.1%}", *figures[-2:]))
    return grid(rows, "<<>><>>>")


def _ours(payload: Mapping[str, Any]) -> Iterator[str]:
    ours = [row for row in payload["operators"]["tables"] if row["source"] == "ours"]
    if ours:
        yield "Measured by us, table by table:"
        yield scored(lists.TABLE, ours)


def _tables(count: int) -> str:
    return f"{count} table" + ("s" if count > 1 else "")


def _by_kind(rows: Any) -> list[dict[str, Any]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["kind"], []).append(row)
    return [
        {
            "kind": kind,
            "tables": len(some),
            "rows": sum(row["rows"] for row in some),
            "mean_error": sum(row["mean_error"] for row in some) / len(some),
            "bias": sum(row["bias"] for row in some) / len(some),
            "worst": max((row["worst"] for row in some), key=abs),
        }
        for kind, some in sorted(groups.items())
    ]


def _unseen(payload: Mapping[str, Any]) -> str:
    """By kind and chip: the mean over frameworks and formats."""
    rows = [("kind", "chip", "tables", "mean error", "bias", "worst table", "its mean")]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in payload["unseen_chips"]:
        groups.setdefault((row["kind"], row["chip"]), []).append(row)
    for (kind, chip), some in sorted(groups.items()):
        worst = max(some, key=lambda row: float(row["mean_error"]))
        mean, bias = (sum(row[name] for row in some) / len(some) for name in ("mean_error", "bias"))
        named = f"{worst['framework']} {worst['version']} {worst['dtype']}"
        rows.append((kind, chip, str(len(some)), f"{mean:.1%}", f"{bias:+.1%}", named, f"{worst['mean_error']:.1%}"))
    return grid(rows, "<<>>><>")


def _section(payload: Mapping[str, Any], name: str) -> str:
    found = payload[name]["summaries"]
    first: Mapping[str, Any] = next(iter(found), {})
    names = [key for key in ("group", "source", "chip", "model", "what") if key in first]
    return scored(names, found) if found else "No data available here."


def _kept_out(payload: Mapping[str, Any]) -> Iterator[str]:
    """The half of the deployments that is kept out of every fit; results from before it was do not have it."""
    found = payload["deployments"].get("kept_out", {})
    if found.get("totals"):
        yield "Of vLLM's recent rows, the half whose plans no fit may use, in all, by chip and by number format:"
        yield scored(("what",), found["totals"])
        yield from (scored((name, "what"), found[name]) for name in ("chip", "precision"))


def _whole(section: Mapping[str, Any]) -> str:
    """All runs together, and those that nothing was fitted to."""
    return scored(("of", "what"), section["whole"]) if section.get("whole") else ""


def _counts(section: Mapping[str, Any]) -> str:
    out, compared = sum(row["rows"] for row in section["left_out"]), len({row["id"] for row in section["rows"]})
    known = f"{section['usable']:,} rows of the table have a plan that Gnomon knows"
    if "published" in section:
        known = f"{section['usable']:,} of {section['published']:,} rows of the table have a plan that Gnomon knows"
    return f"{known}; {compared:,} of them were compared. {out:,} rows were left out."


def _list(beside: str, name: str) -> str:
    return f"Row by row, with what was left out and why: [{beside}/{name}.md]({beside}/{name}.md)."


def _training(payload: Mapping[str, Any]) -> str:
    rows = [("rows of", "what", *HEADS)] + [(of, what, *found) for of, what, found in _training_rows(payload)]
    return grid(rows, "<<" + ">" * len(HEADS))


def _training_rows(payload: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for table in (*payload["published"], *payload["measured"]):
        recalled = " (columns recalled)" if table.get("recalled") else ""
        for found in table["summaries"]:
            yield name_of(table) + recalled, found["what"], scores(found)


def _truth(payload: Mapping[str, Any]) -> str:
    said = "Published tables that these results were computed from, by the beginning of their SHA-256:"
    rows = [("file", "sha256")] + [(row["file"], row["sha256"][:16]) for row in payload["truth"]]
    return f"{said}\n\n{grid(rows, '<<')}"
