"""Fits published collectives: `python -m tools.collectives` writes what ships.

A fit is checked on operators and rank counts it has not seen, or on octaves of sizes where there are too few of them;
tokens sent to experts on whole models.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tools.collective_tables import Collectives, Exchanges, Group, collectives, exchanges, pcie_tables
from tools.node_tables import node_exchanges, small_messages
from tools.pcie_serving import served

from gnomon.calibrate.fit import FamilyFit, spread_of
from gnomon.calibrate.least_squares import fit
from gnomon.calibrate.truth import folder as truth_folder
from gnomon.cost import collective, experts, nccl, token_once
from gnomon.cost.link_fits import FILE, FIRST, SCALE, SCHEMA, LinkFit
from gnomon.spec import Link
from gnomon.spec.cluster import ACROSS_SOCKETS, BETWEEN_BRIDGES
from gnomon.spec.workload import Floats

DATE = "2026-11-15"
NCCL = {
    "NVLink3": ("A100-SXM-80GB", "nccl/"),
    "NVLink4": ("H100-SXM-80GB", "nccl/"),
    "NVLink5": ("B200-SXM-180GB", "nccl/"),
    "PCIe 3.0 x16": ("V100-PCIE-16GB", "nccl-tests"),
}
"""What stands for a link: a chip and the libraries that ran on it."""
VLLM = {
    "NVLink3": ("A100-SXM-80GB", "vllm/0.14.0"),
    "NVLink4": ("H100-SXM-80GB", "vllm/0.24.0"),
    "NVLink5": ("B200-SXM-180GB", "vllm/0.24.0"),
}
TRTLLM = {
    "NVLink4": ("H100-SXM-80GB", "trtllm/1.3.0rc20"),
    "NVLink5": ("B200-SXM-180GB", "trtllm/1.3.0rc20"),
}
EXPERTS = {"NVLink4": "H100-SXM-80GB", "NVLink5": "B200-SXM-180GB"}
DEEPEP = "deepep_normal sglang/0.5.12 normal"
SWITCHED = ("NVLink4", "NVLink5")
"""Links whose switch adds up."""
FOLDS = 5
LEAST_GROUPS = 6
"""Operators and rank counts that are needed to set whole ones aside."""
LAST, FINE = 29, 8
"""The octave at which steps end, and the parts of an octave in which formulas are looked at."""
MOST_STEP, SAFE, LEAST_OCTAVES = 0.35, 0.9, 6
USUAL, EACH = "nccl, default", 10
"""Settings of NCCL that an engine leaves as they are, and how many rows of a long table one stands for."""
SENT_BY = "H100-SXM-80GB, deepep_normal sglang/0.5.6.post2, aiconfigurator-0.12.0"
SMALL_BY = "A100, A40 and H100, nccl (torch), vidur; H20 and GB10, measurements/published/two_nodes.csv"
FULL_RATE = (2, 4)
"""Nodes whose adapters all reach each other at full rate: on eight, the fabric of the published table carries half."""
LOCAL = 20.0
"""A rank's own copies against a slot's bandwidth: its memory is so much faster that they do not show."""
LEAST_S, LEAST_ROWS = 20e-6, 100
"""What is counted of a table, and how much of it there must be to speak of."""

Ranges = Mapping[str, tuple[float, float, float]]
Labels = np.ndarray[Any, Any]


def _fold(labels: Sequence[object]) -> Labels:
    return np.array([zlib.crc32(repr(label).encode()) % FOLDS for label in labels])


def _octave(sizes: Floats) -> Labels:
    """Every fifth octave goes to the same fold: what is set aside lies between or beyond what is seen."""
    return np.floor(np.log2(sizes)).astype(np.int64) % FOLDS


def fit_nccl(tables: Iterable[Collectives]) -> FamilyFit:
    """NCCL's figures from one table or several of the same link."""
    tables = list(tables)
    link, groups = tables[0].link, [group for table in tables for group in table.groups if group.seconds.size]
    kinds = {(group.op, group.ranks) for group in groups}
    if len(kinds) >= LEAST_GROUPS:
        fold = _fold([(group.op, group.ranks) for group in groups for _ in group.payload])
    else:
        fold = _octave(np.concatenate([group.payload for group in groups]))
    summed = any(group.op == "all_reduce" and group.ranks == 8 and not group.plain for group in groups)
    ranges = nccl.RANGES | (nccl.SWITCH if summed and link.name in SWITCHED else {})
    return _fitted("nccl", groups, ranges, fold, partial(_by_nccl, link))


