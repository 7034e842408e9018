"""The memory of every pipeline rank over a training step, drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO

from gnomon.errors import MissingExtraError
from gnomon.report.training_trace import Moments

GIB = 1024.0**3
COLUMNS = 1000
"""Places along a line. Of the moments that fall together the lowest and the highest are drawn."""
MOST_NAMED = 8
SIZE_INCHES = (10.0, 5.0)


def require_matplotlib(what: str = "drawing the memory") -> None:
    """Raise where drawing would fail because it is missing or incomplete."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", what) from None


def draw(ranks: Iterable[Moments], usable_bytes: float, title: str, kind: str) -> bytes:
    """An `svg` or a `png`: one line a rank, and the memory that can be used."""
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    lines = [thinned(list(moments)) for moments in ranks]
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    colours = matplotlib.colormaps["viridis"]
    for rank, line in enumerate(lines):
        shown = len(lines) <= MOST_NAMED or rank in (0, len(lines) - 1)
        axes.step(
            [time_s for time_s, _ in line],
            [size / GIB for _, size in line],
            where="post",
            linewidth=0.8,
            color=colours(rank / max(1, len(lines) - 1) * 0.9),
            label=f"pipeline rank {rank}" if shown else None,
        )
    axes.axhline(usable_bytes / GIB, color="black", linestyle="--", linewidth=0.8, label="usable")
    axes.set(title=title, xlabel="time in the step (s)", ylabel="memory (GiB)", xlim=(0, None), ylim=(0, None))
    axes.title.set_fontsize("small")
    figure.legend(loc="outside right center", fontsize="small", frameon=False)
    out = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "gnomon"}):  # the same file every time
        figure.savefig(out, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return out.getvalue()


def thinned(moments: Sequence[tuple[float, float, str]]) -> list[tuple[float, float]]:
    """Times and bytes, at most two for each place along the line."""
    end = moments[-1][0] or 1.0
    places: dict[int, list[tuple[float, float]]] = {}
    for time_s, size, _ in moments:
        places.setdefault(int(time_s / end * COLUMNS), []).append((time_s, size))
    kept = []
    for together in places.values():
        low, high = (pick(together, key=lambda moment: moment[1]) for pick in (min, max))
        kept += sorted({low, high})
    return kept
