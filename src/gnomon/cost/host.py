"""What an engine's host adds to the device's work: launches, gaps between steps, padding to captured sizes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.draws import normals
from gnomon.spec import Batch, Estimate, Provenance

LAUNCH_SPREAD = 0.44
"""Log standard deviation from host to host of the seconds in which Python launches a kernel. Three rented machines with
an H200 and the same software took that for the same launches (`host_spread` in `engines/vllm/features.yaml`); training
engines were measured on one, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSteps:
    """Steps as an engine runs them: padded, with the seconds that its host needs for all of them at least, and those
    that the device idles between them."""

    padded: Batch
    host_s: float
    gap_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostModel:
    """Host seconds of any step of one model under one engine: the only place where they are worked out."""

    eager_launch_s: float
    """To prepare and launch a step kernel by kernel."""
    captured_launch_s: float = 0.0
    """To prepare and launch a step with prompts from captured pieces."""
    decode_base_s: float = 0.0
    """Between two captured decode steps at least."""
    decode_sequence_s: float = 0.0
    gap_base_s: float = 0.0
    """Idle time of the device between two steps."""
    gap_sequence_s: float = 0.0
    launch_sequence_s: float = 0.0
    """To launch a step with prompts, or one beyond the captured sizes: more for each sequence in it."""
    launch_prompt_s: float = 0.0
    """And for each prompt, which the engine takes in and places in its batch."""
    captured: tuple[int, ...] = ()
    """Token counts with a captured graph, rising; a smaller step is padded up to the next."""
    spread: float = 0.0
    """What all these times may be off by together (log)."""
    source: str = ""

    @property
    def largest(self) -> int:
        """Tokens of the largest captured step."""
        return self.captured[-1] if self.captured else 0

    @property
    def factors(self) -> NDArray[np.float64]:
        """What each draw multiplies these times by."""
        return np.asarray(np.exp(self.spread * normals(self.source)))

    def estimate(self, seconds: float) -> Estimate:
        """Seconds of this host with its draws."""
        return Estimate(seconds, seconds * self.factors, Provenance.FITTED, self.source)

    def drawn(self, draw: int) -> HostModel:
        """All of it slower or faster by one draw of the spread."""
        factor = float(self.factors[draw])
        times = {name: getattr(self, name) * factor for name in self.__dataclass_fields__ if name.endswith("_s")}
        return replace(self, **times)

    def padded(self, tokens: float) -> float:
        return self.captured[bisect_left(self.captured, tokens)] if tokens <= self.largest else tokens

    def gap(self, sequences: float) -> float:
        return self.gap_base_s + self.gap_sequence_s * sequences

    def launch(self, tokens: float, sequences: float, prompts: float) -> float:
        """Host seconds to launch a step with prompts."""
        base = self.captured_launch_s if tokens <= self.largest else self.eager_launch_s
        return base + self.launch_sequence_s * sequences + self.launch_prompt_s * prompts

    def decode(self, sequences: float) -> float:
        """Least seconds of a decode step on the host; a batch larger than any captured one is launched kernel by
        kernel."""
        least = self.decode_base_s + self.decode_sequence_s * sequences
        return least if sequences <= self.largest else max(least, self.launch(sequences, sequences, 0))

    def dp_padded(self, steps: Batch) -> bool:
        """Whether data-parallel ranks are padded to the size of the busiest in all of these steps."""
        return bool((steps.tokens <= self.largest).all())

    def steps(self, batch: Batch) -> HostSteps:
        """These steps, one after the other."""
        tokens = batch.tokens
        rows = list(
            zip(tokens.tolist(), (batch.decodes + batch.prefills).tolist(), batch.prefills.tolist(), strict=True)
        )
        padding = np.array([self.padded(new) - new for new, _, _ in rows])
        return HostSteps(
            padded=replace(batch, prefill_tokens=batch.prefill_tokens + padding),
            host_s=sum(self.launch(*row) if row[2] else self.decode(row[1]) for row in rows),
            gap_s=sum(self.gap(sequences) for _, sequences, _ in rows),
        )
