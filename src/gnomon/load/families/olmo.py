"""OLMo 1 to 3: norms without weights first, then post-norms and norms over all heads of queries and keys."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.load.families.base import attention, decoder, dense, experts, layer_count, uniform, windows
from gnomon.load.fields import Fields
from gnomon.spec import Block, Model


def read(config: Fields, family: str) -> Model:
    if family == "olmo":
        bias = config.flag("attention_bias", False)
        mixer = attention(config, bias=bias)
        blocks = uniform(layer_count(config), mixer=mixer, ffn=dense(config))
        return decoder(config, family, blocks, norm_weight=False, centred_norms=True)
    return decoder(config, family, _layers(config, family))


def _layers(config: Fields, family: str) -> Iterator[Block]:
    bias, count = config.flag("attention_bias", False), layer_count(config)
    ffn = experts(config, "num_experts", "intermediate_size") if family == "olmoe" else dense(config)
    for window in windows(config, count, 4) if family == "olmo3" else [None] * count:
        mixer = attention(config, bias=bias, qk_norm=True, qk_norm_whole=True, window=window)
        yield Block(mixer=mixer, ffn=ffn, count=1, norm_after=family != "olmoe")
