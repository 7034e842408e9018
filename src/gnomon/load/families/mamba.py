"""Mamba 1 and 2: state spaces in every layer, no feed-forward."""

from __future__ import annotations

from gnomon.errors import InputError
from gnomon.load.families.base import check_shared, decoder, layer_count, uniform
from gnomon.load.fields import Fields
from gnomon.spec import Mamba, Mamba2, Model

UNBOUNDED = 2**20
"""A state space reads sequences of any length; a million tokens are more than any was tried with."""


def read(config: Fields, family: str) -> Model:
    mixer = _second(config) if family == "mamba2" else _first(config)
    blocks = uniform(layer_count(config), mixer=mixer, ffn=None)
    tied = config.flag("tie_word_embeddings", family != "mamba2")
    return decoder(config, family, blocks, max_context=UNBOUNDED, tied_embeddings=tied)


def _first(config: Fields) -> Mamba:
    return Mamba(
        inner=config.whole("expand", 2) * config.whole("hidden_size"),
        state=config.whole("state_size"),
        dt_rank=rank(config, "time_step_rank"),
        conv=config.whole("conv_kernel", 4),
        conv_bias=config.flag("use_conv_bias", True),
        bias=config.flag("use_bias", False),
    )


def _second(config: Fields) -> Mamba2:
    mixer = Mamba2(
        heads=config.whole("num_heads"),
        head_dim=config.whole("head_dim"),
        state=config.whole("state_size"),
        groups=config.whole("n_groups"),
        conv=config.whole("conv_kernel", 4),
        chunk=config.whole("chunk_size", 256),
        conv_bias=config.flag("use_conv_bias", True),
        bias=config.flag("use_bias", False),
    )
    check_inner(config, mixer, "expand", "num_heads")
    check_shared(mixer.heads, mixer.groups, config.spot("n_groups"), of="groups")
    return mixer


def rank(config: Fields, key: str) -> int:
    """The rank of the step: a sixteenth of the width, rounded up, where it is `auto`."""
    if config.raw(key, "auto") == "auto":
        return -(-config.whole("hidden_size") // 16)
    return config.whole(key)


def check_inner(config: Fields, mixer: Mamba2, expand: str, heads: str) -> None:
    wanted = config.whole(expand, 2) * config.whole("hidden_size")
    if mixer.inner != wanted:
        message = f"{mixer.heads} heads of {mixer.head_dim} channels are not the {wanted} that {expand} asks for"
        raise InputError(message, where=config.spot(heads))
