"""One rank's part of a network."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.graph.ops import TOKENS, Rows
from gnomon.spec.training import ONCE, ONCE_NARROW


@dataclass(frozen=True, slots=True, kw_only=True)
class Paged:
    """Steps of prompts and decodes over a paged cache, as serving engines run them."""

    dtype: str
    """The format that most weights are served in."""
    kv_dtype: str
    state_dtype: str
    """Of what mixers without a cache keep."""
    one_sum: bool = False
    """Parallel halves are added before the all-reduce, not after."""
    gathered: float = 1.0
    """Tokens of all data-parallel ranks over those of this one."""
    sequence_parallel_moe: bool = False
    """Tensor-parallel ranks split their tokens before experts that several data-parallel ranks share."""
    dp: int = 1
    pp: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How a layer is sharded, and the length of a sequence. Tokens of a batch are those of one context-parallel
    rank."""

    seq: int = 0
    tp: int = 1
    sequence_parallel: bool = False
    """Tensor-parallel ranks also hold a part of the tokens between the matrices."""
    dtype: str = "bf16"
    matrix: str = ""
    """The format that GEMMs with weights run in, where it is narrower than activations."""
    tp_overlap: bool = False
    """Their collectives are cut into pieces, which overlap with the GEMMs beside them."""
    cp: int = 1
    """Ranks a sequence lies on."""
    cp_comm: str = "p2p"
    """How they exchange keys and values: one of `spec.training.CP_COMM_NAMES`."""
    cp_a2a: int = 0
    """Of them, neighbours that trade tokens for heads, where keys travel around a ring of the others."""
    ep: int = 1
    """Ranks the experts of a layer lie on."""
    expert_tp: int = 1
    """Ranks that each expert's matrices are cut over."""
    dispatch: str = ""
    """How tokens get to experts of other ranks: one of `spec.training.DISPATCHES`."""
    capacity_factor: float = 0.0
    """Rows that an expert takes at most, of an equal share; 0 where none is dropped."""
    pad_to_capacity: bool = False
    """Experts compute as many rows as they may take."""
    cuda_graphs: bool = False
    """What has the same sizes in every step is replayed from CUDA graphs."""
    imbalance: float = 1.0
    """Rows of the rank whose experts get most, over the mean."""
    paged: Paged | None = None
    """None where whole sequences run, as in training."""
    inference: bool = False
    """Outside training, as plain kernels run a step: prompts whole, decodes over a cache that is allocated anew."""
    source: int = 0
    """Tokens of a tower that each sequence attends to."""
    grid: tuple[int, int] = (0, 0)
    """Patches down and across, of an image."""

    @property
    def share(self) -> float:
        """The part of the tokens a rank holds between the matrices."""
        return 1 / self.tp if self.sequence_parallel else 1.0

    @property
    def rows(self) -> Rows:
        return Rows("tokens", self.share)

    @property
    def cached(self) -> bool:
        """Whether tokens meet what earlier steps have left; else whole sequences run from their first token to a
        loss."""
        return self.paged is not None or self.inference

    @property
    def useful_rows(self) -> float:
        """Rows that experts compute for tokens, of those that tokens ask for: at least, where some get more."""
        return min(1.0, self.capacity_factor) if self.capacity_factor else 1.0

    @property
    def sent_rows(self) -> float:
        """Rows that a rank sends to experts, of those that its tokens ask for."""
        return self.capacity_factor if self.pad_to_capacity else self.useful_rows

    @property
    def busiest_rows(self) -> float:
        """Rows of the rank whose experts get most, of an equal share without drops: others wait for it."""
        uneven = self.imbalance if self.ep > 1 else 1.0
        if not self.capacity_factor:
            return uneven
        return self.capacity_factor if self.pad_to_capacity else min(uneven, self.capacity_factor)

    @property
    def sent_once(self) -> bool:
        """Whether a rank gets a token once for all of its experts."""
        return self.ep > 1 and self.dispatch in (ONCE, ONCE_NARROW)

    def per_token(self, rows: Rows) -> float:
        """Of rows that a step has, how many for each of its tokens."""
        once = rows.of == "prefills" and self.seq
        return rows.factor * self.cp / self.seq if once else rows.factor

    @property
    def routed(self) -> Rows:
        """Tokens that a rank routes to experts."""
        split = self.paged is not None and self.paged.sequence_parallel_moe
        return Rows("tokens", 1 / self.tp) if split else TOKENS if self.paged else self.rows
