"""GPT-NeoX and Pythia: both halves side by side with a norm each, part of a head turns."""

from __future__ import annotations

from gnomon.load.families.base import decoder, dense, head_dim_of, layer_count, uniform
from gnomon.load.fields import Fields
from gnomon.spec import AttentionMixer, Model


def read(config: Fields, family: str) -> Model:
    heads, bias = config.whole("num_attention_heads"), config.flag("attention_bias", True)
    head_dim = head_dim_of(config)
    mixer = AttentionMixer(
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        qkv_bias=bias,
        out_bias=bias,
        rotary_dim=int(head_dim * config.number("rotary_pct", 0.25)),
    )
    blocks = uniform(
        layer_count(config),
        mixer=mixer,
        ffn=dense(config, gated=False, bias=True),
        parallel=config.flag("use_parallel_residual", True),
    )
    return decoder(config, family, blocks, norm_bias=True)
