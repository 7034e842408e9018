"""GPT-2 and StarCoder: biases everywhere, learned positions, a feed-forward without a gate; the head is tied."""

from __future__ import annotations

from gnomon.load.families.base import decoder, layer_count, refuse, split, uniform
from gnomon.load.fields import Fields
from gnomon.spec import AttentionMixer, DenseFfn, Model


def read(config: Fields, family: str) -> Model:
    refuse(config, "add_cross_attention", "cross-attention")
    hidden, heads, positions = config.whole("n_embd"), config.whole("n_head"), config.whole("n_positions")
    one = family == "gpt_bigcode" and config.flag("multi_query", True)
    mixer = AttentionMixer(
        heads=heads, kv_heads=1 if one else heads, head_dim=split(config, "n_embd", heads), qkv_bias=True, out_bias=True
    )
    ffn = DenseFfn(inner=config.whole("n_inner", 4 * hidden), gated=False, bias=True)
    return decoder(
        config,
        family,
        uniform(layer_count(config, "n_layer"), mixer=mixer, ffn=ffn),
        hidden=hidden,
        max_context=positions,
        learned_positions=positions,
        norm_bias=True,
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )
