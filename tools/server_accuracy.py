"""Measured server loads beside `gnomon simulate serve`: `python -m tools.server_accuracy FOLDER`.

Reads every server-*.json.gz of tools/server_loads.py in the folder, simulates the same arrivals with as many KV blocks
as the engine had, and prints measured, predicted and error of TTFT and TPOT (p50 and p90), wall time, watts and how
much lower the clock was than the highest, then the mean size of each error. `gnomon accuracy` has the same rows with
intervals.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gnomon.accuracy.served import PATTERN, read


def lines(folder: Path) -> Iterator[str]:
    errors: dict[str, list[float]] = {}
    for path in sorted(folder.glob(PATTERN)):
        found = read(path)
        yield path.name
        for load, ours in found.simulated(draws=0):
            told = []
            for name, measured in load.figures.items():
                error = ours[name] / measured - 1
                errors.setdefault(name, []).append(error)
                scale = 1e3 if name.startswith("T") else 1.0
                told.append(f"{name} {measured * scale:.4g} {ours[name] * scale:.4g} {error:+.0%}")
            yield f"  {load.title}: {', '.join(told)}"
    for name, found_errors in errors.items():
        yield f"{name}: mean error {np.mean(np.abs(found_errors)):.1%}, bias {np.mean(found_errors):+.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the measurements are")
    for line in lines(parser.parse_args().folder):
        print(line, flush=True)


if __name__ == "__main__":
    main()
