"""A model as shapes: blocks of one mixer and one feed-forward each, an embedding and a head, towers that feed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gnomon.spec.answers import NotModelled
from gnomon.spec.ffn import DenseFfn, MoeFfn
from gnomon.spec.formats import Format, Formats, plain
from gnomon.spec.mixers import AttentionMixer, CrossAttention, LatentAttention
from gnomon.spec.network import TowerInput
from gnomon.spec.parts import VECTOR, Embedding, Linear, Modulation, Part, Tensor, count, part_tensors, vector
from gnomon.spec.preprocessor import VisionPreprocessor
from gnomon.spec.recurrent import GatedDelta, LightningAttention, Mamba, Mamba2, ShortConvolution

Mixer = (
    AttentionMixer
    | LatentAttention
    | CrossAttention
    | Mamba
    | Mamba2
    | GatedDelta
    | LightningAttention
    | ShortConvolution
)
Ffn = DenseFfn | MoeFfn
PLAIN_PREPROCESSOR = VisionPreprocessor()
KINDS = ("dense", "moe", "hybrid", "state-space", "encoder", "encoder-decoder", "multimodal", "diffusion")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`count` equal layers. A layer may lack one of its halves, and may look at a tower between them."""

    mixer: Mixer | None
    ffn: Ffn | None
    count: int
    cross: CrossAttention | None = None
    norms: int | None = None
    """Norms over the stream's whole width; one for each half where not given."""
    norm_after: bool = False
    """Norms stand behind the halves, not before them."""
    parallel: bool = False
    """Both halves read the same input, and their results are added together."""
    extras: tuple[Part, ...] = ()
    """What else a layer holds: the modulation of a diffusion transformer, gates, scales."""
    formats: Formats = ()

    @property
    def attention(self) -> AttentionMixer:
        """Its softmax attention, for those who have made sure that it has one (`gnomon.graph.support`)."""
        assert isinstance(self.mixer, AttentionMixer)
        return self.mixer

    @property
    def feed_forward(self) -> Ffn:
        """Its feed-forward; one without channels where it has none."""
        return self.ffn or DenseFfn(inner=0, gated=False)

    @property
    def halves(self) -> int:
        return sum(half is not None for half in (self.mixer, self.cross, self.ffn))

    @property
    def modulated(self) -> bool:
        """Whether its halves are shifted, scaled and gated by what is made of a sample's time and class."""
        return any(isinstance(part, Modulation) or (isinstance(part, Linear) and part.once) for part in self.extras)

    @property
    def gated(self) -> bool:
        """Whether a learned number scales what each half gives."""
        return any(isinstance(part, Embedding) and part.rows == part.width == 1 for part in self.extras)

    @property
    def stream_norms(self) -> int:
        return self.halves if self.norms is None else self.norms

    def tensors(self, hidden: int, norm: int = 0) -> Iterator[Tensor]:
        """The weights of one layer; `norm` is the numbers of one norm over the stream, whose kind is the model's."""
        for half in (self.mixer, self.cross, self.ffn):
            if half is not None:
                yield from half.tensors(hidden)
        yield from part_tensors(self.extras)
        yield from vector(self.stream_norms * norm)

    def parameters(self, hidden: int, norm: int = 0) -> int:
        """Of one layer."""
        return count(self.tensors(hidden, norm))

    def active_parameters(self, hidden: int, norm: int = 0) -> int:
        """Of one layer, without the experts that a token does not visit."""
        if not isinstance(self.ffn, MoeFfn):
            return self.parameters(hidden, norm)
        return self.parameters(hidden, norm) - self.ffn.parameters(hidden) + self.ffn.active_parameters(hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """Blocks beside the decoder that make something for it: an encoder of text or sound, or of images."""

    name: str
    hidden: int
    blocks: tuple[Block, ...]
    stem: tuple[Part, ...] = ()
    """Before the blocks: patches or convolutions to the stream, positions."""
    tail: tuple[Part, ...] = ()
    """Behind them: what leads to the decoder's width."""
    norm_weight: bool = True
    norm_bias: bool = False
    final_norm: bool = True
    intake: VisionPreprocessor = PLAIN_PREPROCESSOR

    @property
    def layers(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def norm_parameters(self) -> int:
        """Of one norm over the stream."""
        return self.hidden * (self.norm_weight + self.norm_bias)

    @property
    def network(self) -> Model:
        """It alone, as a network that ends where the decoder begins."""
        return Model(
            name=self.name,
            family="",
            hidden=self.hidden,
            vocab=0,
            blocks=self.blocks,
            max_context=self.intake.positions,
            norm_bias=self.norm_bias,
            norm_weight=self.norm_weight,
            final_norm=self.final_norm,
            has_head=False,
            stem=self.stem,
            tail=self.tail,
        )

    @property
    def end_parameters(self) -> int:
        """Beside its blocks."""
        return count(part_tensors(self.stem + self.tail)) + self.norm_parameters * self.final_norm

    @property
    def parameters(self) -> int:
        norm = self.norm_parameters
        return self.end_parameters + sum(b.count * b.parameters(self.hidden, norm) for b in self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Everything about a network that decides its work: no weights, no hardware."""

    name: str
    family: str
    hidden: int
    vocab: int
    blocks: tuple[Block, ...]
    max_context: int
    tied_embeddings: bool = False
    dtype: str = "bf16"
    """The format most weights are stored in."""
    norm_bias: bool = False
    learned_positions: int = 0
    hub_id: str = ""
    source: str = ""
    norm_weight: bool = True
    centred_norms: bool = False
    """Layer norms though they have no bias; those with one always are."""
    final_norm: bool = True
    embedding_width: int = 0
    """Of a token's vector, where it is not the stream's."""
    scaled_embedding: bool = False
    head_cap: float | None = None
    """Logits are bent towards this bound."""
    has_head: bool = True
    stem: tuple[Part, ...] = ()
    """Beside the embedding: norms, token types, what leads from its width to the stream's."""
    tail: tuple[Part, ...] = ()
    """Beside the head: its bias, or what stands before it."""
    towers: tuple[Tower, ...] = ()
    beside: tuple[TowerInput, ...] = ()
    """What goes through each tower, where it is trained beside the decoder."""
    wide_layers: tuple[int, int] = (0, 0)
    """First and last layers of the decoder whose GEMMs stay in 16 bits in training, where others run in fewer."""
    mtp: tuple[Block, ...] = ()
    """Layers that draft tokens beyond the next. They are loaded on demand, and not counted in `parameters`."""
    kept_dtype: str = ""
    """Of what is not quantised, where something is."""
    head_format: Format | None = None
    not_modelled: tuple[NotModelled, ...] = ()
    """What its file says that no figure depends on."""

    @property
    def working_dtype(self) -> str:
        """The format of what is not quantised, which is also what it computes and learns in."""
        return self.kept_dtype or self.dtype

    @property
    def layers(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def embedding_parameters(self) -> int:
        return self.vocab * (self.embedding_width or self.hidden) + self.learned_positions * self.hidden

    @property
    def head_parameters(self) -> int:
        """Weights of the output head that are stored beside the embedding."""
        stored = self.has_head and not self.tied_embeddings
        return self.vocab * (self.embedding_width or self.hidden) if stored else 0

    @property
    def norm_parameters(self) -> int:
        """Of one norm over the stream."""
        return self.hidden * (self.norm_weight + self.norm_bias)

    @property
    def end_parameters(self) -> int:
        """Beside the blocks, the stored head and the towers."""
        parts = count(part_tensors(self.stem + self.tail))
        return self.embedding_parameters + parts + self.norm_parameters * self.final_norm

    @property
    def _beside(self) -> int:
        return self.end_parameters + self.head_parameters + sum(tower.parameters for tower in self.towers)

    @property
    def parameters(self) -> int:
        """Stored parameters, exactly as a checkpoint holds them, without the layers of `mtp`."""
        norm = self.norm_parameters
        return self._beside + sum(b.count * b.parameters(self.hidden, norm) for b in self.blocks)

    @property
    def active_parameters(self) -> int:
        """Parameters one token passes through (of a mixture of experts, the chosen experts only)."""
        norm = self.norm_parameters
        return self._beside + sum(b.count * b.active_parameters(self.hidden, norm) for b in self.blocks)

    @property
    def mtp_parameters(self) -> int:
        """Each drafting layer joins two normed streams to one, and norms its result before the model's own head."""
        norm = self.norm_parameters
        joined = 2 * self.hidden * self.hidden + 3 * norm
        return sum(b.count * (b.parameters(self.hidden, norm) + joined) for b in self.mtp)

    @property
    def kind(self) -> str:
        """The word of `KINDS` that says most."""
        mixers = [block.mixer for block in self.blocks if block.mixer is not None]
        attends = [isinstance(mixer, AttentionMixer | LatentAttention | CrossAttention) for mixer in mixers]
        if not self.vocab:
            return "diffusion"
        if self.towers:
            return "multimodal" if self.towers[0].name == "vision" else "encoder-decoder"
        if not all(attends):
            return "hybrid" if any(attends) else "state-space"
        if any(isinstance(mixer, AttentionMixer) and not mixer.causal for mixer in mixers):
            return "encoder"
        return "moe" if self.is_moe else "dense"

    @property
    def alone(self) -> Model:
        """Its decoder without towers and without what looks at them between the halves of its layers."""
        return replace(self, towers=(), beside=(), blocks=tuple(replace(block, cross=None) for block in self.blocks))

    @property
    def attends(self) -> bool:
        """Whether layers of the decoder attend to what a tower has made."""
        return any(block.cross or isinstance(block.mixer, CrossAttention) for block in self.blocks)

    @property
    def source_tokens(self) -> int:
        """Tokens of a tower that each sequence of a batch has."""
        return sum(given.source for given in self.beside)

    @property
    def is_moe(self) -> bool:
        return any(isinstance(block.ffn, MoeFfn) for block in self.blocks)

    def kv_bytes_per_token(self, bytes_per_value: float, tp: int = 1) -> float:
        """Cache bytes of one token on one rank; key-value heads are copied where tp exceeds them."""
        values = sum(b.count * b.mixer.cache_values(tp) for b in self.blocks if b.mixer is not None)
        return values * bytes_per_value

    def state_bytes_per_sequence(self, bytes_per_value: float, tp: int = 1) -> float:
        """Bytes that mixers without a cache keep of one sequence, however long."""
        values = sum(b.count * b.mixer.state_values(tp) for b in self.blocks if b.mixer is not None)
        return values * bytes_per_value

    def source_bytes_per_token(self, bytes_per_value: float, tp: int = 1) -> float:
        """Cache bytes on one rank of one token that a tower has made, where layers look at them."""
        attends = [(b.count, half) for b in self.blocks for half in (b.mixer, b.cross)]
        values = sum(n * half.source_values(tp) for n, half in attends if isinstance(half, CrossAttention))
        return values * bytes_per_value

    def weight_bytes(self) -> dict[str, float]:
        """Stored bytes by number format, scales included, without the layers of `mtp`."""
        rest = plain(self.working_dtype)
        total: dict[str, float] = {}
        for tensor, format in self._stored():
            chosen = format or rest
            size = tensor.copies * chosen.bytes(tensor.rows, tensor.columns)
            total[chosen.name] = total.get(chosen.name, 0.0) + size
        return total

    def _stored(self) -> Iterator[tuple[Tensor, Format | None]]:
        """Every tensor with the format it is stored in; None where that is what is not quantised."""
        yield Tensor(VECTOR, self.end_parameters), None
        if self.head_parameters:
            yield Tensor("head", self.vocab, self.head_parameters // self.vocab), self.head_format
        yield from _stored(self.blocks, self.hidden, self.norm_parameters)
        for tower in self.towers:
            yield Tensor(VECTOR, tower.end_parameters), None
            yield from _stored(tower.blocks, tower.hidden, tower.norm_parameters)


def _stored(blocks: Iterable[Block], hidden: int, norm: int) -> Iterator[tuple[Tensor, Format | None]]:
    for block in blocks:
        formats = dict(block.formats)
        for tensor in block.tensors(hidden, norm):
            yield replace(tensor, copies=tensor.copies * block.count), formats.get(tensor.role)
