"""Live Avatar (Huang et al. 2025): each denoising step on a GPU of its own, so that frames come at the rate of one."""

from __future__ import annotations

from collections.abc import Iterator

import gnomon
from gnomon.papers.base import Ours

MODEL, ON = "wan-2.1-t2v-14b", "H800-SXM-80GB"
WIDTH, HEIGHT, PATCH = 720, 400, 16
LATENTS, FRAMES = 3, 4
"""Latent frames of a block, and frames of video in each."""


def figures() -> Iterator[Ours]:
    tokens = LATENTS * (WIDTH // PATCH) * (HEIGHT // PATCH)
    step = gnomon.predict(MODEL, on=ON, phase="forward", tokens=tokens, settings={"launch": "graph"})
    for version in ("first", "later"):
        yield f"{version} version", LATENTS * FRAMES / step.time_s.value
