"""OPT: GPT-2's blocks under other names, two positions more than tokens, and perhaps a narrower embedding."""

from __future__ import annotations

from gnomon.load.families.base import decoder, head_dim_of, layer_count, uniform
from gnomon.load.fields import Fields
from gnomon.spec import AttentionMixer, DenseFfn, Linear, Model

OFFSET = 2
"""The first two rows of the table of positions stand for padding."""


def read(config: Fields, family: str) -> Model:
    hidden, heads, bias = config.whole("hidden_size"), config.whole("num_attention_heads"), _bias(config)
    mixer = AttentionMixer(heads=heads, kv_heads=heads, head_dim=head_dim_of(config), qkv_bias=bias, out_bias=bias)
    before = config.flag("do_layer_norm_before", True)
    affine = config.flag("layer_norm_elementwise_affine", True)
    width = config.whole("word_embed_proj_dim", hidden)
    narrow = width != hidden
    positions = config.whole("max_position_embeddings")
    ffn = DenseFfn(inner=config.whole("ffn_dim"), gated=False, bias=bias)
    return decoder(
        config,
        family,
        uniform(layer_count(config), mixer=mixer, ffn=ffn, norm_after=not before),
        max_context=positions,
        learned_positions=positions + OFFSET,
        norm_weight=affine,
        norm_bias=affine,
        centred_norms=True,
        final_norm=before and not config.flag("_remove_final_layer_norm", False),
        embedding_width=width if narrow else 0,
        stem=(Linear(name="widen", inputs=width, outputs=hidden),) if narrow else (),
        tail=(Linear(name="narrow", inputs=hidden, outputs=width),) if narrow else (),
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )


def _bias(config: Fields) -> bool:
    return config.flag("enable_bias", True)
