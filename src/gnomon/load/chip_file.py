"""A chip of the user's own as a file to fill in: every figure with its unit, its range and what it is for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gnomon import catalog
from gnomon.catalog.book import squash
from gnomon.errors import InputError
from gnomon.load.chips import SCHEMA, chip_spellings, own_folder
from gnomon.load.fields import shown
from gnomon.load.plausible import nearest_like
from gnomon.spec import Chip
from gnomon.spec.chip import FORMATS

LONGEST_NAME = 64
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]*")


def check_name(name: str, replaces: bool, where: str = "NAME") -> str:
    """The shipped chip that a new one would stand in for, where it may; else nothing."""
    if not _PLAIN.fullmatch(name) or len(name) > LONGEST_NAME or not squash(name):
        hint = "Letters, digits, dots, dashes and spaces, as in my-chip-80GB."
        raise InputError(f"{shown(name)} cannot be a chip's name", where=where, hint=hint)
    found = catalog.find_chip(name)
    if found and not replaces:
        hint = "Choose another name, or add --replace to have yours in its place."
        raise InputError(f"'{name}' is already the name of {found}", where=where, hint=hint)
    taken = {squash(spelling): known for spelling, known in chip_spellings().items()}.get(squash(name))
    if taken and taken != found:
        hint = f"Edit its file in {own_folder()}, or choose another name."
        raise InputError(f"'{name}' is already a chip of your own", where=where, hint=hint)
    return found or ""


def file_of(name: str) -> Path:
    """Where a user's chip of that name is kept."""
    return own_folder() / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.yaml"


def template(name: str, like: Chip, replaced: str = "", on: str = "") -> str:
    """The text of a chip's file, filled with another chip's figures; `on` is what commands call it by."""
    return "\n".join([*_head(name, like, replaced, on or name), *_figures(like), *_links(like), *_last(like)]) + "\n"


def _head(name: str, like: Chip, replaced: str, on: str) -> Iterator[str]:
    yield f"# A chip of your own, for `--on {on}`. The figures are those of {like.name}: put yours in their place."
    yield f"# `gnomon chips show {on}` reads the file and says what is wrong with it."
    yield f"schema: {SCHEMA}"
    yield f"name: {_quoted(name)}"
    yield _line("aliases: []", "other names it answers to")
    if replaced:
        yield _line(f"replaces: {replaced}", "the shipped chip it stands in for")
    known = nearest_like(like)
    if known:
        yield _line(f"like: {_quoted(known)}", "the shipped chip it is a variant of, whose power limit it has")
    yield f"vendor: {_quoted(like.vendor)}"
    yield _line(
        f"architecture: {_quoted(like.architecture)}",
        "the donor profile is that of a measured chip of the same architecture, if any",
    )
    yield f"year: {like.year}"
    yield ""


def _figures(like: Chip) -> Iterator[str]:
    yield f"# Dense TFLOP/s, of the formats it has: {', '.join(FORMATS)}."
    yield f"rates_tflops: {_rates(like.rates_flops)}"
    yield "# The same with two of four weights zero, where the data sheet gives it. Nothing is priced by it."
    yield f"sparse_tflops: {_rates(like.sparse_flops)}"
    yield _line(f"memory: {_quoted(like.memory or 'HBM')}", "its kind, for the record")
    yield _line(f"memory_mib: {like.memory_bytes / 2**20:.0f}", "as the driver reports it, powers of 1024")
    yield _line(f"memory_gb_s: {_number(like.memory_bandwidth_bytes_s / 1e9)}", "powers of 1000")
    yield _line(f"l2_mib: {_number(like.l2_bytes / 2**20)}", "the last cache before memory")
    yield _line(f"processors: {like.sm_count}", "multiprocessors, compute units, cores")
    yield f"boost_mhz: {_number(like.boost_hz / 1e6)}"
    yield _line(f"tdp_w: {_number(like.tdp_w)}", "the power limit, which has to be that of `like`")
    yield f"idle_w: {_number(like.idle_w)}"
    yield _line(f"price_usd_h: {_number(like.price_usd_h)}", "one chip for an hour")
    yield ""


def _links(like: Chip) -> Iterator[str]:
    yield "# The machine it is bought in, which says what joins the chips, the network and the host. Known:"
    yield from _wrapped(catalog.node_names())
    yield f"node: {_quoted(like.node)}"
    rate, usual = like.scaleup.bandwidth_bytes_s, catalog.node(like.node).scaleup.bandwidth_bytes_s
    mark = "" if rate != usual else "# "
    yield _line(f"{mark}scaleup_gb_s: {_number(rate / 1e9)}", "one chip, one direction, where it differs")
    yield _line(f"# scaleup_size: {like.scaleup_size}", "chips of a node, where it differs")
    if like.bridge:
        bandwidth = _number(like.bridge.bandwidth_bytes_s / 1e9)
        yield f"bridge: {{link: {like.bridge.name}, gb_s: {bandwidth}, size: {like.bridge_size}}}"
    yield ""


def _last(like: Chip) -> Iterator[str]:
    yield _line(f"source: figures of {like.name}", "the data sheet")
    yield _line("date: undated", "when you read it")
    yield _line("confidence: estimated", "read, recalled, estimated or announced")
    yield _line("# sources:", "of single figures, where they differ")
    yield "#   memory_mib: nvidia-smi on our own machine"
    yield "#   idle_w: {source: measured for a minute, date: 2026-11, confidence: read}"


def _line(text: str, comment: str) -> str:
    return f"{text:<31} # {comment}"


def _rates(rates: Mapping[str, float]) -> str:
    return "{" + ", ".join(f"{dtype}: {_number(rate / 1e12)}" for dtype, rate in rates.items()) + "}"


def _number(value: float) -> str:
    """Without an exponent, which YAML would read as a text."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _quoted(text: str) -> str:
    """A text that YAML could take for something else stands in quotes."""
    return f'"{text}"' if not re.fullmatch(r"[A-Za-z][A-Za-z -]*", text) or text.lower() in _WORDS else text


_WORDS = frozenset(("yes", "no", "on", "off", "true", "false", "null", "y", "n"))


def _wrapped(names: tuple[str, ...], width: int = 112) -> Iterator[str]:
    line = ""
    for name in names:
        if len(line) + len(name) > width:
            yield f"# {line.rstrip()}"
            line = ""
        line += f"{name}, "
    yield f"# {line.rstrip(', ')}"
