"""Counts what the steps of a run did."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.sim.serving.run import StepTotals


class Tally:
    """Running sums over steps; whole numbers stay whole."""

    __slots__ = (
        "busy_s",
        "context",
        "decodes",
        "pairs",
        "peak_sequences",
        "peak_tokens",
        "prefills",
        "reads",
        "steps",
        "tokens",
    )

    def __init__(self) -> None:
        self.busy_s = 0.0
        self.steps = self.decodes = self.context = self.peak_sequences = self.peak_tokens = 0
        self.prefills = self.tokens = self.pairs = self.reads = 0

    def decode(self, decodes: int, context: int, steps: int, seconds: float) -> None:
        """Steps of decodes alone, which start from `context` cached tokens together."""
        self.steps += steps
        self.busy_s += seconds
        self.decodes += decodes * steps
        self.context += context * steps + decodes * (steps * (steps + 1) // 2)
        if decodes > self.peak_sequences:
            self.peak_sequences = decodes

    def mixed(self, decodes: int, context: int, chunks: Sequence[tuple[int, int]], seconds: float) -> None:
        """One step of decodes and prompt chunks (new tokens, cached tokens)."""
        self.steps += 1
        self.busy_s += seconds
        self.decodes += decodes
        self.context += context + decodes
        self.prefills += len(chunks)
        before = self.tokens - decodes
        for new, cached in chunks:
            self.tokens += new
            self.pairs += new * cached + new * (new + 1) // 2
            self.reads += new + cached
        if self.tokens - before > self.peak_tokens:
            self.peak_tokens = self.tokens - before
        sequences = decodes + len(chunks)
        if sequences > self.peak_sequences:
            self.peak_sequences = sequences

    def totals(self) -> StepTotals:
        return StepTotals(
            steps=self.steps,
            decodes=self.decodes,
            decode_context=self.context,
            prefills=self.prefills,
            prefill_tokens=self.tokens,
            prefill_pairs=self.pairs,
            prefill_context=self.reads,
        )
