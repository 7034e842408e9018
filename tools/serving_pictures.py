"""The plots of docs/serving.md as SVG files: `python -m tools.serving_pictures` writes docs/serving/ again.

They are those of `gnomon simulate serve … --html` and `gnomon plan serve … --html` for the guide's load.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gnomon
from gnomon.report.html.plan import rate_plots
from gnomon.report.html.run_plots import distribution_plots, series_plots
from gnomon.report.html.svg import as_file

FOLDER = Path(__file__).parents[1] / "docs/serving"
MODEL, SLO = "llama-3.1-8b", "ttft_p90=500ms,tpot_p90=40ms"
LENGTHS: dict[str, Any] = {"input": 1024, "output": 256}
DISTRIBUTIONS = ("ttft", "tpot", "itl")
SERIES = ("sequences", "kv-blocks", "tokens", "steps")


def pictures() -> Iterator[tuple[str, str]]:
    """File names and plots."""
    served = gnomon.simulate_serving(
        MODEL, on="H100", rate=20, requests=3000, arrivals="gamma:cv=3", slo=SLO, series=True, **LENGTHS
    )
    yield from zip(DISTRIBUTIONS, distribution_plots(served), strict=False)
    yield from zip(SERIES, series_plots(served), strict=False)
    planned = gnomon.plan_serving(MODEL, fleet="H100:4,L40S:8", rate=20, slo=SLO, by_rate=True, **LENGTHS)
    yield from zip(("ttft-by-rate", "tpot-by-rate"), rate_plots(planned), strict=True)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, svg in pictures():
        (FOLDER / f"{name}.svg").write_text(as_file(svg), encoding="utf-8")
        print(f"docs/serving/{name}.svg written")