def fit_pcie(tables: Iterable[Collectives], ring: float | None = None) -> FamilyFit:
    """NCCL's figures on cards of any generation, each at its own link's bandwidth; machines count alike. Every other
    octave is set aside. With a known share `ring` of the link, the rest of a byte's time is that of host memory."""
    placed = [(table.link, group) for table in tables for group in table.groups if group.seconds.size]
    ranges = dict(nccl.RANGES) if ring is None else nccl.RANGES | nccl.STAGED | {"ring": (ring, ring, ring)}
    ranges["local"] = (LOCAL, LOCAL, LOCAL)
    took = np.concatenate([group.seconds for _, group in placed])
    fold = _nearest(np.concatenate([group.payload for _, group in placed])) % 2
    counts = np.concatenate([np.full(group.seconds.size, group.seconds.size) for _, group in placed])

    def seconds(c: Mapping[str, float]) -> Floats:
        return np.concatenate([_by_nccl(link, group, c) for link, group in placed])

    return checked("nccl", ranges, fold, took, seconds, np.sqrt(np.mean(counts) / counts))


def _by_nccl(link: Link, group: Group, c: Mapping[str, float]) -> Floats:
    without = {"switch": 0.0} if group.plain else {}
    return nccl.by(nccl.figures({**c, **without}), group.op, group.payload, group.ranks, link)


def fit_vllm(tables: Iterable[Collectives]) -> FamilyFit:
    """An engine's own all-reduces, up to the size that it leaves to NCCL."""
    tables = list(tables)
    link, limit = tables[0].link, collective.LIMITS[tables[0].link.name]
    groups = [_below(group, limit) for table in tables for group in table.groups]
    fold = _octave(np.concatenate([group.payload for group in groups]))

    def seconds(group: Group, c: Mapping[str, float]) -> Floats:
        return collective.own_sum(collective.shots(c, limit), group.payload, group.ranks, link)

    return _fitted("vllm", groups, collective.SHOTS, fold, seconds)


def _below(group: Group, limit: float) -> Group:
    kept = group.payload <= limit
    return Group(
        op=group.op, ranks=group.ranks, plain=group.plain, payload=group.payload[kept], seconds=group.seconds[kept]
    )


def _fitted(
    library: str,
    groups: Sequence[Group],
    ranges: Ranges,
    fold: Labels,
    seconds: Callable[[Group, Mapping[str, float]], Floats],
) -> FamilyFit:
    took = np.concatenate([group.seconds for group in groups])
    return checked(library, ranges, fold, took, lambda c: np.concatenate([seconds(group, c) for group in groups]))


def fit_exchange(table: Exchanges) -> FamilyFit:
    """Tokens sent to experts: whole models set aside, or octaves of tokens where there is only one."""
    sizes = list(zip(*(table.columns[name] for name in ("hidden", "topk", "experts")), strict=True))
    fold = _fold(sizes) if len(set(sizes)) > FOLDS else _octave(table.columns["tokens"])
    link = table.chip.scaleup
    return checked(
        table.op,
        experts.COEFFICIENTS,
        fold,
        table.seconds,
        lambda c: experts.seconds(table.columns, table.chip, link, c),
    )


def checked(
    kind: str, ranges: Ranges, fold: Labels, took: Floats, seconds: Callable[[Mapping[str, float]], Floats],
    weight: Floats | None = None,
) -> FamilyFit:  # fmt: skip
    """Fitted to all rows, its errors those of fits without each fold; `weight` is how much a row counts."""
    counted = np.ones(took.size) if weight is None else weight

    def fitted(seen: Labels) -> dict[str, float]:
        return fit(lambda c: (counted * np.log(seconds(c) / took))[seen], ranges)

    errors = np.zeros(took.size)
    for part in np.unique(fold):
        aside = fold == part
        if not aside.all():
            errors[aside] = np.log(seconds(fitted(~aside)) / took)[aside]
    everywhere = np.ones(took.size, bool)
    return FamilyFit(
        kind=kind,
        dtype="",
        coefficients=fitted(everywhere),
        residual=None,
        errors=errors,
        measured_s=took,
        fold=fold,
    )


