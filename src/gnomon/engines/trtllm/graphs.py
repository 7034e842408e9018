"""CUDA graphs of TensorRT-LLM 1.2: which decode steps it captures, and how the others run.

Steps with prompts are never captured (`ScheduledRequests.can_run_cuda_graph`). Without padding, which is the default, a
decode step of any other size than a captured one is launched kernel by kernel too (`CUDAGraphRunner`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnomon.cost.host import HostModel

DEFAULT_LARGEST = 128
"""`CudaGraphConfig.max_batch_size` where none is given."""


def batch_sizes(largest: int, padded: bool) -> list[int]:
    """Sizes of decode steps up to the largest (`CudaGraphConfig._generate_cuda_graph_batch_sizes`)."""
    few = [1, 2, 4, *range(8, 129, 8)] if padded else [*range(1, 33), 64, 128]
    powers = [2**power for power in range(8, math.ceil(math.log2(largest)))] if largest > 1 else []
    return sorted({size for size in (*few, *powers) if size <= largest} | {largest})


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpaddedHost(HostModel):
    """A host whose decode steps are captured at some sizes alone. `captured` has every size up to the largest, as no
    step is padded."""

    graphs: frozenset[int] = frozenset()

    def decode(self, sequences: float) -> float:
        least = self.decode_base_s + self.decode_sequence_s * sequences
        return least if sequences in self.graphs else max(least, self.launch(sequences, sequences, 0))
