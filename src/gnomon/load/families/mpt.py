"""MPT: no biases at all, layer norms without one too, distances in the place of positions."""

from __future__ import annotations

from gnomon.load.families.base import decoder, layer_count, only, refuse, split, uniform
from gnomon.load.fields import Fields
from gnomon.spec import AttentionMixer, DenseFfn, Model


def read(config: Fields, family: str) -> Model:
    inner = config.inner("attn_config")
    only(inner, "attn_type", ("multihead_attention",))
    refuse(inner, "qk_ln", "a norm of queries and keys")
    hidden, heads, alibi = config.whole("d_model"), config.whole("n_heads"), inner.flag("alibi", True)
    mixer = AttentionMixer(
        heads=heads, kv_heads=heads, head_dim=split(config, "d_model", heads), alibi=alibi, rotary_dim=0
    )
    ratio = config.whole("expansion_ratio", 4)
    return decoder(
        config,
        family,
        uniform(layer_count(config, "n_layers"), mixer=mixer, ffn=DenseFfn(inner=ratio * hidden, gated=False)),
        hidden=hidden,
        centred_norms=True,
        max_context=config.whole("max_seq_len"),
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )
