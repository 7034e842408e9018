"""Mamba 1 and 2: state spaces in every layer, no feed-forward."""

from __future__ import annotations

from gnomon.errors import InputError
from gnomon.load.families.base import check_shared, decoder, layer_count, uniform
from gnomon.load.fields import Fields
from gnomon.spec import Mamba, Mamba2, Model

UNBOUNDED = 2**20
"""A state space reads sequences of any length; a million tokens are more than any was tried with."""


def read(config: Fields, family: str) -> Model:
    second = family == "mamba2"
    keys = ("num_heads", "head_dim", "state_size")
    mixer = mamba2(config, *keys, chunk=256, expand="expand") if second else _first(config)
    blocks = uniform(layer_count(config), mixer=mixer, ffn=None)
    tied = config.flag("tie_word_embeddings", not second)
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


def mamba2(config: Fields, heads: str, head_dim: str, state: str, *, chunk: int, expand: str = "") -> Mamba2:
    """A Mamba 2 mixer by the fields of its heads, their width, its state and perhaps its expansion, and the default of
    `chunk_size`."""
    mixer = Mamba2(
        heads=config.whole(heads),
        head_dim=config.whole(head_dim),
        state=config.whole(state),
        groups=config.whole("n_groups"),
        conv=config.whole("conv_kernel", 4),
        chunk=config.whole("chunk_size", chunk),
        conv_bias=config.flag("use_conv_bias", True),
        bias=config.flag("use_bias", False),
    )
    if expand:
        check_inner(config, mixer, expand, heads)
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
        message = f"{mixer.heads} heads of {mixer.head_dim} channels are not the {wanted} of {expand}"
        raise InputError(message, where=config.spot(heads))
