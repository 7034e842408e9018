"""GPT-J: both halves read one norm; only the feed-forward and the head have biases."""

from __future__ import annotations

from gnomon.load.families.base import decoder, layer_count, split, uniform
from gnomon.load.fields import Fields
from gnomon.spec import AttentionMixer, DenseFfn, Embedding, Model


def read(config: Fields, family: str) -> Model:
    hidden, heads = config.whole("n_embd"), config.whole("n_head")
    head_dim = split(config, "n_embd", heads)
    mixer = AttentionMixer(
        heads=heads, kv_heads=heads, head_dim=head_dim, rotary_dim=min(head_dim, config.whole("rotary_dim", head_dim))
    )
    ffn = DenseFfn(inner=config.whole("n_inner", 4 * hidden), gated=False, bias=True)
    return decoder(
        config,
        family,
        uniform(layer_count(config, "n_layer"), mixer=mixer, ffn=ffn, parallel=True, norms=1),
        hidden=hidden,
        norm_bias=True,
        max_context=config.whole("n_positions"),
        tail=(Embedding(name="head_bias", width=config.whole("vocab_size")),),
    )
