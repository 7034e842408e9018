"""Profiles of cards whose published tables have whole layers instead of GEMMs: `python -m tools.layer_tables`.

LLMServingSim's tables (kernels_layers.csv.gz of the published measurements, GNOMON_TRUTH) time the projections of
Llama-3.1-8B, cut for one and two ranks, by number of tokens: GEMMs whose other sizes the network says. Those of an
RTX 3090 and an RTX A6000 are PyTorch's, those of an RTX 4090 vLLM's; all are cuBLAS in bf16. Whole pairs of n and k are
kept aside for the errors that a profile states, as for all families.
"""

from __future__ import annotations

import csv
import gzip
import sys
import zlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tools.chips import MEASURED, MOST_ROWS, POWER_NOTE, watts
from tools.published import DATE, large_gemm
from tools.ship import PROFILES, write

from gnomon import catalog
from gnomon.calibrate import truth
from gnomon.calibrate.fit import fit_family
from gnomon.cost.profile import SYSTEM_SPREAD
from gnomon.load.profile_file import SCHEMA
from gnomon.load.profiles import profile_of
from gnomon.spec import Chip

TABLE, SOURCE, MODEL = "kernels_layers.csv.gz", "llmservingsim", "meta-llama/Llama-3.1-8B"
HIDDEN, INNER, KV, VOCAB = 4096, 14336, 1024, 128_256
CARDS = {"RTX-3090": "PyTorch", "RTX-A6000": "PyTorch", "RTX-4090": "vLLM 0.19"}
UNSEEN_NOTE = "The least time of a step along k, which the table does not tell, is the A100's."
WIDE = {
    "q_proj": HIDDEN, "k_proj": KV, "v_proj": KV, "gate_proj": INNER, "up_proj": INNER,
    "qkv_proj": HIDDEN + 2 * KV, "gate_up_proj": 2 * INNER, "lm_head": VOCAB,
}  # fmt: skip
"""Columns of what is cut by column, over the hidden width."""
UNSEEN = {"step_ns": 1.4787, "sm_gb_s": 800.0}
"""What these tables, of one format bound by memory or by arithmetic, do not tell (their error is the same without it):
the A100's, since GEMMs over narrow weights are bound by it."""
DEEP = {"o_proj": HIDDEN, "down_proj": INNER}
"""Rows of what is cut by row."""


def gemms(folder: Path) -> dict[str, list[tuple[float, float, float, float]]]:
    """Rows m, n, k and microseconds by card."""
    found = defaultdict(list)
    with gzip.open(folder / TABLE, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["source"] != SOURCE or row["model"] != MODEL or row["gpu"] not in CARDS:
                continue
            tp, layer = int(row["tp"]), row["layer"]
            n, k = (WIDE[layer] // tp, HIDDEN) if layer in WIDE else (HIDDEN, DEEP.get(layer, 0) // tp)
            if k:
                found[row["gpu"]].append((float(row["tokens"]), float(n), float(k), float(row["time_us"])))
    return dict(found)


def thinned(rows: list[tuple[float, float, float, float]]) -> list[tuple[float, float, float, float]]:
    """As many as a fit takes, always the same ones."""
    return sorted(rows, key=lambda row: zlib.crc32(repr(row).encode()))[:MOST_ROWS]


SUSTAINED = {"RTX-A6000": (95e12, "github.com/mli/transformers-benchmarks, README, micro_bench.ipynb")}
"""FLOP/s of GEMMs of 8,192 in 16 bits that follow each other, by cards for which they are published. Tables of layers
are of bursts, which these follow at a lower clock."""
HELD = ("limit", "attention_flop")
"""Of the power law of the H200, which was measured: its share of the limit, and attention beside a GEMM."""


def clocked(chip: Chip, name: str, coefficients: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """What a board draws, and its note. Where both rates of a GEMM are known, power falls with the square of the clock
    (`gnomon.cost.clock`), which says what a FLOP takes at full clock."""
    found = watts(chip)
    if name not in SUSTAINED:
        return found, [POWER_NOTE]
    (rate, source), donor = SUSTAINED[name], profile_of(MEASURED)
    assert donor is not None
    found |= {key: donor.power[key] for key in HELD}
    burst = large_gemm(chip, coefficients)
    slower, bytes_a_flop = burst / rate, 3.0 / 8192.0
    full_w = found["limit"] * chip.tdp_w * slower**2 - found["active_w"]
    found["burst_j_per_flop"] = float(f"{full_w / burst - found['j_per_byte'] * bytes_a_flop:.3g}")
    note = f"The clock under the limit is that at which GEMMs reach {rate / 1e12:g} TFLOP/s ({source})."
    return found, [POWER_NOTE, note]


def profile(name: str, rows: list[tuple[float, float, float, float]]) -> dict[str, Any]:
    """The content of a card's profile of PyTorch's kernels."""
    chip = catalog.chip(name)
    columns: Mapping[str, Any] = dict(zip(("m", "n", "k", "time_us"), np.array(thinned(rows)).T, strict=True))
    fitted = fit_family("gemm", "bf16", columns, chip)
    content = fitted.to_dict()
    content["coefficients"] |= UNSEEN  # the error stays as it is within 0.2 points
    held = content["held_out"]
    power, notes = clocked(chip, name, content["coefficients"])
    print(f"{chip.name}: {len(rows)} rows, held-out mean {held['mean']:.1%}, bias {held['bias']:+.1%}", file=sys.stderr)
    return {
        "schema": SCHEMA,
        "chip": chip.name,
        "framework": "torch",
        "date": DATE,
        "table": "published tables of layers",
        "versions": {f"{SOURCE}, {CARDS[name]}": ""},
        "system_spread": SYSTEM_SPREAD,
        "notes": [*notes, UNSEEN_NOTE],
        "families": {"gemm.bf16": content | {"source": f"published by {SOURCE}, {CARDS[name]}"}},
        "power": power,
    }


def main() -> None:
    folder = truth.folder()
    if folder is None:
        print("kept the cards' profiles: their tables are not here; GNOMON_TRUTH can name their folder")
        return
    for name, rows in sorted(gemms(folder).items()):
        found = profile(name, rows)
        write(PROFILES / f"{found['chip'].lower()}.torch.yaml", found)


if __name__ == "__main__":
    main()
