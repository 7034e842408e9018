"""Operators of mixers other than softmax attention: latent attention over its cache, token selection, and scans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gnomon.graph.dtypes import width
from gnomon.graph.sizes import Shape, constants
from gnomon.graph.windows import Window
from gnomon.spec.workload import Batch, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentDecode:
    """Attention of folded queries over cached latents, one for all heads (MLA).

    With `topk`, tokens of prompts come this way too, and each token attends to so many selected ones; so do those of
    whole sequences, backward to the gradients of queries and latents.
    """

    name: str
    phase: Literal["decode", "prefill", "backward"]
    heads: int
    kv_rank: int
    rope_dim: int
    kv_dtype: str
    dtype: str = "bf16"
    topk: int | None = None
    count: int = 1

    @property
    def kind(self) -> Literal["mla_decode", "mla_backward"]:
        return "mla_backward" if self.phase == "backward" else "mla_decode"

    def shape(self, batch: Batch) -> Shape:
        sizes = constants(batch, heads=self.heads, kv_rank=self.kv_rank, rope_dim=self.rope_dim)
        return {"sequences": self._tokens(batch), "pairs": self._seen(batch), "context": self._read(batch)} | sizes

    def flops(self, batch: Batch) -> Floats:
        """Scores over all channels, values over the latent's; backward the scores again, and the gradients of queries,
        keys, values and scores."""
        return np.asarray(latent_flops(self.kind, self.shape(batch)))

    def recomputed_flops(self, batch: Batch) -> Floats:
        """Of the backward pass, the scores."""
        return 2.0 * self._seen(batch) * self.heads * (self.kv_rank + self.rope_dim)

    def bytes(self, batch: Batch) -> Floats:
        return np.asarray(latent_bytes(self.kind, self.kv_dtype, self.shape(batch), self.dtype))

    def bends(self, longest: int) -> tuple[int, ...]:
        """Cached tokens at which its time over the context bends."""
        return Window(self.topk).bends(longest) if self.topk else ()

    def _tokens(self, batch: Batch) -> Floats:
        return batch.decodes if self.phase == "decode" else batch.prefill_tokens

    def _seen(self, batch: Batch) -> Floats:
        """A token attends to all before it as long as they are no more than `topk`."""
        chosen = Window(self.topk) if self.topk else None
        if self.phase == "decode":
            return chosen.decode_context(batch) if chosen else batch.decode_context
        return chosen.prefill_pairs(batch) if chosen else batch.prefill_pairs

    def _read(self, batch: Batch) -> Floats:
        """Tokens of one prompt choose among the same latents, which come from memory once."""
        return self._seen(batch) if self.phase == "decode" else batch.prefill_context


def latent_flops(kind: str, shape: Shape) -> Floats:
    """Of attention over latents, by its sizes."""
    pairs, rank, turned = shape.get("pairs", shape["context"]), shape["kv_rank"], shape["rope_dim"]
    channels = 5 * rank + 3 * turned if kind == "mla_backward" else 2 * rank + turned
    return np.asarray(2.0 * pairs * shape["heads"] * channels)


def latent_bytes(kind: str, kv_dtype: str, shape: Shape, dtype: str = "bf16") -> Floats:
    """Latents once, queries in and results out; backward all of it and the results' gradient are read, the gradient of
    queries written, and that of latents summed in fp32."""
    rank, turned = shape["kv_rank"], shape["rope_dim"]
    cached, each = shape["context"] * (rank + turned), shape["sequences"] * shape["heads"] * width(dtype)
    if kind == "mla_backward":
        return np.asarray(cached * (width(kv_dtype) + 2 * width("fp32")) + each * (4 * rank + 2 * turned))
    return np.asarray(cached * width(kv_dtype) + each * (2 * rank + turned))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexScores:
    """Scores of every query with every token before it by a few small heads, and the choice of the best.

    Keys are cached in eight bits; scores are written and read once in fp32. Backward only the chosen tokens count, of
    which there are `topk`: their scores again, and the gradients of queries and keys.
    """

    name: str
    phase: Literal["decode", "prefill", "backward"]
    heads: int
    head_dim: int
    dtype: str = "fp8"
    topk: int | None = None
    count: int = 1
    kind: Literal["index_scores"] = "index_scores"

    def shape(self, batch: Batch) -> Shape:
        """Pairs of all its matmuls together."""
        decode = self.phase == "decode"
        sums = {
            "tokens": batch.decodes if decode else batch.prefill_tokens,
            "pairs": batch.decode_context if decode else batch.prefill_pairs,
            "context": batch.decode_context if decode else batch.prefill_context,
        }
        if self.phase == "backward":
            sums["pairs"] = 3.0 * self._chosen(batch)
        return sums | constants(batch, heads=self.heads, head_dim=self.head_dim)

    def _chosen(self, batch: Batch) -> Floats:
        return Window(self.topk).prefill_pairs(batch) if self.topk else batch.prefill_pairs

    def recomputed_flops(self, batch: Batch) -> Floats:
        """Of the backward pass, the scores."""
        return 2.0 * self._chosen(batch) * self.heads * self.head_dim

    def flops(self, batch: Batch) -> Floats:
        return 2.0 * self.shape(batch)["pairs"] * self.heads * self.head_dim

    def bytes(self, batch: Batch) -> Floats:
        return index_bytes(self.shape(batch), self.dtype)

    def bends(self, longest: int) -> tuple[int, ...]:
        return ()


def index_bytes(shape: Shape, dtype: str) -> Floats:
    """Keys once, queries once, scores twice."""
    channels = (shape["context"] + shape["tokens"] * shape["heads"]) * shape["head_dim"]
    return np.asarray(channels * width(dtype) + 2.0 * shape["pairs"] * width("fp32"))


Phase = Literal["decode", "prefill", "backward"]
Mixing = Literal["mamba", "mamba2", "gated_delta", "lightning"]
MIXINGS: tuple[Mixing, ...] = ("mamba", "mamba2", "gated_delta", "lightning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A state carried through the tokens of each sequence: in chunks for prompts and in training, one token further
    for decodes; backward to the gradients of all it reads.

    The state has `heads` x `head_dim` x `state_dim` numbers. Of the first Mamba a channel is a head of one.
    """

    name: str
    phase: Phase
    mixer: Mixing
    heads: int
    head_dim: int
    state_dim: int
    groups: int
    """Heads that share what leads into the state and out of it, counted by what they share."""
    chunk: int
    """Tokens that are mixed at once, of prompts."""
    state_dtype: str
    dtype: str = "bf16"
    count: int = 1

    @property
    def kind(self) -> str:
        return f"scan_{self.phase}_{self.mixer}"

    def shape(self, batch: Batch) -> Shape:
        decode = self.phase == "decode"
        sequences, tokens = (batch.decodes, batch.decodes) if decode else (batch.prefills, batch.prefill_tokens)
        sizes = constants(batch, heads=self.heads, head_dim=self.head_dim, state_dim=self.state_dim)
        kept = constants(batch, groups=self.groups, chunk=self.chunk, state_bytes=width(self.state_dtype))
        return {"sequences": sequences, "tokens": tokens} | sizes | kept

    def flops(self, batch: Batch) -> Floats:
        return scan_flops(self.phase, self.mixer, self.shape(batch))

    def recomputed_flops(self, batch: Batch) -> Floats:
        """Of the backward pass, those that compute again what the forward pass did not save."""
        return scan_recomputed(self.mixer, self.shape(batch))

    def bytes(self, batch: Batch) -> Floats:
        return scan_bytes(self.phase, self.mixer, self.shape(batch))


