"""What attention over one rank's heads works on."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.graph.windows import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """What one rank's core attention works on."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: Window | None = None
    causal: bool = True
    sinks: bool = False
    capped: bool = False
