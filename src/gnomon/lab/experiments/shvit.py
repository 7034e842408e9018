"""SHViT: a single head on few tokens, against DeiT of equal accuracy, eager, captured and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from gnomon.lab.base import Check, Compared, Experiment, Findings, LabClaim, LabRow, LabRun, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.launches import CONV, RATES, Tally, graphed, launch_rates, repeated
from gnomon.lab.priced import torch_machine
from gnomon.lab.vision import VisionNetwork, deit, shvit
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

EAGER, GRAPH, COMPILED = "eager", "CUDA graph", "compiled in a CUDA graph"
NETWORKS = {
    "SHViT-S1": shvit("SHViT-S1", (128, 224, 320), (32, 48, 68), (2, 4, 5), 224),
    "SHViT-S4": shvit("SHViT-S4", (224, 336, 448), (48, 72, 96), (4, 7, 6), 256),
    "DeiT-T": deit("DeiT-T", 192, 3, 12, 224),
    "DeiT-S": deit("DeiT-S", 384, 6, 12, 224),
}
"""As the authors of each configure them."""
SMALL = {
    "SHViT-S1": shvit("SHViT-S1", (16, 24, 32), (8, 8, 8), (1, 1, 1), 64),
    "SHViT-S4": shvit("SHViT-S4", (16, 32, 48), (8, 12, 16), (1, 2, 1), 64),
    "DeiT-T": deit("DeiT-T", 32, 2, 2, 64),
    "DeiT-S": deit("DeiT-S", 48, 3, 2, 64),
}
"""Of the same layers, for a CPU."""
PAIRS = (("DeiT-S", "SHViT-S4"), ("DeiT-T", "SHViT-S1"))
"""79.8 and 79.4%, 72.2 and 72.8% of ImageNet right by their papers' tables."""
BOUND = 0.6
"""Of the outputs' root mean square, the largest difference: bf16 through all layers of random weights makes 0.01 to
0.26 on a CPU, a block left out more than 1."""


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    facts: dict[str, Any] = dict(launch_rates(bench))
    checks: list[Check] = []
    notes: list[str] = []
    compared: list[Compared] = []
    networks = _networks(sizes)
    for images in _batches(sizes):
        runs: dict[tuple[str, str], LabRun] = {}
        for network in networks.values():
            modes = {row.shape["mode"] for row in rows(sizes) if _of(row, images, network)}
            bench.tell(f"{network.name}, {images} images")
            bench.release()
            ways = _timed(bench, network, images, sorted(map(str, modes)))
            checks += ways.checks
            notes += ways.notes
            runs |= {(network.name, mode): run for mode, run in ways.runs.items()}
        for row in rows(sizes):
            plain, mine = (runs.get((str(row.shape[name]), str(row.shape["mode"]))) for name in ("plain", "technique"))
            if row.shape["images"] == images and plain and mine:
                compared.append(row.compared(plain, mine, deferred_s=0.0))
    facts |= {f"parameters of {network.name}": network.parameters for network in networks.values()}
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=(*NOTES, *dict.fromkeys(notes)))


NOTES = (
    "bf16, channels last, batch norms folded into convolutions, random weights; accuracies are the papers'",
    "eager: wall time of a pass among others; in a CUDA graph: device time of a pass; images stay on the GPU",
)


def _of(row: LabRow, images: int, network: VisionNetwork) -> bool:
    return row.shape["images"] == images and network.name in (row.shape["plain"], row.shape["technique"])


def _timed(bench: Bench, network: VisionNetwork, images: int, modes: list[str]) -> Ways:
    """A network in each mode, checked against itself in fp64."""
    torch, ways = bench.torch, Ways(bench)
    generator = bench.generator(SEED + 41)
    wide = network.drawn(bench, generator)
    x = bench.normal(images, 3, network.pixels, network.pixels, dtype=torch.float32, generator=generator)
    weights = [weight.to(torch.bfloat16) for weight in wide]
    narrow = x.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
    few = min(images, 4)

    def plain() -> Any:
        return network(torch, narrow, weights)

    calls: dict[str, tuple[Callable[[], Any], Callable[[Bench, Callable[[], Any]], LabRun]]] = {
        EAGER: (plain, repeated),
        GRAPH: (plain, graphed),
        COMPILED: (torch.compile(plain, dynamic=False) if bench.device == "cuda" else plain, graphed),
    }
    with torch.no_grad():
        truth = network(torch, x[:few].double(), wide)
        del wide
        for mode in modes:
            call, timed = calls[mode]
            what = f"{network.name}, {images} images, {mode}"
            found = ways.attempt(what, call)
            if found is None:
                continue
            near = close(f"{what}: against fp64", found[:few], truth, BOUND)
            ways.checks.append(near)
            run = ways.attempt(f"{what}, timed,", partial(timed, bench, call)) if near.ok else None
            if run is not None:
                ways.runs[mode] = run
    return ways


def _networks(sizes: Mapping[str, int]) -> Mapping[str, VisionNetwork]:
    return NETWORKS if sizes["published"] else SMALL


def _batches(sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((sizes["images"], 1)))


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    return tuple(_rows(sizes))


def _rows(sizes: Mapping[str, int]) -> Iterator[LabRow]:
    for images in _batches(sizes):
        for plain, technique in PAIRS:
            compiled = (COMPILED,) if (plain, technique) == PAIRS[0] else ()
            for mode in (GRAPH, EAGER) if images == 1 else (GRAPH, *compiled):
                shape = {"images": images, "plain": plain, "technique": technique, "mode": mode}
                count = "1 image" if images == 1 else f"{images} images"
                yield LabRow(
                    what=f"{count}, {technique} against {plain}, {mode}",
                    shape=shape | {"published": sizes["published"]},
                )


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """The kernels of each network; eager, launches where they take longer."""
    networks, machine = _networks({"published": int(row.shape["published"])}), torch_machine(chip)
    images, mode = int(row.shape["images"]), row.shape["mode"]

    def seconds(name: str) -> float:
        tally = networks[name].tally(Tally(machine), images, fused=mode == COMPILED)
        return max(tally.device_s, tally.host_s(rates)) if mode == EAGER else tally.device_s

    by = f"convolutions, GEMMs, attention and streams of {chip.name}"
    by += ", launches as the run measured them alone" if mode == EAGER else ""
    return Predicted.of_seconds(seconds(str(row.shape["plain"])), seconds(str(row.shape["technique"])), by)


EXPERIMENT = Experiment(
    slug="shvit",
    title="SHViT: a single head on few tokens, against DeiT of equal accuracy",
    checks="each network's outputs in bf16 equal its own in fp64 within what bf16 rounds, in every mode",
    claim=LabClaim(
        what="3.3 times the images per second of MobileViTv2 x1.0 on an A100 by SHViT-S4, with 1.3% higher accuracy",
        comparable=False,
        why="the paper's baseline is another network, traced, in fp16 and eager; here it is the transformer of equal "
        "accuracy, in bf16",
    ),
    sizes=(
        Size("images", "images of the large batch", default=256, on_cpu=3, most=4096),
        Size("published", "networks as published (1), or small ones of the same layers (0)", default=1, on_cpu=0,
             least=0, most=1),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=(*RATES, CONV),
)  # fmt: skip