def shipped(folder: Path) -> dict[str, Any]:
    """The content of the file that ships."""
    tables, sent = collectives(folder), exchanges(folder)
    fits: dict[str, dict[str, Any]] = {name: {} for name in ("nccl", "vllm", "trtllm")}
    fits |= {experts.DISPATCH: {}, experts.COMBINE: {}}
    for library, links, make in (("nccl", NCCL, fit_nccl), ("vllm", VLLM, fit_vllm), ("trtllm", TRTLLM, fit_vllm)):
        for link, (chip, ran) in links.items():
            of = [table for table in tables if table.chip == chip and table.library.startswith(ran)]
            entry = _entry(make(of), f"{chip}, {_names(table.library for table in of)}, {_by(of)}")
            fits[library][link] = _with_steps(of, entry) if library == "nccl" else entry
    fits["nccl"] |= pcie_fits(tables, served(folder))
    fits[token_once.LIBRARY] = {
        token_once.FIT: _entry(across_nodes(folder), "H100-SXM-80GB, DeepEP, aiconfigurator-0.12.0")
    }
    fits[nccl.NETWORK] = {nccl.TWO_NODES: _entry(small_over_nodes(folder), "A100, A40 and H100, nccl (torch), vidur")}
    for link, chip in EXPERTS.items():
        for table in sent:
            if table.chip.name == chip and table.library == DEEPEP and table.op in fits:
                fits[table.op][link] = _entry(fit_exchange(table), f"{chip}, {DEEPEP}, aiconfigurator-0.12.0")
    return {"schema": SCHEMA, "date": DATE, "fits": fits, "tables": list(_spoken_of(folder))}


def pcie_fits(tables: Iterable[Collectives], beside: Iterable[Collectives] = ()) -> dict[str, Any]:
    """Cards without NVLink: between pairs of a bridge, of one processor, and across two. The first gives the share of
    the link that cards reach which read each other's memory."""
    paired = [_thinned(table) for table in tables if table.link.name.endswith(BETWEEN_BRIDGES)]
    bridges = fit_pcie(paired)
    found = {nccl.PCIE + BETWEEN_BRIDGES: _entry(bridges, f"{_names(t.chip for t in paired)}, {_by(paired)}")}
    usual = [*(table for table in pcie_tables() if table.library == USUAL), *beside]
    usual = [table for table in usual if not table.link.name.startswith(nccl.OLD_PCIE)]
    for way in ("", ACROSS_SOCKETS):
        of = [table for table in usual if table.link.name.endswith(ACROSS_SOCKETS) == bool(way)]
        entry = _entry(fit_pcie(of, bridges.coefficients["ring"]), f"{_names(t.chip for t in of)}, {_by(of)}")
        found[nccl.PCIE + way] = entry
    return found


def _thinned(table: Collectives) -> Collectives:
    """Every so many rows of a long table, which are enough for eight figures."""
    return replace(
        table,
        groups=tuple(replace(g, payload=g.payload[::EACH], seconds=g.seconds[::EACH]) for g in table.groups),
    )


def across_nodes(folder: Path) -> FamilyFit:
    """Tokens sent to a node once, on two and on four nodes; every other number of tokens is set aside."""
    sent = [one for one in node_exchanges(folder) if one.nodes in FULL_RATE]
    took = np.array([one.seconds for one in sent])
    fold = _nearest(np.array([one.tokens for one in sent])) % 2
    ranges = token_once.COEFFICIENTS
    return checked(token_once.LIBRARY, ranges, fold, took, lambda c: np.array([one.by(dict(c)) for one in sent]))


def small_over_nodes(folder: Path) -> FamilyFit:
    """What a network adds to the smallest messages; machines count alike, and each is set aside in turn."""
    sent = small_messages(folder)

    def seconds(c: Mapping[str, float]) -> Floats:
        added = [c["send_us" if one.op == "send_recv" else "collective_us"] for one in sent]
        return np.array([one.base_s for one in sent]) + 1e-6 * np.array(added)

    machines, fold = np.unique([one.machine for one in sent], return_inverse=True)
    counts = np.bincount(fold, minlength=machines.size)[fold]
    took = np.array([one.seconds for one in sent])
    return checked(nccl.NETWORK, nccl.NETWORK_US, fold, took, seconds, np.sqrt(np.mean(counts) / counts))


def steps(
    tables: Sequence[Collectives], c: Mapping[str, float], seen: Callable[[Labels], Labels] | None = None
) -> dict[tuple[str, int], Floats]:
    """What NCCL's formula leaves over at each octave, by operator and ranks; a larger message is no faster.

    `seen` says which octaves count.
    """
    left: dict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    link = tables[0].link
    for group in (group for table in tables for group in table.groups if not group.plain):
        octaves, errors = _nearest(group.payload), np.log(group.seconds / _by_nccl(link, group, c))
        for octave, error in zip(octaves, errors, strict=True):
            if seen is None or seen(octave):
                left[group.op, group.ranks][int(octave)].append(float(error))
    return {key: _level(key, values, c, link) for key, values in sorted(left.items()) if len(values) >= LEAST_OCTAVES}


