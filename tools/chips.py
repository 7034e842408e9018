"""Profiles of chips from operator tables that others published: `python -m tools.chips`.

A serving engine's kernels on a chip make its plain profile; those of other frameworks have files of their own. The
H200 and the A100 have plain profiles of their own making (`tools.ship`, `tools.published`). A family of experts is of
the kernel that a default install of vLLM runs (`gnomon.engines.vllm.kernels`); other kernels have families of their
own. `python -m tools.chips H100 B200` fits the plain profiles of these chips alone.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tools.published import DATE, power
from tools.ship import PROFILES, write

from gnomon import catalog
from gnomon.calibrate import truth, usable
from gnomon.calibrate.fit import FamilyFit, fit_family
from gnomon.calibrate.truth import Table
from gnomon.cost.profile import PROMPT_SPREAD, SERVED_SPREAD, SYSTEM_SPREAD
from gnomon.cost.transfer import transferred_power
from gnomon.engines.vllm.kernels import MARLIN, TRITON, UNTUNED, experts_kernel, published_kernel
from gnomon.errors import GnomonError
from gnomon.graph.dtypes import KERNEL
from gnomon.load.chips import chip as find_chip
from gnomon.load.profile_file import SCHEMA
from gnomon.load.profiles import profile_of
from gnomon.runner import ordered
from gnomon.spec import Chip

PLAIN = "vllm"
"""Whose kernels a plain profile has."""
MADE_OTHERWISE = ("A100-SXM-80GB", "H200-SXM-141GB")
GONE = ("vllm-v0",)
"""Engines that nobody runs any more: their tables are tested, not shipped."""
MOST_ROWS = 3000
SLOWED_DOWN = {("GB200", "gemm", "bf16"): "sglang"}
"""Tables of vLLM's in whose place another framework's stands, which calls the same library. vLLM's GB200 had GEMMs of
more than a millisecond in bf16 at 1,090 TFLOP/s at the median, SGLang's at 1,430 and TensorRT-LLM's at 1,550, all by
cuBLAS, and a B200 has 1,500 to 1,600: its node ran below its clock."""
TRTLLM_GEN, TRITON_EXPERTS = "flashinfer_trtllm", "fused_moe_triton"
"""In the names of published kernels of experts: TensorRT-LLM's own for Blackwell, which FlashInfer brings to SGLang and
vLLM, and Triton's."""
LENT_TO, LENT_KERNEL, LENT = "trtllm", "trtllm", ("fp8-blocks", "nvfp4")
"""TensorRT-LLM's tables have its CUTLASS and DeepGEMM experts; those of `moe_config.backend: TRTLLM` are SGLang's."""
FOUR_BITS = ("moe.int4-weights", f"moe.mxfp4-weights{KERNEL}{MARLIN}")


def newest(folder: Path) -> dict[tuple[str, str], dict[str, tuple[Table, Chip]]]:
    """By chip and framework, then by family: the table of the newest version, and of that the longest."""
    found: dict[tuple[str, str], dict[str, tuple[Table, Chip]]] = defaultdict(dict)
    for table, chip in usable.published(folder, _told, MOST_ROWS, short=True):
        family = _family(table, chip)
        whose = [(framework, family) for framework in _frameworks(table) if family]
        for framework, family in (*whose, *_lent(table)):
            kept = found[chip.name, framework]
            if family not in kept or _age(table) > _age(kept[family][0]):
                kept[family] = table, chip
    for kept in found.values():
        _pool(kept)
    return dict(found)


def _pool(kept: dict[str, tuple[Table, Chip]]) -> None:
    """Marlin reads four bits of either kind with one kernel, and each of its tables is of one model: what its experts
    and what their number takes is known from both together."""
    tables = [kept[family][0] for family in FOUR_BITS if family in kept]
    if len(tables) < len(FOUR_BITS):
        return
    columns = {name: np.concatenate([table.columns[name] for table in tables]) for name in tables[0].columns}
    for family, table in zip(FOUR_BITS, tables, strict=True):
        kept[family] = replace(table, columns=columns), kept[family][1]


def _frameworks(table: Table) -> tuple[str, ...]:
    """Whose profiles a table is fitted for."""
    instead = SLOWED_DOWN.get((table.chip, table.kind, table.dtype))
    if table.framework in GONE or (instead and table.framework == PLAIN):
        return ()
    return (table.framework, PLAIN) if table.framework == instead else (table.framework,)


def _family(table: Table, chip: Chip) -> str:
    """The family that a table is fitted for; empty where it is for none."""
    plain = f"{table.kind}.{table.dtype}"
    if table.framework == "sglang" and TRITON_EXPERTS in table.variant and chip.architecture == "Blackwell":
        return f"{plain}{KERNEL}{TRITON}"
    if table.kind != "moe" or table.framework != PLAIN:
        return plain
    kernel = published_kernel(table.variant)
    if (kernel, table.dtype, chip.architecture) in UNTUNED:
        _told(table.name, "its kernels are not tuned, as those of a server are", table.rows)
        return ""
    return plain if kernel in ("", experts_kernel(table.dtype, chip)) else f"{plain}{KERNEL}{kernel}"