def chunks_of(shape: Shape) -> tuple[Floats, Floats, Floats]:
    """Chunks of one sequence, chunks of all of them, and causal pairs inside all chunks. Sequences are taken as equally
    long; each begins a chunk of its own."""
    n = np.maximum(shape["sequences"], 1e-9)
    new, chunk = shape["tokens"] / n, shape["chunk"]
    full = np.floor(new / chunk)
    rest = new - full * chunk
    each = np.ceil(new / chunk)
    pairs = full * chunk * (chunk + 1) / 2 + rest * (rest + 1) / 2
    return each, shape["sequences"] * each, shape["sequences"] * pairs


def scan_flops(phase: str, mixer: Mixing, shape: Shape) -> Floats:
    """Of the chunked algorithm for prompts and of the plain recurrence for decodes, without the exponentials.

    Matrices of a chunk are counted as far as they are causal, as those of softmax attention are.
    """
    tokens, heads, values, keys = (shape[name] for name in ("tokens", "heads", "head_dim", "state_dim"))
    state = heads * values * keys
    if mixer == "mamba":
        # The decay by the step, the input by the step, the state's update and what is read off it.
        return np.asarray((12.0 + 4.0 if phase == "backward" else 6.0) * tokens * state)
    if phase == "decode":
        # Decay, outer product and output; the delta rule first takes off what the state holds for the key.
        return np.asarray((7.0 if mixer == "gated_delta" else 5.0) * tokens * state)
    _, chunks, pairs = chunks_of(shape)
    if phase == "backward":
        # Every matmul of the forward pass has two gradients.
        return 2 * scan_flops("prefill", mixer, shape) + scan_recomputed(mixer, shape) + _inverse_gradient(mixer, shape)
    if mixer == "mamba2":
        return np.asarray(2.0 * pairs * (shape["groups"] * keys + heads * values) + 4.0 * tokens * state)
    if mixer == "lightning":
        return np.asarray(2.0 * pairs * heads * (keys + values) + 4.0 * tokens * state)
    # Keys with keys, a triangular inverse, its matmuls with keys and with values, queries with keys, scores with
    # values; into the state, off it for the keys, off it for the queries.
    inverse = chunks * heads * _filled(shape) ** 3 / 3
    return np.asarray(2.0 * pairs * heads * (3 * keys + 2 * values) + inverse + 6.0 * tokens * state)


