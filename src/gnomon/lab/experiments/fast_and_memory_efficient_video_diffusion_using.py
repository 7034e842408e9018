"""Streamlined inference: a video decoder by slices of frames and of rows, against all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gnomon.lab.base import (
    BF16_BYTES,
    Check,
    Compared,
    Experiment,
    Findings,
    LabClaim,
    LabRow,
    LabRun,
    Predicted,
    Rates,
    Size,
)
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.launches import Tally
from gnomon.lab.priced import torch_machine
from gnomon.lab.video import GROUPS, LATENT, VideoDecoder, VideoShape, Walk, parameters, walked
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

WHOLE, COMPILED, SLICED = "all at once", "compiled, all at once", "in slices"
BOUND, EXACT = 0.6, 1e-9
"""Of the outputs' root mean square, the largest difference: bf16 through all layers, 0.16 among the 18,432 values of a
small decoder on a CPU; and in fp64."""


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    torch = bench.torch
    checks, ways = [_exact(bench)], Ways(bench)
    decoder = VideoDecoder.drawn(bench, sizes["channels"], torch.bfloat16)
    generator = bench.generator(SEED + 52)
    x = bench.normal(
        sizes["frames"], LATENT, sizes["rows"], sizes["columns"], dtype=torch.bfloat16, generator=generator
    )
    whole = partial(decoder.whole, x)
    calls: dict[str, Callable[[], Any]] = {
        WHOLE: whole,
        SLICED: partial(decoder.sliced, x, sizes["slices"]),
        COMPILED: torch.compile(whole, dynamic=False) if bench.device == "cuda" else whole,
    }
    facts: dict[str, Any] = {"parameters": parameters(sizes["channels"])}
    truth = None
    with torch.no_grad():
        for name, call in calls.items():
            bench.tell(name)
            found = ways.attempt(name, call)
            if found is None:
                continue
            truth = found if truth is None else truth
            if name != WHOLE:
                ways.checks.append(close(f"{name}, against {WHOLE}", found, truth, BOUND))
            del found
            bench.release()
            run = ways.attempt(f"{name}, timed,", partial(bench.wall, call, sizes["repeats"]))
            if run is not None:
                ways.runs[name] = run
    found_rows = [_compared(row, ways.runs) for row in rows(sizes)]
    compared = tuple(row for row in found_rows if row is not None)
    return Findings(
        checks=(*checks, *ways.checks), compared=compared, facts=facts, notes=(*NOTES, *ways.notes)
    )  # fmt: skip


NOTES = (
    "the temporal decoder of Stable Video Diffusion without its attention, random weights in bf16, channels first as "
    "diffusers has them; memory is the most that PyTorch allocated, weights and workspaces with it",
    "slices of frames in spatial blocks, of rows in temporal ones, whose norms are over all frames and places: their "
    "sums are taken first, so that nothing differs but rounding",
)


def _exact(bench: Bench) -> Check:
    """A small decoder in fp64: slices give what all at once gives."""
    torch = bench.torch
    decoder = VideoDecoder.drawn(bench, GROUPS, torch.float64)
    x = bench.normal(5, LATENT, 3, 4, dtype=torch.float64, generator=bench.generator(SEED + 53))
    with torch.no_grad():
        return close("a small decoder in fp64, in slices", decoder.sliced(x, 3), decoder.whole(x), EXACT)


def _compared(row: LabRow, runs: Mapping[str, LabRun]) -> Compared | None:
    plain, mine = (runs.get(str(row.shape[name])) for name in ("plain", "technique"))
    if plain is None or mine is None:
        return None
    return row.compared(plain, mine, deferred_s=0.0)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shape = {name: sizes[name] for name in ("frames", "rows", "columns", "channels", "slices")}
    return tuple(
        LabRow(
            what=f"{'GPU memory' if unit == 'bytes' else 'time'} of a decode, {SLICED} against {plain}",
            shape=shape | {"plain": plain, "technique": SLICED},
            unit=unit,
        )
        for plain in (WHOLE, COMPILED)
        for unit in ("bytes", "seconds")
    )


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Live tensors operator by operator, and the workspaces of convolutions that turn channels first to last, which
    compiled ones do without; kernels one after the other."""
    sizes = {name: int(row.shape[name]) for name in row.shape if name not in ("plain", "technique")}
    shape = VideoShape(
        frames=sizes["frames"], rows=sizes["rows"], columns=sizes["columns"], base=sizes["channels"]
    )  # fmt: skip
    weights = BF16_BYTES * parameters(shape.base)

    def walk(way: str) -> Walk:
        compiled = way == COMPILED
        steps = Walk(Tally(torch_machine(chip)), turns=not compiled, fused=compiled)
        return walked(steps, shape, sizes["slices"] if way == SLICED else 1)

    plain, mine = walk(str(row.shape["plain"])), walk(str(row.shape["technique"]))
    if row.unit == "bytes":
        by = "live tensors of each operator, and workspaces of convolutions whose channels come first"
        return Predicted(gain=(weights + plain.peak) / (weights + mine.peak), by=by)
    by = f"convolutions and streams of {chip.name}"
    return Predicted.of_seconds(plain.tally.device_s, mine.tally.device_s, by)


EXPERIMENT = Experiment(
    slug="fast-and-memory-efficient-video-diffusion-using",
    title="Streamlined inference: a video decoder by slices of frames and of rows",
    checks="slices give in fp64 what all frames at once give, and in bf16 within what it rounds",
    claim=LabClaim(
        what="42 to 11 GB for AnimateDiff and 39.5 to 23.4 GB for Stable Video Diffusion",
        comparable=False,
        why="the paper's are whole pipelines as the driver counts their memory; this is one decoder without attention, "
        "as PyTorch's allocator counts it",
    ),
    sizes=(
        Size("frames", "frames decoded at once", default=14, on_cpu=4, most=1000),
        Size("rows", "rows of the latents", default=72, on_cpu=4, most=1024),
        Size("columns", "columns of the latents", default=128, on_cpu=6, most=1024),
        Size("channels", "of the last level; a multiple of 32", default=128, on_cpu=32, least=32, most=1024),
        Size("slices", "of frames, and of rows", default=7, on_cpu=3, least=2, most=1000),
        Size("repeats", "timed repeats", default=5, on_cpu=1, most=100),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
