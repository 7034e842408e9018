"""ModernBERT: a gated encoder with rotary positions, windows in two layers of three."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.load.families.base import decoder, dense, head_bias, head_dim_of, layer_count, layer_kinds, multi_head
from gnomon.load.fields import Fields
from gnomon.spec import Block, Linear, Model, Norm, Part


def read(config: Fields, family: str) -> Model:
    hidden, bias = config.whole("hidden_size"), config.flag("norm_bias", False)
    tokens = config.list("architectures") != ["ModernBertModel"]
    return decoder(
        config,
        family,
        _layers(config),
        norm_bias=bias,
        centred_norms=True,
        stem=(Norm(name="norm", width=hidden, bias=bias),),
        tail=_token_head(config, hidden, bias) if tokens else (),
        has_head=tokens,
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )


def _layers(config: Fields) -> Iterator[Block]:
    bias, head_dim = config.flag("attention_bias", False), head_dim_of(config)
    ffn = dense(config, bias=config.flag("mlp_bias", False))
    for layer, window in enumerate(_windows(config)):
        mixer = multi_head(config, head_dim=head_dim, bias=bias, window=window, causal=False)
        # The embedding is normed, so the first layer's attention reads it as it is.
        yield Block(mixer=mixer, ffn=ffn, count=1, norms=2 if layer else 1)


def _windows(config: Fields) -> list[int | None]:
    count, window = layer_count(config), config.whole("local_attention", 128)
    kinds = layer_kinds(config, count, ("sliding_attention", "full_attention"))
    every = config.whole("global_attn_every_n_layers", 3)
    local = [kind == "sliding_attention" for kind in kinds] if kinds else [bool(i % every) for i in range(count)]
    return [window if near else None for near in local]


def _token_head(config: Fields, hidden: int, bias: bool) -> tuple[Part, ...]:
    square = Linear(name="transform", inputs=hidden, outputs=hidden, bias=config.flag("classifier_bias", False))
    norm = Norm(name="head_norm", width=hidden, bias=bias)
    return square, norm, *(head_bias(config) if config.flag("decoder_bias", True) else ())
