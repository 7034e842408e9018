"""A model as one that TorchTitan 0.3 has: a flavor of its registry, or a Llama of other sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gnomon.engines.training.rotary import BASE, rotary
from gnomon.engines.training.rotary import LLAMA as LLAMA_SCALING
from gnomon.errors import InputError
from gnomon.spec import AttentionMixer, DenseFfn, Model, MoeFfn
from gnomon.spec.training_job import TrainingJob

LLAMA = "llama3"
FLAVORS: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("llama3", "1B"): (16, 2048, 32, 8, 8192, 128256, 0),
    ("llama3", "3B"): (28, 3072, 24, 8, 8192, 128256, 0),
    ("llama3", "8B"): (32, 4096, 32, 8, 14336, 128256, 0),
    ("llama3", "70B"): (80, 8192, 64, 8, 28672, 128256, 0),
    ("llama3", "405B"): (126, 16384, 128, 8, 53248, 128256, 0),
    ("qwen3", "0.6B"): (28, 1024, 16, 8, 3072, 151936, 0),
    ("qwen3", "1.7B"): (28, 2048, 16, 8, 6144, 151936, 0),
    ("qwen3", "4B"): (36, 2560, 32, 8, 9728, 151936, 0),
    ("qwen3", "8B"): (36, 4096, 32, 8, 12288, 151936, 0),
    ("qwen3", "14B"): (40, 5120, 40, 8, 17408, 151936, 0),
    ("qwen3", "32B"): (64, 5120, 64, 8, 25600, 151936, 0),
    ("qwen3", "30B-A3B"): (48, 2048, 32, 4, 768, 151936, 128),
    ("qwen3", "235B-A22B"): (94, 4096, 64, 4, 1536, 151936, 128),
}
"""Layers, width, heads, key-value heads, columns of the feed-forward part or of an expert, vocabulary and experts of
TorchTitan's flavors (`torchtitan/models/llama3/__init__.py` and `qwen3/__init__.py` of 0.3.0)."""


def shape_of(model: Model) -> tuple[int, ...]:
    """What `FLAVORS` tells models apart by."""
    block = model.blocks[0]
    mixer, ffn = block.mixer, block.feed_forward
    heads = (mixer.heads, mixer.kv_heads) if isinstance(mixer, AttentionMixer) else (0, 0)
    experts = block.ffn.experts if isinstance(block.ffn, MoeFfn) else 0
    inner = block.ffn.inner if isinstance(block.ffn, MoeFfn) else ffn.inner
    return model.layers, model.hidden, *heads, inner, model.vocab, experts


def flavor_of(model: Model) -> tuple[str, str] | None:
    """TorchTitan's module and flavor of a model; nothing where its registry has none of these sizes."""
    uniform = all(replace(block, count=1) == replace(model.blocks[0], count=1) for block in model.blocks)
    if not uniform or not isinstance(model.blocks[0].mixer, AttentionMixer):
        return None
    normed = "qwen3" if model.blocks[0].mixer.qk_norm else LLAMA
    found = shape_of(model)
    return next((pair for pair, sizes in FLAVORS.items() if sizes == found and pair[0] == normed), None)


def check_network(model: Model) -> None:
    """Raise InputError where TorchTitan has neither the model nor a Llama of its sizes."""
    why = "" if flavor_of(model) else next(_unlike_llama(model), "")
    if why:
        hint = "It has Llama 3 and Qwen 3, and Llamas of other sizes; export it to megatron."
        raise InputError(f"TorchTitan has no {model.name}: {why}", where="model", hint=hint)


def _unlike_llama(model: Model) -> Iterator[str]:
    first = model.blocks[0]
    mixer, ffn = first.mixer, first.ffn
    if len({replace(block, count=1) for block in model.blocks}) > 1:
        yield "its layers differ"
    if not isinstance(mixer, AttentionMixer) or not isinstance(ffn, DenseFfn):
        yield "its layers are not softmax attention and one dense feed-forward part"
        return
    if mixer.qkv_bias or mixer.out_bias or ffn.bias:
        yield "it has biases"
    if mixer.qk_norm or mixer.head_dim * mixer.heads != model.hidden:
        yield "its heads are normed, or of another width than the network's by their number"
    if not ffn.gated or model.norm_bias or model.learned_positions or first.parallel or first.norm_after:
        yield "it is no Llama: gate, RMS norms before each half, rotary positions"


def not_expressed(job: TrainingJob) -> list[str]:
    """What of the network a recipe does not say."""
    return rotary(job.config).missing(LLAMA_SCALING, whole=False) if flavor_of(job.model) is None else []


def shape_lines(job: TrainingJob) -> list[str]:
    """A function of the recipe that gives the sizes of a Llama; its own layers come from TorchTitan."""
    model = job.model
    mixer, ffn = model.blocks[0].attention, model.blocks[0].feed_forward
    found = rotary(job.config)
    longest = max(model.max_context, job.load.seq)
    rope = f"dim={mixer.head_dim}, max_seq_len={longest}, theta={float(found.base or BASE)!r}"
    if found.kind == LLAMA_SCALING and (factor := found.number("factor")):
        original = int(found.number("original_max_position_embeddings")) or 8192
        rope += f', scaling="llama", scaling_factor={factor!r}, original_max_position_embeddings={original}'
    return [
        "def network() -> llama3.Llama3Model.Config:",
        f"    dim, vocab_size = {model.hidden}, {model.vocab}",
        "    return llama3.Llama3Model.Config(",
        "        dim=dim,",
        "        vocab_size=vocab_size,",
        f"        enable_weight_tying={model.tied_embeddings},",
        "        tok_embeddings=Embedding.Config(",
        "            num_embeddings=vocab_size, embedding_dim=dim, param_init=llama3._EMBEDDING_INIT",
        "        ),",
        "        norm=RMSNorm.Config(normalized_shape=dim, param_init=llama3._NORM_INIT),",
        "        lm_head=Linear.Config(",
        "            in_features=dim, out_features=vocab_size, param_init=llama3._output_linear_init(dim)",
        "        ),",
        "        layers=llama3._build_llama3_layers(",
        f"            n_layers={model.layers},",
        "            dim=dim,",
        f"            n_heads={mixer.heads},",
        f"            n_kv_heads={mixer.kv_heads},",
        f"            hidden_dim={ffn.inner},",
        f"            rope=ComplexRoPE.Config({rope}),",
        '            attn_backend="flex",',
        "        ),",
        "    )",
    ]