def _filled(shape: Shape) -> Floats:
    """Tokens of a chunk."""
    return np.minimum(shape["chunk"], shape["tokens"] / np.maximum(shape["sequences"], 1e-9))


def scan_recomputed(mixer: Mixing, shape: Shape) -> Floats:
    """Of the backward pass, what computes again what the forward pass did not save. The first Mamba: the state, but not
    what is read off it (mamba_ssm 2.2, `selective_scan_bwd_kernel`). Mamba-2: scores of a chunk, and what goes into the
    state of each (`_mamba_chunk_scan_combined_bwd`); lightning attention the same. The delta rule: keys and values
    as the inverse changes them, what goes into the states and what is off them for the keys, and queries with keys
    (flash-linear-attention 0.4, `chunk_gated_delta_rule_bwd`)."""
    tokens, heads, values, keys = (shape[name] for name in ("tokens", "heads", "head_dim", "state_dim"))
    pairs, state = chunks_of(shape)[2], heads * values * keys
    if mixer == "mamba":
        return np.asarray(4.0 * tokens * state)
    if mixer in ("mamba2", "lightning"):
        return np.asarray(2.0 * pairs * shape["groups"] * keys + 2.0 * tokens * state)
    return np.asarray(2.0 * pairs * heads * (2 * keys + values) + 4.0 * tokens * state)


def _inverse_gradient(mixer: Mixing, shape: Shape) -> Floats | float:
    """The gradient of a triangular inverse is two matmuls of its size, where twice the inverse was counted."""
    if mixer != "gated_delta":
        return 0.0
    cubes = chunks_of(shape)[1] * shape["heads"] * _filled(shape) ** 3
    return np.asarray((2 * 2.0 - 2 / 3) * cubes)


STATE_PASSES: Mapping[Mixing, float] = {
    "mamba": 2.0 * width("fp32"),
    "mamba2": 8.0 * width("fp32"),
    "gated_delta": 4.0 * width("bf16"),
    "lightning": 0.0,
}
"""Bytes that a backward pass moves for each number of the state of every chunk. Lightning attention's kernels carry it
in registers; the first Mamba's read what the forward pass left every 2,048 tokens, in fp32."""


def scan_bytes(phase: str, mixer: Mixing, shape: Shape) -> Floats:
    """Values in and out, keys and queries of every group, the state read and written once per sequence. Mamba-2's
    kernels also write the state of every chunk, carry it on and read it, in fp32. Backward the first Mamba's kernel
    also reads its gate and its own result, and writes the gradient of the gate."""
    heads, values, keys = (shape[name] for name in ("heads", "head_dim", "state_dim"))
    state = heads * values * keys
    once = shape["sequences"] * 2.0 * state * shape["state_bytes"]
    each = (2.0 * heads * values + 2.0 * shape["groups"] * keys + heads) * width("bf16")
    states = chunks_of(shape)[1] * state if phase != "decode" else 0.0
    if phase == "backward":
        # All that is read, the gradient of the result, and gradients of all that was read; states and their gradients
        # of every chunk are written and read.
        own = 6.0 if mixer == "mamba" else 3.0
        each = (own * heads * values + 4.0 * shape["groups"] * keys + 2.0 * heads) * width("bf16")
        return np.asarray(shape["tokens"] * each + once + STATE_PASSES[mixer] * states)
    between = 4.0 * states * width("fp32") if (phase, mixer) == ("prefill", "mamba2") else 0.0
    return np.asarray(shape["tokens"] * each + once + between)


MixerOp = LatentDecode | IndexScores | Scan