def _nearest(payload: Floats) -> Labels:
    return np.round(np.log2(payload)).astype(np.int64)


def _level(key: tuple[str, int], left: Mapping[int, Sequence[float]], c: Mapping[str, float], link: Link) -> Floats:
    """Medians at all octaves, bounded; none falls by more than its formula rises, were the link twice as fast."""
    octaves = sorted(left)
    medians = [float(np.median(left[octave])) for octave in octaves]
    values = np.clip(np.interp(np.arange(FIRST, LAST + 1), octaves, medians), -MOST_STEP, MOST_STEP)
    fine = 2.0 ** np.linspace(FIRST, LAST, (LAST - FIRST) * FINE + 1)
    quick = replace(link, bandwidth_bytes_s=2 * link.bandwidth_bytes_s)
    formula = np.log(nccl.by(nccl.figures(c), key[0], fine, key[1], quick))
    falls = np.floor(np.diff(formula).reshape(-1, FINE).min(axis=1) * FINE * SAFE * SCALE)
    kept = np.round(values * SCALE)
    for i, fall in enumerate(falls):
        kept[i + 1] = max(kept[i + 1], kept[i] - fall)
    return np.asarray(kept / SCALE)


def _between(tables: Sequence[Collectives], c: Mapping[str, float]) -> Floats:
    """Errors with steps on every other octave, which they had not seen."""
    errors, link = [], tables[0].link
    for odd in (0, 1):
        made = steps(tables, c, lambda octave, odd=odd: octave % 2 != odd)  # type: ignore[misc]
        found = LinkFit(coefficients=c, spread=0.0, shared=0.0, source="", steps=made)
        for group in (group for table in tables for group in table.groups if (group.op, group.ranks) in made):
            if not group.plain:
                priced = _by_nccl(link, group, c) * found.factor(group.op, group.payload, group.ranks)
                errors.append(np.log(priced / group.seconds)[_nearest(group.payload) % 2 == odd])
    return np.concatenate(errors)


def _with_steps(tables: Sequence[Collectives], entry: dict[str, Any]) -> dict[str, Any]:
    c = entry["coefficients"]
    words = {
        f"{op} {ranks}": " ".join(str(round(value * SCALE)) for value in values.tolist())
        for (op, ranks), values in steps(tables, c).items()
    }
    errors = _between(tables, c)
    mean = round(float(np.abs(np.expm1(errors)).mean()), 4)
    return entry | {"steps": words, "between": round(spread_of(errors), 4), "between_mean": mean}


def _entry(found: FamilyFit, source: str) -> dict[str, Any]:
    return found.to_dict() | {"source": f"published: {source}"}


def _names(words: Iterable[str]) -> str:
    return " and ".join(sorted(set(words)))


def _by(tables: Iterable[Collectives]) -> str:
    return _names(table.source for table in tables)


def _spoken_of(folder: Path) -> Iterable[dict[str, Any]]:
    """The error of each table's own fit on what it had not seen, above 20 us."""
    for table in collectives(folder):
        if table.rows >= LEAST_ROWS:
            yield from _said(table.name, fit_nccl([table]), table.left_out)
    for sent in exchanges(folder):
        yield from _said(sent.name, fit_exchange(sent), 0)


def _said(name: str, found: FamilyFit, left_out: int) -> Iterable[dict[str, Any]]:
    counted = found.measured_s > LEAST_S
    if counted.sum() >= LEAST_ROWS:
        error = np.abs(np.expm1(found.errors[counted]))
        yield {
            "table": name,
            "rows": int(counted.sum()),
            "left_out": left_out,
            "mean": round(float(error.mean()), 4),
            "in_band": round(float(found.inside[counted].mean()), 3),
        }


def main() -> None:
    """Write the file, or leave it as it is where the published tables are missing."""
    folder = truth_folder()
    if folder is None:
        print(f"{FILE.name} stays as it is: the published tables are not here; GNOMON_TRUTH can name their folder")
        return
    import yaml

    FILE.write_text(yaml.safe_dump(shipped(folder), sort_keys=False, width=116, default_flow_style=None))
    print(f"wrote {FILE.name}")


if __name__ == "__main__":
    main()
