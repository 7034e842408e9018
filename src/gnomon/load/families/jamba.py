"""Jamba: attention in every eighth layer, state spaces in the others, experts in every second."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.errors import InputError
from gnomon.load.families.base import attention, decoder, dense, experts, layer_count
from gnomon.load.families.mamba import rank
from gnomon.load.fields import Fields
from gnomon.spec import Block, Mamba, Model


def read(config: Fields, family: str) -> Model:
    return decoder(config, family, _layers(config))


def _layers(config: Fields) -> Iterator[Block]:
    softmax = attention(config, rotary_dim=0)
    space = Mamba(
        inner=config.whole("mamba_expand", 2) * config.whole("hidden_size"),
        state=config.whole("mamba_d_state"),
        dt_rank=rank(config, "mamba_dt_rank"),
        conv=config.whole("mamba_d_conv", 4),
        conv_bias=config.flag("mamba_conv_bias", True),
        bias=config.flag("mamba_proj_bias", False),
        norms=True,
    )
    plain = dense(config)
    mixture = experts(config, "num_experts", "intermediate_size") if config.whole("num_experts") > 1 else plain
    attended, sparse = _places(config, "attn_layer"), _places(config, "expert_layer")
    for layer in range(layer_count(config)):
        mixer = softmax if layer % attended[0] == attended[1] else space
        yield Block(mixer=mixer, ffn=mixture if layer % sparse[0] == sparse[1] else plain, count=1)


def _places(config: Fields, what: str) -> tuple[int, int]:
    period, offset = config.whole(f"{what}_period"), config.whole(f"{what}_offset", least=0)
    if offset >= period:
        raise InputError(f"{offset} is not below the period of {period}", where=config.spot(f"{what}_offset"))
    return period, offset
