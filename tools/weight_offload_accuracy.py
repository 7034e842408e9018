"""Loads with weights on the host beside the same simulated: `python -m tools.weight_offload_accuracy FOLDER`.

FOLDER is what `tools.weight_offload_loads` wrote. TPOT of a static batch is its decode step, TTFT of the batch of one
the step of its prompt of 2,048 tokens. Prints measured, predicted, the error, and whether the 90% interval has the
measured value.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from gnomon.accuracy.option_loads import read

SHOWN = ("TPOT p50", "TTFT p50", "TTFT p90")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the measurements are")
    errors: dict[str, list[float]] = {}
    hits = []
    for path in sorted(parser.parse_args().folder.glob("*.json.gz")):
        for load in read(path):
            print(f"{load.title}, {load.model}")
            for row in load.rows():
                what = str(row["what"]).rpartition(", ")[2]
                if what not in SHOWN:
                    continue
                measured, ours, low, high = (float(row[name]) for name in ("measured", "predicted", "low", "high"))
                errors.setdefault(what, []).append(ours / measured - 1)
                hits.append(low <= measured <= high)
                told = f"{1e3 * measured:9.2f} {1e3 * ours:9.2f} ms {errors[what][-1]:+7.1%}"
                print(f"  {what} {told}   {'in' if hits[-1] else 'NOT in'} {1e3 * low:.1f} to {1e3 * high:.1f}")
    for what, some in errors.items():
        print(f"{what}: mean {np.mean(some):+.1%}, mean absolute {np.mean(np.abs(some)):.1%}, {len(some)} loads")
    print(f"inside the 90% interval: {sum(hits)} of {len(hits)}")


if __name__ == "__main__":
    main()
