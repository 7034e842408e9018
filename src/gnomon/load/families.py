"""config.json to shapes, one reader for each family of architectures. Field names are as Hugging Face writes them."""

from __future__ import annotations

from itertools import groupby

from gnomon.errors import InputError
from gnomon.load.fields import Fields, shown
from gnomon.spec import Attention, Block, DenseFfn, Model, MoeFfn

ARCHITECTURES = {
    "GPT2LMHeadModel": "gpt2",
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
}
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
MAX_LAYERS = 10_000


def read_family(config: Fields) -> Model:
    """The shapes of one config; its name and source are the caller's to add."""
    family = _family(config)
    if config.has("quantization_config"):
        raise InputError(
            "quantised checkpoints are not understood",
            where=config.spot("quantization_config"),
            hint="Give the config.json of the unquantised model and ask for the precision with --dtype.",
        )
    return _gpt2(config) if family == "gpt2" else _llama_like(config, family)


def _llama_like(config: Fields, family: str) -> Model:
    """Norms without bias, rotary positions, gated feed-forwards."""
    layers = config.whole("num_hidden_layers", most=MAX_LAYERS)
    dense = _dense_layers(config)
    shapes = [(_mixer(config, family, layer), _ffn(config, family, layer, dense)) for layer in range(layers)]
    return Model(
        name=family,
        family=family,
        hidden=config.whole("hidden_size"),
        vocab=config.whole("vocab_size"),
        blocks=tuple(Block(mixer=mixer, ffn=ffn, count=len(list(same))) for (mixer, ffn), same in groupby(shapes)),
        max_context=config.whole("max_position_embeddings"),
        tied_embeddings=config.flag("tie_word_embeddings", False),
        dtype=_dtype(config),
    )


def _gpt2(config: Fields) -> Model:
    """Norms and products with bias, learned positions, one feed-forward matrix up and one down; the head is tied."""
    if config.flag("add_cross_attention", False):
        raise InputError("cross-attention is not understood", where=config.spot("add_cross_attention"))
    hidden, heads, positions = config.whole("n_embd"), config.whole("n_head"), config.whole("n_positions")
    if hidden % heads:
        raise InputError(f"{hidden} is not a multiple of {heads} heads", where=config.spot("n_embd"))
    mixer = Attention(heads=heads, kv_heads=heads, head_dim=hidden // heads, qkv_bias=True, out_bias=True)
    ffn = DenseFfn(inner=config.whole("n_inner", 4 * hidden), gated=False, bias=True)
    return Model(
        name="gpt2",
        family="gpt2",
        hidden=hidden,
        vocab=config.whole("vocab_size"),
        blocks=(Block(mixer=mixer, ffn=ffn, count=config.whole("n_layer", most=MAX_LAYERS)),),
        max_context=positions,
        learned_positions=positions,
        norm_bias=True,
        tied_embeddings=config.flag("tie_word_embeddings", True),
        dtype=_dtype(config),
    )


def _family(config: Fields) -> str:
    named = config.list("architectures")
    if len(named) > 1 or not all(isinstance(name, str) for name in named):
        raise InputError(f"{named} is not one architecture", where=config.spot("architectures"))
    if named:
        key, value, family = "architectures", named[0], ARCHITECTURES.get(named[0], "")
    else:
        key, value = "model_type", config.text("model_type")
        family = value if value in ARCHITECTURES.values() else ""
    if not family:
        known = ", ".join(ARCHITECTURES)
        hint = f"Understood: {known}. If its layers are built like one of these, name that one in a copy of the file."
        raise InputError(f"the architecture '{value}' is not understood", where=config.spot(key), hint=hint)
    return family


def _mixer(config: Fields, family: str, layer: int) -> Attention:
    heads = config.whole("num_attention_heads")
    kv_heads = config.whole("num_key_value_heads", heads)
    if heads % kv_heads:
        message = f"{heads} heads cannot share {kv_heads} key-value heads evenly"
        raise InputError(message, where=config.spot("num_key_value_heads"))
    bias = config.flag("attention_bias", False)
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_head_dim(config, family, heads),
        qkv_bias=bias or family == "qwen2",
        out_bias=bias and family not in ("qwen2", "mistral"),
        qk_norm=family in ("qwen3", "qwen3_moe"),
        window=_window(config, family, layer),
    )


def _head_dim(config: Fields, family: str, heads: int) -> int:
    if config.has("head_dim"):
        return config.whole("head_dim")
    if family == "qwen3":
        return 128  # the default of the published Qwen3 config class
    hidden = config.whole("hidden_size")
    if hidden % heads:
        hint = "Add head_dim to the file."
        raise InputError(f"{hidden} is not a multiple of {heads} heads", where=config.spot("hidden_size"), hint=hint)
    return hidden // heads


def _window(config: Fields, family: str, layer: int) -> int | None:
    """The layer's sliding window in tokens, if it has one."""
    if family == "llama" or not config.has("sliding_window"):
        return None
    window = config.whole("sliding_window")
    if family == "mistral":
        return window
    if not config.flag("use_sliding_window", False):
        return None
    # Qwen2 and Qwen3 keep full attention in their first layers; the mixture of experts slides in all.
    first = 0 if family == "qwen3_moe" else config.whole("max_window_layers", 0, least=0)
    return window if layer >= first else None


def _ffn(config: Fields, family: str, layer: int, dense: frozenset[int]) -> DenseFfn | MoeFfn:
    if family != "qwen3_moe" or layer in dense or (layer + 1) % config.whole("decoder_sparse_step", 1):
        bias = family == "llama" and config.flag("mlp_bias", False)
        return DenseFfn(inner=config.whole("intermediate_size"), bias=bias)
    experts, topk = config.whole("num_experts"), config.whole("num_experts_per_tok")
    if topk > experts:
        message = f"{topk} experts a token of only {experts}"
        raise InputError(message, where=config.spot("num_experts_per_tok"))
    return MoeFfn(experts=experts, topk=topk, inner=config.whole("moe_intermediate_size"))


def _dense_layers(config: Fields) -> frozenset[int]:
    """The layers that have no experts though the others do."""
    found = config.list("mlp_only_layers")
    for entry in found:
        if isinstance(entry, bool) or not isinstance(entry, int) or entry < 0:
            raise InputError(f"{shown(entry)} is not the number of a layer", where=config.spot("mlp_only_layers"))
    return frozenset(found)


def _dtype(config: Fields) -> str:
    key = "dtype" if config.has("dtype") else "torch_dtype"
    name = config.text(key, "bfloat16").removeprefix("torch.")
    if name not in DTYPES:
        hint = f"Understood: {', '.join(DTYPES)}."
        raise InputError(f"the number format '{name}' is not understood", where=config.spot(key), hint=hint)
    return DTYPES[name]
