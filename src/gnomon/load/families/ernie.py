"""ERNIE 4.5, dense and with experts."""

from __future__ import annotations

from dataclasses import replace

from gnomon.errors import InputError
from gnomon.load.families.base import attention, decoder, dense, experts, head_bias, head_dim_of, layer_count
from gnomon.load.fields import Fields
from gnomon.spec import Block, Model, MoeFfn

HEAD_DIM = 128
"""The default of the published config class of the dense ones."""


def read(config: Fields, family: str) -> Model:
    bias, count = config.flag("use_bias", False), layer_count(config)
    moe = family == "ernie4_5_moe"
    mixer = attention(config, head_dim=head_dim_of(config, None if moe else HEAD_DIM), bias=bias)
    plain, sparse = dense(config, bias=bias), _sparse(config, count) if moe else frozenset()
    mixture = _mixture(config) if moe else None
    blocks = [Block(mixer=mixer, ffn=mixture if layer in sparse else plain, count=1) for layer in range(count)]
    tail = head_bias(config) if moe and bias else ()
    return decoder(config, family, blocks, tail=tail, tied_embeddings=config.flag("tie_word_embeddings", True))


def _mixture(config: Fields) -> MoeFfn:
    if config.flag("use_bias", False):
        raise InputError("experts with biases are not supported", where=config.spot("use_bias"))
    shared = "moe_num_shared_experts"
    found = experts(config, "moe_num_experts", "moe_intermediate_size", topk="moe_k", shared=shared, correction=True)
    return replace(found, router_dtype="fp32")  # as the network and vLLM hold it (`Ernie4_5_MoeMoE.gate`)


def _sparse(config: Fields, count: int) -> frozenset[int]:
    first, every = config.whole("moe_layer_start_index", 1, least=0), config.whole("moe_layer_interval", 1)
    last = config.raw("moe_layer_end_index", -1)
    last = count - 1 if last == -1 else config.whole("moe_layer_end_index", least=0)
    return frozenset(layer for layer in range(first, min(last, count - 1) + 1) if (layer + 1) % every == 0)
