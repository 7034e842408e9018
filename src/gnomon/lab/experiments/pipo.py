"""PIPO: weights read, copied and used in a pipeline, and packed to four bits, against one stage after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gnomon.lab import blocks, staged
from gnomon.lab.base import Check, Compared, Experiment, Findings, LabClaim, LabRow, LabRun, Predicted, Rates, Size
from gnomon.lab.bench import Bench
from gnomon.lab.checkpoint import check_disk
from gnomon.lab.hosted import scratch_folder
from gnomon.lab.priced import copy_bytes_s, stream_s, torch_machine
from gnomon.lab.stream import link_rates
from gnomon.spec import Chip

FILES, MEMORY = "files", "host memory"
RATES = {FILES: "disk_read_bytes_s", MEMORY: "host_copy_bytes_s"}
BF16, INT4 = "bf16", "int4"
PACKED_SHARE = (staged.GROUP / 2 + 2) / (2 * staged.GROUP)
"""Bytes of packed weights over those in bf16."""
ROUNDED = 0.15
"""Root mean square of the error of four-bit weights over theirs; 0.11 for normal weights in groups of 128."""


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    torch, layers, width = bench.torch, sizes["layers"], sizes["width"]
    bench.tell("drawing and packing weights")
    weights = [flat.clone() for flat in blocks.drawn(bench, layers, width)]
    narrow = [staged.packed(torch, flat.to(bench.device)).cpu() for flat in weights]
    wide = [flat.view(torch.uint8) for flat in weights]
    checks = [blocks.against_definition(bench), _rounding(bench, weights[0], narrow[0])]
    facts: dict[str, Any] = {"layer_bytes": wide[0].numel(), "packed_bytes": narrow[0].numel(), **link_rates(bench)}
    x = blocks.inputs(bench, sizes["sequences"], 1, width)
    runs: dict[tuple[str, str, bool], LabRun] = {}
    wanted = {
        BF16: _output(bench, x, iter(weights), sizes["heads"]),
        INT4: _output(bench, x, (staged.unpacked(torch, data.to(bench.device)) for data in narrow), sizes["heads"]),
    }
    with scratch_folder() as folder:
        check_disk(folder, sum(each.numel() for each in (*wide, *narrow)))
        for place in (FILES, MEMORY):
            for form, data in ((BF16, wide), (INT4, narrow)):
                bench.tell(f"{form} from {place}")
                (folder / form).mkdir(exist_ok=True)
                source: staged.Source = staged.Files(folder / form, data) if place == FILES else staged.Pageable(data)
                if bench.timed and form == BF16:
                    facts[RATES[place]] = staged.read_rate(bench, source)
                for ahead in (False, True):
                    run, found = _timed(bench, source, form, ahead, x, sizes)
                    runs[place, form, ahead] = run
                    what = (
                        f"{form} from {place}, {'pipelined' if ahead else 'serial'}: values that differ from resident"
                    )
                    checks.append(Check(what=what, difference=float((found != wanted[form]).sum()), bound=0.0))
    compared = [_compared(row, runs) for row in rows(sizes)]
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=NOTES)


NOTES = (
    "a pass of one token of each sequence through all layers, without a cache",
    "serial: a layer is read into a pinned buffer, copied and used before the next is read; int4 rows compare "
    "pipelines",
)


def _rounding(bench: Bench, flat: Any, data: Any) -> Check:
    torch = bench.torch
    apart = staged.unpacked(torch, data).double() - flat.double()
    found = float(apart.square().mean().sqrt() / flat.double().square().mean().sqrt())
    return Check(what="error of four-bit weights, root mean square over theirs", difference=found, bound=ROUNDED)


def _output(bench: Bench, x: Any, weights: Iterator[Any], heads: int) -> Any:
    with bench.torch.no_grad():
        return blocks.run(bench.torch, x, (flat.to(bench.device) for flat in weights), heads).cpu()


def _timed(
    bench: Bench, source: staged.Source, form: str, ahead: bool, x: Any, sizes: Mapping[str, int]
) -> tuple[LabRun, Any]:
    """A way's times, and its output."""
    torch = bench.torch
    pipeline = staged.Pipelined(bench, source) if ahead else None
    coming = pipeline.each() if pipeline else staged.serial(bench, source)

    def weights() -> Iterator[Any]:
        for _ in range(source.count):
            data = next(coming)
            yield data.view(torch.bfloat16) if form == BF16 else staged.unpacked(torch, data)

    def step() -> Any:
        with torch.no_grad():
            return blocks.run(torch, x, weights(), sizes["heads"])

    found = step().cpu()
    run = bench.wall(step, sizes["repeats"], warm=0)
    if pipeline:
        pipeline.close()
    return run, found


def _compared(row: LabRow, runs: Mapping[tuple[str, str, bool], LabRun]) -> Compared:
    place, form = str(row.shape["place"]), str(row.shape["form"])
    plain = runs[place, BF16, form == INT4]
    return row.compared(plain, runs[place, form, True], deferred_s=0.0)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shape = {name: sizes[name] for name in ("layers", "width", "heads", "sequences")}
    told = {BF16: "pipelined against serial", INT4: "four bits against bf16, both pipelined"}
    return tuple(
        LabRow(what=f"a pass from {place}, {told[form]}", shape=shape | {"place": place, "form": form})
        for place in (MEMORY, FILES)
        for form in (BF16, INT4)
    )


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Reading, copying and computing a layer: their sum in series, the longest in a pipeline."""
    shape, machine = row.shape, torch_machine(chip)
    width, layers = int(shape["width"]), int(shape["layers"])
    size = float(blocks.block_bytes(width))
    compute = blocks.forward_s(machine, width, int(shape["heads"]), int(shape["sequences"]), 1)
    reading, link = rates[RATES[str(shape["place"])]], copy_bytes_s(chip)
    stages = (size / reading, size / link, compute)
    # Two kernels that unpack and two that scale in place.
    dequantized = stream_s(machine, size / 2, size) + 2 * stream_s(machine, size, size)
    fewer = (PACKED_SHARE * size / reading, PACKED_SHARE * size / link, compute + dequantized)
    plain, mine = (sum(stages), max(stages)) if shape["form"] == BF16 else (max(stages), max(fewer))
    by = f"kernels of {chip.name}, its host's link, and reads as the run measured them alone"
    return Predicted.of_seconds(layers * plain, layers * mine, by)


EXPERIMENT = Experiment(
    slug="pipo",
    title="PIPO: weights read, copied and used in a pipeline, and packed to four bits",
    checks="outputs equal those with all weights on the GPU, bit by bit, in bf16 and in four bits; the error of four "
    "bits is that of rounding",
    claim=LabClaim(
        what="up to 3.1 times the throughput of the state of the art, GPU utilisation from below 40% to above 90%, on "
        "a laptop's RTX 3060 of 6 GB",
        comparable=False,
        why="the paper's baseline is a whole engine on a laptop; this is the pipeline and the packing, each alone",
    ),
    sizes=(
        Size("layers", "layers of the decoder", default=24, on_cpu=5, most=200),
        Size("width", "its hidden width", default=2048, on_cpu=64, most=32768),
        Size("heads", "its attention heads", default=16, on_cpu=4, most=256),
        Size("sequences", "sequences that decode at once", default=16, on_cpu=3, most=4096),
        Size("repeats", "timed passes", default=3, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=tuple(RATES.values()),
)
