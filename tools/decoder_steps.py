"""Times the decoders of decoders.py on the GPU at hand, to stand beside what `gnomon.trace` says of them.

python -m tools.decoder_steps --out steps.json [--only llama-3.2-1b,qwen3-8b]

Needs PyTorch and transformers; weights mean nothing, and nothing is downloaded. About three minutes on an H200.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers
from tools.decoders import MODELS, Case, built, cases, network
from tools.trace_modules import captured, steps, timed

from gnomon.catalog import model_config_path

SCHEMA = "gnomon.measured.decoders/1"


def measure(net: torch.nn.Module, case: Case) -> dict[str, Any]:
    row = {name: getattr(case, name) for name in ("model", "phase", "batch", "tokens", "context", "launch")}
    try:
        with torch.device("cuda"):
            module, inputs = built(net, case)
        step = steps(module, inputs, "train" if case.phase == "train" else "forward")
        return row | timed(captured(step) if case.launch == "graph" else step)
    except (RuntimeError, torch.OutOfMemoryError) as error:
        return row | {"failed": str(error).splitlines()[0][:200]}
    finally:
        net.zero_grad(set_to_none=True)
        net.eval()
        gc.collect()
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--seconds", type=float, default=1e9, help="Begin no model after so long.")
    options = parser.parse_args()
    torch.manual_seed(0)
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "transformers": transformers.__version__}
    answer: dict[str, Any] = {
        "schema": SCHEMA,
        "date": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name(),
        "versions": versions,
        "rows": [],
    }
    began = time.perf_counter()
    for name in options.only.split(","):
        if time.perf_counter() - began > options.seconds:
            break
        with torch.device("cuda"):
            net = network(json.loads(model_config_path(name).read_text()))
        for case in (case for case in cases() if case.model == name):
            answer["rows"].append(measure(net, case))
            options.out.write_text(json.dumps(answer, indent=1) + "\n")
            print(json.dumps(answer["rows"][-1]), flush=True)
        del net
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
