"""Pictures of accuracy, as SVG: errors by family and chip, by size, what bands hold, and whole deployments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

from gnomon.report.memory_plot import require_matplotlib

Payload = Mapping[str, Any]
INCH_A_CHIP, WIDE = 0.24, 9.0
SHOWN = 0.6
"""Errors beyond this are drawn at the edge."""
LEAST_RATIO, MOST_RATIO = 0.5, 2.0
STYLE = {"svg.hashsalt": "gnomon", "svg.fonttype": "none", "font.size": 8.0}
"""The same file every time, with text as text."""


NAMES = ("families.svg", "sizes.svg", "coverage.svg", "deployments.svg")


def pictures(payload: Payload) -> dict[str, bytes]:
    """Every picture by file name; those of which nothing is known are left out."""
    require_matplotlib("drawing accuracy")
    import matplotlib

    tables = payload["operators"]["tables"]
    drawn: dict[str, Callable[[], Any]] = {}
    if tables:
        made = (lambda: _families(tables), lambda: _sizes(tables), lambda: _coverage(tables))
        drawn |= dict(zip(NAMES, made, strict=False))
    if payload["deployments"]["rows"]:
        drawn[NAMES[-1]] = lambda: _deployments(payload["deployments"]["rows"])
    found = {}
    with matplotlib.rc_context(STYLE):
        for name, make in drawn.items():
            out = BytesIO()
            make().savefig(out, format="svg", metadata={"Date": None})
            found[name] = out.getvalue()
    return found


def _families(tables: Sequence[Mapping[str, Any]]) -> Any:
    """Mean error of each table: a line a kind and chip, a colour a framework."""
    from matplotlib.figure import Figure

    lines = sorted({(row["kind"], row["chip"]) for row in tables}, reverse=True)
    places = {line: place for place, line in enumerate(lines)}
    figure = Figure(figsize=(WIDE, 1.2 + INCH_A_CHIP * len(lines)), layout="constrained")
    axes = figure.add_subplot()
    for framework in sorted({row["framework"] for row in tables}):
        some = [row for row in tables if row["framework"] == framework]
        axes.plot(
            [min(row["mean_error"], SHOWN) for row in some],
            [places[row["kind"], row["chip"]] for row in some],
            "o",
            markersize=4,
            alpha=0.7,
            label=framework,
        )
    axes.set_yticks(range(len(lines)), [f"{kind}, {chip}" for kind, chip in lines])
    axes.set(xlim=(0, SHOWN * 1.02), xlabel=f"mean error on shapes not seen (at most {SHOWN:.0%} drawn)")
    axes.xaxis.set_major_formatter(_percent)
    axes.grid(axis="x", linewidth=0.4)
    axes.legend(frameon=False)
    return figure


def _sizes(tables: Sequence[Mapping[str, Any]]) -> Any:
    """Predicted over measured by size: a line a table, a panel a kind."""
    from matplotlib.figure import Figure

    kinds = sorted({row["kind"] for row in tables})
    columns = 3
    lines = -(-len(kinds) // columns)
    figure = Figure(figsize=(WIDE, 0.4 + 1.9 * lines), layout="constrained")
    for place, kind in enumerate(kinds, 1):
        axes = figure.add_subplot(lines, columns, place)
        for row in (row for row in tables if row["kind"] == kind):
            middle = [(part["from_s"] * part["to_s"]) ** 0.5 * 1e6 for part in row["deciles"]]
            axes.plot(middle, [_ratio(1 + part["bias"]) for part in row["deciles"]], linewidth=0.7, alpha=0.6)
        axes.axhline(1, color="black", linewidth=0.6)
        axes.set(xscale="log", yscale="log", ylim=(LEAST_RATIO, MOST_RATIO), title=kind, xlabel="measured, us")
        axes.set_yticks([0.5, 0.8, 1, 1.25, 2], ["0.5", "0.8", "1", "1.25", "2"])
        axes.minorticks_off()
    figure.supylabel("predicted over measured, mean of a tenth of the rows")
    return figure


def _coverage(tables: Sequence[Mapping[str, Any]]) -> Any:
    """Each table's share of rows inside its band, by the band's width."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDE, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.axhspan(0.85, 0.95, color="0.9")
    for kind in sorted({row["kind"] for row in tables}):
        some = [row for row in tables if row["kind"] == kind]
        shares = [row["inside"] / row["banded"] for row in some]
        axes.plot([row["half_width"] for row in some], shares, "o", markersize=4, alpha=0.7, label=kind)
    axes.set(xscale="log", ylim=(0.5, 1), xlabel="half-width of the 90% band", ylabel="rows inside")
    axes.xaxis.set_major_formatter(_percent)
    axes.yaxis.set_major_formatter(_percent)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def _deployments(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Predicted against measured, a panel a quantity."""
    from matplotlib.figure import Figure

    whats = sorted({row["what"] for row in rows})
    figure = Figure(figsize=(WIDE, 3.4), layout="constrained")
    for place, what in enumerate(whats, 1):
        axes = figure.add_subplot(1, len(whats), place)
        some = [row for row in rows if row["what"] == what]
        for group in sorted({row["group"] for row in rows}):
            chosen = [row for row in some if row["group"] == group]
            across, up = ([row[name] for row in chosen] for name in ("measured", "predicted"))
            axes.plot(across, up, ".", markersize=4, alpha=0.7, label=group if place == 1 else None)
        ends = [pick(pick(row["measured"], row["predicted"]) for row in some) for pick in (min, max)]
        axes.plot(ends, ends, color="black", linewidth=0.6)
        unit = {"s": "s", "1/s": "tokens/s"}[some[0]["unit"]]
        axes.set(xscale="log", yscale="log", title=what, xlabel=f"measured, {unit}")
        axes.set_ylabel("predicted" if place == 1 else "")
    figure.legend(loc="outside lower center", frameon=False, ncols=3)
    return figure


def _ratio(value: float) -> float:
    return min(max(value, LEAST_RATIO), MOST_RATIO)


def _percent(value: float, _: float) -> str:
    return f"{value:.0%}"
