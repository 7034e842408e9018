"""State spaces: the first Mamba and the second."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.lowering.convolution import convolve
from gnomon.graph.lowering.linear import linear
from gnomon.graph.lowering.site import Site, all_reduce, stream
from gnomon.graph.mixer_ops import Mixing, Scan
from gnomon.graph.ops import Op
from gnomon.spec import Mamba, Mamba2

SCALAR = 2
"""Values of the stream's format that one fp32 number takes."""
MAMBA_CHUNK = 2048
"""Tokens that a thread block of the first Mamba's scan takes at once."""


def mamba(shape: Mamba, site: Site) -> Iterator[Op]:
    """The step and both state vectors are made of all channels, so ranks sum their parts of them."""
    count, inner = site.count, shape.inner // site.tp
    made = shape.dt_rank + 2 * shape.state
    yield from linear("mamba.in", "in", 2 * inner, site.hidden, site)
    yield from convolve("mamba", inner, shape.conv, site)
    yield from linear("mamba.step", "step", made, inner, site)
    yield from all_reduce("mamba.step_all_reduce", site, made)
    if shape.norms:
        yield stream("mamba.step_norm", made, 1, 1, count)
    yield from linear("mamba.step_up", "step_up", inner, shape.dt_rank, site)
    yield from scans("mamba", site, heads=inner, head_dim=1, state_dim=shape.state, groups=1, chunk=MAMBA_CHUNK)
    yield from linear("mamba.out", "out", site.hidden, inner, site)


def mamba2(shape: Mamba2, site: Site) -> Iterator[Op]:
    """Heads are cut, and groups with them; a single group is copied."""
    count, heads, groups = site.count, shape.heads // site.tp, max(1, shape.groups // site.tp)
    inner = heads * shape.head_dim
    mixed = inner + 2 * groups * shape.state
    yield from linear("mamba.in", "in", inner + mixed + heads, site.hidden, site)
    yield from convolve("mamba", mixed, shape.conv, site)
    yield from scans(
        "mamba2",
        site,
        heads=heads,
        head_dim=shape.head_dim,
        state_dim=shape.state,
        groups=groups,
        chunk=shape.chunk,
    )
    yield stream("mamba.gate", inner, 2, 1, count)
    if shape.norm and shape.groups == 1:
        # A norm over all channels: the ranks sum their squares.
        yield from all_reduce("mamba.norm_all_reduce", site, SCALAR)
    yield from linear("mamba.out", "out", site.hidden, inner, site)


def scans(
    mixer: Mixing, site: Site, *, heads: int, head_dim: int, state_dim: int, groups: int, chunk: int
) -> Iterator[Op]:
    for phase in ("prefill", "decode"):
        yield Scan(
            name=f"scan.{phase}",
            phase=phase,
            mixer=mixer,
            heads=heads,
            head_dim=head_dim,
            state_dim=state_dim,
            groups=groups,
            chunk=chunk,
            state_dtype=site.state_dtype,
            count=site.count,
        )
