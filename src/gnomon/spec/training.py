"""A training job: its load, and how one step is carried out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from gnomon.spec.recompute import RECOMPUTE as RECOMPUTE

if TYPE_CHECKING:
    from gnomon.spec.loads.sequences import Sequences

CP_COMMS = ("p2p", "a2a", "allgather")
"""How ranks that share a sequence meet each other's keys: keys travel around a ring, tokens are traded for heads, or
every rank gathers all keys."""
TWO_LEVELS = "a2a+p2p"
"""Neighbours trade tokens for heads, and keys travel around a ring of such groups."""
CP_COMM_NAMES = (*CP_COMMS, TWO_LEVELS)
ALL_TO_ALL, ONCE, ONCE_NARROW = "alltoall", "deepep", "deepep-fp8"
DISPATCHES = ("", ALL_TO_ALL, ONCE, ONCE_NARROW)
"""How tokens get to their experts on other ranks: as the engine usually sends them, a copy for each expert, or once to
every node and every rank (DeepEP), there in 16 bits or in eight."""
OPTIMIZERS = ("adamw", "adamw-bf16", "adamw-moments-bf16", "adam8bit", "sgd", "adafactor", "lion", "muon")
"""AdamW with fp32 weights and moments beside the working weights, with everything in bf16, and with moments in bf16
beside fp32 weights (Megatron-LM's precision-aware optimizer); moments of a byte each; one momentum (sgd, lion, muon); a
row and a column of second moments a matrix (adafactor). All but adamw-bf16 keep fp32 weights."""
RUN = OPTIMIZERS[:2]
"""Those that every engine has."""
MAX_ZERO = 3
NONE, MAX_LENGTH, WRAPPED, BFD, FFD, PADDING_FREE = PACKINGS = (
    "none", "max-length", "wrapped", "bfd", "ffd", "padding-free",
)  # fmt: skip
"""How batches are made of sequences that differ in length: padded to the longest sequence of a micro-batch; padded to
the most there may be; put one after the other and cut; packed best-fit or first-fit decreasing; the sequences of a
micro-batch one after the other, without padding."""
RANDOM, GROUP_BY_LENGTH, BALANCED = SAMPLINGS = ("random", "group-by-length", "balanced")
"""Which sequences come together: any; of similar length (transformers' `group_by_length`); any, and dealt out within
a step so that data-parallel ranks have equal work."""
VISION, PROJECTOR = "vision", "projector"
"""Parts of a vision-language model that may be frozen: its tower, and what leads from it to the decoder."""
BESIDE_TEXT = ("images", "image", "source", "freeze", "mtp_layers")
"""Fields of a load that say what is trained beside a decoder's text."""
FURTHER = "multi-token prediction"
"""How an answer names the layers of a model that predict further tokens, where a step trains none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLoad:
    """Sequences of `seq` tokens, `global_batch` of them per step (packed ones, where documents are packed); `tokens` is
    the whole run, where one is asked for."""

    seq: int
    global_batch: int
    tokens: float | None = None
    sequences: Sequences | None = None
    """Where sequences differ in length: then `seq` is the most tokens of one, and what they are packed to."""
    images: int = 0
    """Of each sequence, through the vision tower; 0 trains the decoder on text alone."""
    image: str = ""
    """Their size, `1024x768`, the width first; what the tower was made for where nothing is said."""
    source: int = 0
    """Tokens of the encoder's sequence, or of the text that a diffusion transformer attends to; 0 for the most."""
    freeze: str = ""
    """Parts that do not learn, `vision` or `vision,projector`."""
    mtp_layers: int = 0
    """Layers that predict tokens after the next."""

    @property
    def together(self) -> dict[str, Any]:
        """What is trained beside a decoder's text, where it is given."""
        return {name: value for name in BESIDE_TEXT if (value := getattr(self, name))}

    @property
    def step_tokens(self) -> float:
        """Tokens of a step, without padding; the mean where sequences differ."""
        if self.sequences is None:
            return self.seq * self.global_batch
        return self.sequences.row_tokens(self.seq) * self.global_batch

    @property
    def steps(self) -> int | None:
        """Whole steps of the run, the last one begun included."""
        return None if self.tokens is None else math.ceil(self.tokens / self.step_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a step is carried out, beside its parallel degrees. A plan writes it as its engine's settings."""

    micro_batch: int = 1
    """Sequences a rank takes through the network at a time."""
    schedule: str = "1f1b"
    """The order of a pipeline's passes, by its name in `gnomon.sim.training`."""
    recompute: str = "none"
    """A word of `gnomon.spec.recompute`."""
    zero: int = 0
    """What data-parallel ranks share out: 1 optimizer states, 2 gradients too, 3 weights too."""
    optimizer: str = "adamw"
    sequence_parallel: bool = True
    """Whether tensor-parallel ranks also cut the norms and residuals along the sequence."""
    cp_comm: str = "p2p"
    """One of `CP_COMM_NAMES`, with context parallelism."""
    expert_tp: int = 0
    """Ranks that the matrices of each expert are cut over: 1, or 0 for as many as other matrices are."""
    dp_shard: int = field(default=0, metadata={"seldom": True})
    """Data-parallel ranks that share states out, and replicate what others share (HSDP); 0 for all of them."""
    tp_overlap: bool = field(default=False, metadata={"seldom": True})
    """Whether collectives of tensor parallelism are cut into pieces that overlap with the GEMMs beside them."""
    cp_a2a: int = field(default=0, metadata={"seldom": True})
    """With a2a+p2p, neighbours that trade tokens for heads."""
    fp8_param_gather: bool = field(default=False, metadata={"seldom": True})
    """Whether weights are kept and gathered in the format of their GEMMs, without a copy in 16 bits."""
    bf16_layers: str = field(default="", metadata={"seldom": True})
    """First and last layers whose GEMMs stay in 16 bits where others run in fewer, `1,1`; empty where none do."""
    dispatch: str = field(default="", metadata={"seldom": True})
    """One of `DISPATCHES`."""
    capacity_factor: float = field(default=0.0, metadata={"seldom": True})
    """Tokens that an expert takes at most, of those it gets where all get as many; 0 where none is dropped."""
    pad_to_capacity: bool = field(default=False, metadata={"seldom": True})
    """Whether experts compute as many rows as they could take, so that sizes are the same in every step."""
    imbalance: float = field(default=1.0, metadata={"seldom": True})
    """Tokens of the expert-parallel rank that gets most, over the mean."""
    ep_overlap: bool = field(default=False, metadata={"seldom": True})
    """Whether tokens are exchanged while the other direction of another micro-batch computes."""
    cuda_graphs: bool = field(default=False, metadata={"seldom": True})
    """Whether kernels whose sizes are the same in every step are replayed from CUDA graphs."""
    hpz: int = field(default=0, metadata={"seldom": True})
    """With ZeRO 3, ranks that hold a second copy of the weights between them, which backward passes gather (ZeRO++);
    0 where there is none."""
    layers_per_stage: str = field(default="", metadata={"seldom": True})
    """Layers of every pipeline stage from the embedding to the head, `10,11,11,8`; empty where they are as equal as can
    be. 0 leaves the embedding, or the head and the loss, a stage of their own."""

    @property
    def settings(self) -> dict[str, Any]:
        """Fields by their names, defaults too: a plan says all of how a step is carried out. Those of `SELDOM` are
        named where they are not the default."""
        return {name: value for name, value in asdict(self).items() if name not in SELDOM or value != SELDOM[name]}

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """`layers_per_stage` as numbers; empty where it is not given, and where it is no list of counts."""
        return _counts(self.layers_per_stage)

    @property
    def wide_layers(self) -> tuple[int, ...]:
        """`bf16_layers` as numbers, empty as above."""
        return _counts(self.bf16_layers)


def _counts(text: str) -> tuple[int, ...]:
    words = text.split(",") if text else []
    return tuple(map(int, words)) if all(word.strip().isdecimal() for word in words) else ()


PRECISION = ("fp8_param_gather", "bf16_layers")
"""Fields of a recipe that say more of formats than a plan's own."""
SELDOM: Mapping[str, Any] = {one.name: one.default for one in fields(Recipe) if one.metadata.get("seldom")}
"""Fields of a recipe that most plans leave alone, with their defaults: a plan names them where it sets them."""


def seldom_set(recipe: Recipe) -> dict[str, Any]:
    """Those of a recipe that differ from their defaults."""
    return {name: value for name in SELDOM if (value := getattr(recipe, name)) != SELDOM[name]}


SETTINGS = tuple(one.name for one in fields(Recipe))
"""Names of a recipe's fields, each of which is a flag of `simulate train`."""
