"""Fits the host's work under vLLM of 2023 and 2024 to published batches on one chip, and reports on another chip's.

    python -m tools.vllm_early

0.2: decodes of Splitwise's table, Llama-2-70B on A100s; checked on H100s. 0.5: tokens per second of
LLM-Inference-Bench on A100s, dense models in 16 bits; checked on H100s. Both through GNOMON_TRUTH. What is measured
beyond the device's time is split into a part for every step, one for several ranks (0.5) or for every layer (0.2), and
one for every sequence, by least squares of the relative errors.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from gnomon.accuracy import truth
from gnomon.accuracy.deployment_rows import NEEDED, DeploymentCase, Unfit, any_case_of
from gnomon.accuracy.deployments import figures
from gnomon.accuracy.loads import ROUNDS
from gnomon.calibrate.truth import folder
from gnomon.engines.vllm import releases
from gnomon.engines.vllm.engine import Vllm
from gnomon.engines.vllm.releases import Release
from gnomon.errors import GnomonError
from gnomon.load.deployments import replica_of
from gnomon.spec.questions.parts import ServedQuestion

SOURCES = {"0.2.0": ("splitwise", "TPOT"), "0.5.4": ("llm_inference_bench", "tokens/s")}
FIT, CHECK = "A100", "H100"
MOST = 80
"""Rows of each chip, the same ones every time."""
Case = DeploymentCase


def cases(version: str, chip: str) -> list[Case]:
    source, what = SOURCES[version]
    found = []
    for row in truth.rows(folder() / truth.SERVING, NEEDED):  # type: ignore[operator]
        if row["source"] != source or not row["gpu"].startswith(chip):
            continue
        try:
            case = any_case_of(row)
        except Unfit:
            continue
        if what in case.measured and case.options["dtype"] in ("bf16", "fp16") and "mixtral" not in case.model:
            found.append(case)
    return sorted(found, key=lambda case: zlib.crc32(case.row["row_id"].encode()))[:MOST]


def predicted(case: Case, version: str, release: Release | None = None) -> float:
    """Under a release as shipped, or with other figures."""
    engine = Described(version, release or releases.described()[version])
    replica = replica_of(ServedQuestion(model=case.model, **case.options), f"vllm@{version}")
    deployment = replica.deploy()
    found = figures(case, engine.step_cost(deployment), engine.limits(deployment), ROUNDS)
    return found[SOURCES[version][1]]


@dataclass(frozen=True)
class Described(Vllm):
    """vLLM with the figures of a release that is not shipped."""

    figures: Release = releases.FIRST

    def __init__(self, version: str, figures: Release) -> None:
        object.__setattr__(self, "figures", figures)
        super().__init__(version)

    @property
    def release(self) -> Release:
        return self.figures


def step_s(case: Case, version: str, value: float) -> float:
    """Seconds of a step that a figure says."""
    return value if SOURCES[version][1] == "TPOT" else case.clients / value


def main() -> None:
    for version in SOURCES:
        release = releases.described()[version]
        layered = release.eager
        bare = replace(release, host={**release.host, "eager_layer_us": 0.0}) if layered else release
        beside, rows = [], []
        for case in cases(version, FIT):
            try:
                ours = step_s(case, version, predicted(case, version, bare))
            except GnomonError as problem:
                print(f"left out {case.row['row_id']}: {problem}", file=sys.stderr)
                continue
            measured = step_s(case, version, case.measured[SOURCES[version][1]])
            ranks = release.gap_ranks_us * (case.options["tp"] > 1)
            own = release.host["gap_us"] + ranks + release.host["gap_sequence_us"] * case.clients
            rows.append((ours - own * 1e-6, measured, case.clients, case.options["tp"] > 1))
            beside.append(case)
        device, wanted, sequences, several = np.array(rows).T
        best = min(grid(device, wanted, sequences, several, layered), key=lambda one: one[0])
        print(f"{version}: root mean square {best[0]:.1%}, gap {best[1]:.0f} us, {best[2]:.0f} us, {best[3]:.0f} us")
        for chip in (FIT, CHECK):
            found = checked(cases(version, chip), version)
            print(f"  {chip} as shipped: {len(found)} rows, mean {np.abs(found).mean():.1%}, bias {found.mean():+.1%}")


def grid(
    device: np.ndarray, wanted: np.ndarray, sequences: np.ndarray, several: np.ndarray, layered: bool
) -> Sequence[tuple[float, float, float, float]]:
    """Errors of gaps (us), of what several ranks or 80 layers add at least, and of each sequence's part."""
    found = []
    second = np.arange(10e3, 50e3, 1e3) if layered else np.arange(0.0, 4e3, 100.0)
    for gap, other, each in product(np.arange(0.0, 12e3, 500.0) if layered else np.arange(0.0, 4e3, 100.0), second,
                                    np.arange(0.0, 500.0, 10.0)):  # fmt: skip
        body = np.maximum(device, other * 1e-6) if layered else device + other * 1e-6 * several
        total = body + (gap + each * sequences) * 1e-6
        found.append((float(np.sqrt((np.log(total / wanted) ** 2).mean())), gap, other, each))
    return found


def checked(some: Sequence[Case], version: str) -> np.ndarray:
    """Relative errors of predictions as shipped."""
    found = []
    for case in some:
        try:
            found.append(predicted(case, version) / case.measured[SOURCES[version][1]] - 1)
        except GnomonError:
            continue
    return np.array(found)


if __name__ == "__main__":
    main()
