"""BERT and RoBERTa: encoders that norm behind each half, with token types and learned positions."""

from __future__ import annotations

from gnomon.load.families.base import (
    decoder,
    dense,
    head_bias,
    head_dim_of,
    layer_count,
    multi_head,
    refuse,
    uniform,
)
from gnomon.load.fields import Fields
from gnomon.spec import Embedding, Linear, Model, Norm, Part


def read(config: Fields, family: str) -> Model:
    refuse(config, "is_decoder", "an encoder used as a decoder")
    refuse(config, "add_cross_attention", "cross-attention")
    hidden, positions = config.whole("hidden_size"), config.whole("max_position_embeddings")
    mixer = multi_head(config, head_dim=head_dim_of(config), bias=True, causal=False, rotary_dim=0)
    tokens = not any(name.endswith("Model") for name in config.list("architectures"))
    # RoBERTa counts positions from the one after padding, so its table has two rows no token uses.
    unused = 2 if family != "bert" else 0
    return decoder(
        config,
        family,
        uniform(layer_count(config), mixer=mixer, ffn=dense(config, gated=False, bias=True), norm_after=True),
        max_context=max(1, positions - unused),
        learned_positions=positions,
        norm_bias=True,
        final_norm=False,
        stem=(
            Embedding(name="token_types", rows=config.whole("type_vocab_size"), width=hidden),
            Norm(name="norm", width=hidden, bias=True),
        ),
        tail=_token_head(config, hidden) if tokens else (_square("pooler", hidden, once=True),),
        has_head=tokens,
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )


def _token_head(config: Fields, hidden: int) -> tuple[Part, ...]:
    return _square("transform", hidden), Norm(name="head_norm", width=hidden, bias=True), *head_bias(config)


def _square(name: str, hidden: int, once: bool = False) -> Linear:
    return Linear(name=name, inputs=hidden, outputs=hidden, bias=True, once=once)
