"""One rank's part of a network in training."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.graph.ops import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How a layer is sharded, and the length of a sequence. Tokens of a batch are those of one context-parallel
    rank."""

    seq: int
    tp: int = 1
    sequence_parallel: bool = False
    """Tensor-parallel ranks also hold a part of the tokens between the matrices."""
    dtype: str = "bf16"
    matrix: str = ""
    """The format that GEMMs with weights run in, where it is narrower than activations."""
    cp: int = 1
    """Ranks a sequence lies on."""
    cp_comm: str = "p2p"
    """How they exchange keys and values: one of `spec.training.CP_COMMS`."""
    ep: int = 1
    """Ranks the experts of a layer lie on."""
    expert_tp: int = 1
    """Ranks that each expert's matrices are cut over."""

    @property
    def share(self) -> float:
        """The part of the tokens a rank holds between the matrices."""
        return 1 / self.tp if self.sequence_parallel else 1.0

    @property
    def rows(self) -> Rows:
        return Rows("tokens", self.share)
