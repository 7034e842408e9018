"""`python -m tools.feature_loads BATCH OUT`."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

import tools.feature_loads
from tools.feature_loads.batch import run_batch
from tools.feature_loads.configs import BATCHES, ENGINES
from tools.feature_loads.measuring import measure
from tools.server_loads import end_engine


def main() -> None:
    parser = argparse.ArgumentParser(
        description=tools.feature_loads.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=[*BATCHES, *ENGINES], help="a batch, or one of its engines")
    parser.add_argument("out", type=Path, help="folder of the measurements (of an engine: its file)")
    parser.add_argument("--only", help="engines of the batch, in order")
    parser.add_argument("--budget", type=float, default=550.0, help="seconds in all, the start counted in")
    parser.add_argument("--model", help="another model: to try this out")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the requests, below 1 to try this out")
    parser.add_argument("--no-power", action="store_true", help="without NVML's samples")
    parser.add_argument("--hold", type=Path, help="of an engine: touch HOLD.ready once started, go on with HOLD.go")
    asked = parser.parse_args()
    if asked.what in BATCHES:
        more = ["--scale", str(asked.scale), *(["--model", asked.model] if asked.model else [])]
        names = asked.only.split(",") if asked.only else BATCHES[asked.what]
        run_batch(names, asked.out, asked.budget, more, not asked.no_power)
        return
    code = 1
    try:
        measure(asked.what, asked.out, asked.hold or asked.out, asked.model, asked.scale)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        end_engine()
        os._exit(code)


if __name__ == "__main__":
    main()
