"""What tensor parallelism over PCIe costs in published serving: `python -m tools.pcie_serving`.

TensorRT-LLM was published on A100 cards with and without NVLink in the same versions, models and lengths. One card says
how much slower the PCIe card itself is; what is left of a token's time at more cards is its all-reduces over PCIe.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from tools.collective_tables import Collectives, Group

from gnomon.accuracy import truth
from gnomon.calibrate.truth import folder as truth_folder
from gnomon.calibrate.truth import number
from gnomon.cost import nccl
from gnomon.load import parse_pool

SLOW, QUICK = "A100-PCIE-80GB", "A100-SXM-80GB"
REDUCED = {"LLaMA v3 70B": (160, 8192), "LLaMA v3.1 70B": (160, 8192), "Mixtral 8x7B": (64, 4096)}
"""All-reduces of a token, and the values of each."""
FITTED = "LLaMA"
MESSAGE_BYTES = 2.0**23
"""A message of full batches: some hundreds of tokens. The published rows do not say how many."""
SAME = ("model", "weight_precision", "tp", "isl", "osl", "engine_version", "workload")
NEEDED = (*SAME, "source", "source_detail", "gpu", "output_tok_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed:
    """Bus bandwidth that all-reduces over PCIe had in a published run."""

    model: str
    ranks: int
    bus_bytes_s: float


def exposed(folder: Path) -> Iterator[Exposed]:
    """One for each pair of runs that differ by their cards alone."""
    pairs: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for row in truth.rows(folder / truth.SERVING, NEEDED):
        if row["source"] == "trtllm_docs" and row["gpu"] in (SLOW, QUICK) and row["output_tok_s"]:
            key = (*(row[name] for name in SAME), row["source_detail"])
            pairs[key].setdefault(row["gpu"], number(row, "output_tok_s"))
    both = {key: found for key, found in pairs.items() if len(found) == 2}
    alone = defaultdict[tuple[str, str], list[float]](list)
    for (_, _, tp, isl, osl, *_), found in both.items():
        if tp == "1":
            alone[isl, osl].append(found[QUICK] / found[SLOW])
    for (model, _, tp, isl, osl, *_), found in both.items():
        if model in REDUCED and tp in ("4", "8") and alone.get((isl, osl)):
            one = _exposed(model, int(tp), 1 + float(isl) / float(osl), found, median(alone[isl, osl]))
            yield Exposed(model=model, ranks=int(tp), bus_bytes_s=one)


def _exposed(model: str, ranks: int, passed: float, found: dict[str, float], slower: float) -> float:
    """`passed`: tokens that go through the network for one that comes out."""
    count, values = REDUCED[model]
    quick, slow = (1 / (found[gpu] * passed) for gpu in (QUICK, SLOW))
    nvlink = nccl.level("all_reduce", np.array([MESSAGE_BYTES]), ranks, parse_pool("A100:8").scaleup)[0]
    reduced = count * values * 2.0
    left = slow - slower * (quick - reduced / MESSAGE_BYTES * float(nvlink))
    return 2 * (ranks - 1) / ranks * reduced / left


def served(folder: Path) -> tuple[Collectives, ...]:
    """The medians of Llama's runs as rows of a fit, for four cards and for eight; Mixtral's are set aside."""
    found = defaultdict[int, list[float]](list)
    for one in exposed(folder):
        if one.model.startswith(FITTED):
            found[one.ranks].append(one.bus_bytes_s)
    return tuple(_served(ranks, median(buses)) for ranks, buses in sorted(found.items()))


def _served(ranks: int, bus_bytes_s: float) -> Collectives:
    took = 2 * (ranks - 1) / ranks * MESSAGE_BYTES / bus_bytes_s
    payload, seconds = np.array([MESSAGE_BYTES]), np.array([took])
    group = Group(op="all_reduce", ranks=ranks, plain=False, payload=payload, seconds=seconds)
    link = parse_pool("A100-PCIe:8").inside(ranks)
    return Collectives(
        source="trtllm_docs", chip=SLOW, library="nccl, served", impl="", link=link, groups=(group,), left_out=0
    )


def predicted(ranks: int) -> float:
    """Bus bandwidth of the same cards as they are priced."""
    pool = parse_pool("A100-PCIe:8")
    took = nccl.level("all_reduce", np.array([MESSAGE_BYTES]), ranks, pool.inside(ranks))[0]
    return 2 * (ranks - 1) / ranks * MESSAGE_BYTES / float(took)


def main() -> None:
    folder = truth_folder()
    if folder is None:
        print("the published tables are not here; GNOMON_TRUTH can name their folder")
        return
    groups = defaultdict[tuple[int, str], list[float]](list)
    for one in exposed(folder):
        groups[one.ranks, one.model].append(one.bus_bytes_s)
    print(f"{'ranks':>5}  {'model':16} {'runs':>4}  GB/s: quartiles, median, priced")
    for (ranks, model), found in sorted(groups.items()):
        low, mid, high = np.quantile(found, (0.25, 0.5, 0.75)) / 1e9
        print(f"{ranks:5}  {model:16} {len(found):4}  {low:.1f} to {high:.1f}, {mid:.1f}, {predicted(ranks) / 1e9:.1f}")


if __name__ == "__main__":
    main()
