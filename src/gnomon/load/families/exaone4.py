"""EXAONE 4: norms behind the halves, windows in three layers of four, and no positions in the fourth."""

from __future__ import annotations

from gnomon.load.families.base import attention, decoder, dense, head_dim_of, layer_count, windows
from gnomon.load.fields import Fields
from gnomon.spec import Block, Model


def read(config: Fields, family: str) -> Model:
    count, ffn, head_dim = layer_count(config), dense(config), head_dim_of(config)
    found = windows(config, count, _period(config)) if config.has("sliding_window") else [None] * count
    hybrid = config.has("sliding_window")
    blocks = []
    for window in found:
        turned = window is not None or not hybrid
        mixer = attention(config, head_dim=head_dim, qk_norm=True, window=window, rotary_dim=None if turned else 0)
        blocks.append(Block(mixer=mixer, ffn=ffn, count=1, norm_after=True))
    return decoder(config, family, blocks)


def _period(config: Fields) -> int:
    """Every so many layers; the first files wrote a word such as LLLG."""
    pattern = config.raw("sliding_window_pattern", 4)
    return len(pattern) if isinstance(pattern, str) and pattern else config.whole("sliding_window_pattern", 4)