def _lent(table: Table) -> Iterator[tuple[str, str]]:
    """The framework, and its family, that another's table is fitted for too."""
    if (table.kind, table.framework) == ("moe", "sglang") and TRTLLM_GEN in table.variant and table.dtype in LENT:
        yield LENT_TO, f"{table.kind}.{table.dtype}{KERNEL}{LENT_KERNEL}"


def _told(name: str, reason: str, rows: int) -> None:
    print(f"left out {name} ({rows} rows): {reason}", file=sys.stderr)


def _age(table: Table) -> tuple[Any, ...]:
    """Plain attention before that of latents, whose prompts run other kernels; then the newest, then the longest."""
    numbers = [int(part) if part.isdigit() else -1 for part in table.version.replace("rc", ".").split(".")]
    return "mla" not in table.variant, tuple(numbers), table.rows


def profile(framework: str, tables: Mapping[str, tuple[Table, Chip]]) -> dict[str, Any] | None:
    """The content of one profile file; None where no table could be fitted."""
    families, chip, versions = {}, next(iter(tables.values()))[1], {}
    for family, (table, _) in sorted(tables.items()):
        try:
            fitted = fit_family(table.kind, table.dtype, table.columns, chip)
        except (GnomonError, KeyError) as problem:
            _told(table.name, f"refused: {problem}", table.rows)
            continue
        families[family] = fitted.to_dict() | {"source": f"published by {_source(table)}"}
        versions[f"{table.source}, {framework}"] = table.version
        print(_line(table, fitted), file=sys.stderr)
    if not families:
        return None
    whose = {} if framework == PLAIN and chip.name not in MADE_OTHERWISE else {"framework": framework}
    return {
        "schema": SCHEMA,
        "chip": chip.name,
        **whose,
        "date": DATE,
        "table": "published operator tables",
        "versions": versions,
        **SPREADS.get(framework, {"system_spread": SERVED_SPREAD, "prompt_spread": PROMPT_SPREAD}),
        "notes": [LENT_NOTE if chip.architecture in LIKE_MEASURED else POWER_NOTE],
        "families": families,
        "power": watts(chip),
    }


SPREADS = {"torch": {"system_spread": SYSTEM_SPREAD}}
"""Of frameworks that train; all others serve."""
MEASURED, LIKE_MEASURED = "H200-SXM-141GB", ("Hopper", "Blackwell")
"""The chip whose power and clock were measured, and whose law is taken to be theirs."""
LENT_NOTE = "Power, and the clock under its limit, are the H200's as measured, by the limits and rates of data sheets."
POWER_NOTE = (
    "Power is an estimate: a large GEMM takes the whole limit, with the H200's measured joules a byte and its share "
    "of the limit for a busy chip that does nothing."
)


def watts(chip: Chip) -> dict[str, float]:
    """Tables of operators are of short bursts: what a board draws, and how its clock gives way, is not in them."""
    donor = profile_of(MEASURED)
    if chip.architecture not in LIKE_MEASURED or donor is None:
        return power(chip)
    figures = transferred_power(chip, catalog.chip(MEASURED), donor.power)
    return {name: float(f"{value:.4g}") for name, value in figures.items()}


def _source(table: Table) -> str:
    name = {"aiconfigurator-0.12.0": "AIConfigurator 0.12"}.get(table.source, table.source)
    return f"{name}, {table.framework} {table.version}".strip()


def _line(table: Table, fitted: FamilyFit) -> str:
    held = fitted.to_dict()["held_out"]
    return f"{table.name}: {table.rows} rows, held-out mean {held['mean']:.1%}, in band {held['in_band']:.0%}"


def main() -> None:
    """Write the profiles, or say why they stay as they are."""
    folder = truth.folder()
    if folder is None:
        print("kept the published profiles: their tables are not here; GNOMON_TRUTH can name their folder")
        return
    only = {(find_chip(name).name, PLAIN) for name in sys.argv[1:]}
    todo = [(key, tables) for key, tables in sorted(newest(folder).items()) if not only or key in only]
    made = ordered(_profile_of, todo, jobs=os.cpu_count() or 1)
    for ((chip, framework), _), found in zip(todo, made, strict=True):
        if found is not None:
            whose = f".{framework}" if "framework" in found else ""
            write(PROFILES / f"{chip.lower()}{whose}.yaml", found)


def _profile_of(one: tuple[tuple[str, str], Mapping[str, tuple[Table, Chip]]]) -> dict[str, Any] | None:
    (_, framework), tables = one
    return profile(framework, tables)


if __name__ == "__main__":
    main()
