"""How InferenceX's disaggregated servers were started: what its table does not say and its configurations do.

Facts of `.github/configs/nvidia-master.yaml` of github.com/SemiAnalysisAI/InferenceX, of January 2026 (image
tensorrtllm-runtime 0.5.1-rc0, limits as environment variables) and of March 2026 (0.8.1, one recipe of
github.com/ishandhanani/srt-slurm for each point, whose name has the limit: `ctx1_gen4_tep8_batch32_eplb0_mtp0`). The
table says neither whether MTP drafts tokens nor how many requests a decode replica runs at once (its
`decode_batch_size` is clients over replicas). Points with and without MTP are lists of their own; where both have a
point of the same chips, lengths, clients and decode replicas, the row may be either.

Recipes that were read set, alike on H100, B200 and GB200: a cache in fp8, no block reuse, no chunked prefill, CUDA
graphs with padding up to the limit and as many tokens of a step in decode, the overlap scheduler off in prefill; on
Blackwell `moe_config.backend` TRTLLM where attention is cut over ranks, DEEPGEMM of fp8 weights where it is not.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORT, LONG, WRITING = (1024, 1024), (8192, 1024), (1024, 8192)
OFF, EITHER, ON = "off", "either", "on"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeScript:
    """Points of one list: decode replicas of so many chips and the most requests that one runs (with data-parallel
    attention, that one rank runs)."""

    chip: str
    precision: str
    lengths: tuple[int, int]
    clients: tuple[int, ...]
    replicas: int
    ranks: int
    most: int
    mtp: str = OFF
    """Whether MTP drafts tokens; `either` where a list with and one without it have the point."""
    release: str = "0.8.1"


B200, GB200, H100 = "B200-SXM-180GB", "GB200", "H100-SXM-80GB"


def _of(
    chip: str, precision: str, lengths: tuple[int, int], clients: tuple[int, ...], *shape: int, mtp: str = OFF,
    release: str = "0.8.1",
) -> DecodeScript:  # fmt: skip
    replicas, ranks, most = shape
    return DecodeScript(
        chip=chip, precision=precision, lengths=lengths, clients=clients, replicas=replicas, ranks=ranks, most=most,
        mtp=mtp, release=release,
    )  # fmt: skip


SCRIPTS = (
    _of(B200, "fp4", SHORT, (4096,), 1, 8, 512),
    _of(B200, "fp4", SHORT, (2192,), 2, 8, 128),
    _of(B200, "fp4", SHORT, (10, 15, 25, 45, 90, 180), 5, 8, 32, mtp=EITHER),
    _of(B200, "fp4", SHORT, (450,), 6, 8, 64),
    _of(B200, "fp4", LONG, (10, 15), 5, 8, 8, mtp=EITHER),
    _of(B200, "fp4", LONG, (25, 50, 100), 5, 8, 8),
    _of(B200, "fp4", LONG, (370,), 5, 8, 64),
    _of(B200, "fp8", SHORT, (4096,), 1, 8, 512),
    _of(B200, "fp8", SHORT, (1920,), 5, 8, 48),
    _of(B200, "fp8", LONG, (1,), 1, 8, 1),
    _of(B200, "fp8", LONG, (32, 128), 4, 8, 32),
    _of(B200, "fp8", LONG, (96,), 6, 8, 16),
    _of(B200, "fp8", LONG, (128,), 1, 8, 128),
    _of(B200, "fp8", LONG, (128,), 2, 8, 64),
    _of(B200, "fp8", LONG, (256,), 1, 8, 256),
    _of(B200, "fp8", LONG, (640,), 1, 8, 640),
    _of(GB200, "fp4", SHORT, (4, 8, 16, 32, 64), 4, 8, 128, mtp=EITHER, release="0.5.1"),
    _of(GB200, "fp4", SHORT, (128, 256, 564), 4, 8, 128, release="0.5.1"),
    _of(GB200, "fp4", LONG, (3, 6, 12, 24), 3, 8, 32, mtp=EITHER, release="0.5.1"),
    _of(GB200, "fp4", LONG, (48, 102), 3, 8, 32, release="0.5.1"),
    _of(GB200, "fp4", LONG, (256,), 1, 32, 16, release="0.5.1"),
    _of(GB200, "fp4", SHORT, (6144,), 2, 4, 768),
    _of(GB200, "fp4", SHORT, (12, 24, 48), 4, 8, 32, mtp=EITHER),
    _of(GB200, "fp4", SHORT, (96, 192), 4, 8, 32),
    _of(GB200, "fp4", WRITING, (7,), 7, 8, 1, mtp=ON),
    _of(GB200, "fp4", WRITING, (60,), 15, 4, 4),
    _of(GB200, "fp4", WRITING, (135,), 15, 4, 8),
    _of(GB200, "fp4", WRITING, (2048,), 1, 32, 64),
    _of(GB200, "fp4", WRITING, (4096,), 1, 32, 128),
    _of(GB200, "fp4", WRITING, (8192,), 1, 32, 256, mtp=EITHER),
    _of(GB200, "fp4", LONG, (12,), 4, 8, 16, mtp=EITHER),
    _of(GB200, "fp4", LONG, (44, 76), 4, 8, 16),
    _of(GB200, "fp4", LONG, (4096,), 1, 16, 256),
    _of(GB200, "fp8", SHORT, (6144,), 1, 8, 768),
    _of(GB200, "fp8", SHORT, (256,), 1, 32, 8),
    _of(GB200, "fp8", SHORT, (27,), 3, 8, 8),
    _of(GB200, "fp8", SHORT, (3,), 3, 8, 1),
    _of(GB200, "fp8", WRITING, (8192,), 2, 16, 256, mtp=EITHER),
    _of(GB200, "fp8", WRITING, (2048,), 1, 32, 64),
    _of(GB200, "fp8", WRITING, (36,), 4, 8, 8),
    _of(GB200, "fp8", WRITING, (4,), 4, 8, 1, mtp=EITHER),
    _of(GB200, "fp8", LONG, (63,), 3, 8, 16),
    _of(GB200, "fp8", LONG, (18,), 3, 8, 4),
    _of(GB200, "fp8", LONG, (6,), 3, 8, 1, mtp=EITHER),
    _of(H100, "fp8", SHORT, (6,), 3, 16, 1, mtp=EITHER),
    _of(H100, "fp8", SHORT, (9,), 3, 16, 2, mtp=EITHER),
    _of(H100, "fp8", SHORT, (30,), 3, 16, 8, mtp=EITHER),
    _of(H100, "fp8", SHORT, (60,), 3, 16, 16, mtp=EITHER),
    _of(H100, "fp8", LONG, (6,), 3, 16, 1, mtp=EITHER),
    _of(H100, "fp8", LONG, (9,), 3, 16, 2, mtp=EITHER),
    _of(H100, "fp8", LONG, (30,), 3, 16, 8, mtp=EITHER),
    _of(H100, "fp8", LONG, (154,), 2, 16, 64),
)  # fmt: skip


def decode_script(
    chip: str, precision: str, lengths: tuple[int, int], clients: int, shape: tuple[int, int], version: str
) -> DecodeScript | None:
    """The point that a row is of, by its decode replicas and their chips (`shape`); None where no list has it."""
    for found in SCRIPTS:
        same = (found.chip, found.lengths, found.replicas, found.ranks) == (chip, lengths, *shape)
        if same and clients in found.clients and found.precision in precision and version.startswith(found.release):
            return found
    return None
