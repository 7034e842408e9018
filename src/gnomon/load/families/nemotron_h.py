"""Nemotron-H: each layer is one thing only, a state space, attention, a feed-forward or experts."""

from __future__ import annotations

from collections.abc import Callable

from gnomon.errors import InputError
from gnomon.load.families.base import MAX_LAYERS, attention, check_shared, decoder, dense, grouped_experts
from gnomon.load.fields import Fields, shown
from gnomon.spec import Block, Mamba2, Model, MoeFfn

LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
WORDS = {"mamba": "linear_attention", "attention": "full_attention"} | {word: word for word in LETTERS.values()}


def read(config: Fields, family: str) -> Model:
    makers: dict[str, Callable[[], Block]] = {
        "linear_attention": lambda: Block(mixer=_space(config), ffn=None, count=1),
        "full_attention": lambda: Block(mixer=attention(config, rotary_dim=0), ffn=None, count=1),
        "mlp": lambda: Block(mixer=None, ffn=dense(config, gated=False, bias=config.flag("mlp_bias", False)), count=1),
        "moe": lambda: Block(mixer=None, ffn=_mixture(config), count=1),
    }
    kinds = _kinds(config)
    made = {kind: makers[kind]() for kind in dict.fromkeys(kinds)}
    return decoder(config, family, [made[kind] for kind in kinds])


def _kinds(config: Fields) -> list[str]:
    if config.has("layers_block_type"):
        key, known = "layers_block_type", WORDS
        found = config.list(key)
    else:
        key, known = "hybrid_override_pattern", LETTERS
        found = list(config.text(key))
    if not 0 < len(found) <= MAX_LAYERS:
        raise InputError(f"names {len(found)} layers", where=config.spot(key))
    for word in found:
        if not isinstance(word, str) or word not in known:
            hint = f"Understood: {', '.join(known)}."
            raise InputError(f"{shown(word)} is not a kind of layer", where=config.spot(key), hint=hint)
    return [known[word] for word in found]


def _space(config: Fields) -> Mamba2:
    mixer = Mamba2(
        heads=config.whole("mamba_num_heads"),
        head_dim=config.whole("mamba_head_dim"),
        state=config.whole("ssm_state_size"),
        groups=config.whole("n_groups"),
        conv=config.whole("conv_kernel", 4),
        chunk=config.whole("chunk_size", 128),
        conv_bias=config.flag("use_conv_bias", True),
        bias=config.flag("use_bias", False),
    )
    check_shared(mixer.heads, mixer.groups, config.spot("n_groups"), of="groups")
    return mixer


def _mixture(config: Fields) -> MoeFfn:
    return grouped_experts(
        config,
        "n_routed_experts",
        "moe_intermediate_size",
        shared_inner=config.whole("moe_shared_expert_intermediate_size"),
        gated=False,
        router="sigmoid",
        latent=config.whole("moe_latent_size", 0),
    )
