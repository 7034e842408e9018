"""Rows gathered from the host's memory: read in place by the GPU, or collected by processors and copied."""

from __future__ import annotations

import numpy as np

from gnomon.cost.host_link import READ_SPREAD, SUSTAINED, host_bytes_s, read_bytes_s
from gnomon.cost.profile import Family
from gnomon.graph.ops import Shape
from gnomon.spec import Host, Provenance
from gnomon.spec.workload import Floats

IN_PLACE, COLLECTED = "host_rows", "host_gather"
COLUMNS = {IN_PLACE: ("rows", "row_bytes"), COLLECTED: ("rows", "row_bytes")}
OPTIONAL = {IN_PLACE: {"readers": 1.0, "unaligned": 0.0}, COLLECTED: {"readers": 1.0}}
KINDS = frozenset(COLUMNS)
LINE, SECTOR = 128.0, 32.0
"""Bytes of one request at most, and those that a request is a multiple of."""
PACKET = 20.0
"""Bytes of a PCIe completion beside its payload: a header of 12, framing and checks of 8."""
MOVES = 3
"""How often collecting a byte moves it through the host's memory: the row is read, the line of the buffer is fetched to
be written, and it is written."""


def seconds(kind: str, shape: Shape, host: Host) -> Floats:
    """Seconds until each of `readers` has its rows; all share the host's memory, and neighbours their link."""
    found = _in_place if kind == IN_PLACE else _collected
    rows, size, readers = np.broadcast_arrays(shape["rows"], shape["row_bytes"], shape["readers"])
    unaligned = np.broadcast_to(shape.get("unaligned", np.zeros(1)), rows.shape)
    given = np.stack([rows, size, readers, unaligned], axis=-1)
    return np.asarray([found(host, *one) for one in given.reshape(-1, 4).tolist()]).reshape(rows.shape)


def _in_place(host: Host, rows: float, size: float, readers: float, unaligned: float) -> float:
    """A warp reads 128 bytes of a row at a time. Where rows do not begin on a line, each such read is two requests,
    unless threads are shifted so that reads do; sectors at the ends of a row are read in full."""
    whole = size % LINE == 0
    sectors = size if size % SECTOR == 0 else size + SECTOR - 4
    lines = size / LINE if whole else (size + LINE - 4) / LINE
    requests = lines if whole or not unaligned else 2 * size / LINE
    full = LINE / (LINE + PACKET)
    return rows * (sectors + PACKET * max(requests, 1.0)) * full / read_bytes_s(host, int(readers))


def _collected(host: Host, rows: float, size: float, readers: float, _: float) -> float:
    """Collected into a pinned buffer by all cores, then copied: one after the other, as a loop of training does it."""
    moved = rows * size
    collecting = MOVES * moved * readers / (SUSTAINED * host.memory_bandwidth_bytes_s)
    return collecting + moved / host_bytes_s(host, int(readers))


def family(host: Host) -> Family:
    """How well these times are known: as those of GEMMs that read the host's memory, whose link they rest on."""
    return Family(
        coefficients={},
        spread=READ_SPREAD,
        shared=READ_SPREAD,
        provenance=Provenance.FORMULA,
        source=f"{host.link.name} and memory of {host.name}" if host.name else host.link.name,
    )
