"""Running VLAs at real-time speed: one inference of a pi0-like network, eager, captured, joined and compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gnomon.lab.base import Check, Experiment, Findings, LabClaim, LabRow, LabRun, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.launches import RATES, graphed, launch_rates, repeated
from gnomon.lab.priced import torch_machine
from gnomon.lab.vla import ACTION, SMALL, Counted, Vla, VlaShape, compiled, drawn, joined
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

EAGER, GRAPH, JOINED = "eager", "a CUDA graph", "joined GEMMs in a CUDA graph"
COMPILED, JOINED_COMPILED = "compiled layers in a CUDA graph", "joined GEMMs and compiled layers in a CUDA graph"
FORMS = {EAGER: (False, False), GRAPH: (False, False), JOINED: (True, False)} | {
    COMPILED: (False, True),
    JOINED_COMPILED: (True, True),
}
"""Whether each is joined, and compiled."""
PAIRS = ((COMPILED, JOINED_COMPILED), (GRAPH, JOINED), (EAGER, GRAPH), (EAGER, JOINED_COMPILED))
BOUND, FORM_BOUND, EXACT = 0.1, 0.25, 1e-9
"""Of the root mean square of what is right, the largest difference: two layers of each part in bf16 from fp64, 0.03 on
a CPU; a form of the network from the plain one in bf16, whose layers are many; and joined from plain in fp64."""


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    torch, shape = bench.torch, _shape(sizes)
    facts: dict[str, Any] = dict(launch_rates(bench))
    ways = Ways(bench)
    with torch.no_grad():
        ways.checks += _against_fp64(bench, shape)
        plain = drawn(bench, shape, torch.bfloat16)
        simple = joined(plain)
        there = bench.device == "cuda"
        forms = {
            EAGER: plain,
            GRAPH: plain,
            JOINED: simple,
            COMPILED: compiled(plain) if there else plain,
            JOINED_COMPILED: compiled(simple) if there else simple,
        }
        inputs, truth = _inputs(bench, shape, torch.bfloat16), None
        for name, network in forms.items():
            bench.tell(name)
            call = partial(network, *inputs)
            found = ways.attempt(name, call)
            if found is None:
                continue
            truth = found if truth is None else truth
            near = _near(f"{name}, against {EAGER}", found, truth, FORM_BOUND)
            ways.checks += near
            timed: Callable[[Bench, Callable[[], Any]], LabRun] = repeated if name == EAGER else graphed
            run = ways.attempt(f"{name}, timed,", partial(timed, bench, call)) if all(one.ok for one in near) else None
            if run is not None:
                ways.runs[name] = run
    compared = tuple(
        row.compared(
            ways.runs[str(row.shape["plain"])],
            ways.runs[str(row.shape["technique"])],
            deferred_s=0.0,
            of_paper=row.shape["technique"] != GRAPH,
        )
        for row in rows(sizes)
        if row.shape["plain"] in ways.runs and row.shape["technique"] in ways.runs
    )
    return Findings(checks=tuple(ways.checks), compared=compared, facts=facts, notes=(*NOTES, *ways.notes))


NOTES = (
    "patches of pictures to actions, batch 1, random weights; eager: wall time of an inference among others, in a CUDA "
    "graph: device time",
    "compiled: torch.compile of one layer of each kind, run in all of them",
)


def _inputs(bench: Bench, shape: VlaShape, dtype: Any) -> tuple[Any, Any]:
    generator = bench.generator(SEED + 82)
    pictures = bench.normal(shape.views, shape.patches, shape.vision_width, dtype=dtype, generator=generator)
    return pictures, bench.normal(1, shape.actions, ACTION, dtype=bench.torch.float32, generator=generator)


def _against_fp64(bench: Bench, shape: VlaShape) -> list[Check]:
    """Two layers of each part and two steps."""
    torch = bench.torch
    few = replace(shape, vision_layers=2, layers=2, steps=2)
    narrow = drawn(bench, few, torch.bfloat16)
    pictures, noise = _inputs(bench, few, torch.bfloat16)
    wide = widened(narrow)
    truth = wide(pictures.double(), noise.double())
    folded = joined(wide)(pictures.double(), noise.double())
    return [
        *_near("two layers of each part in bf16 against fp64", narrow(pictures, noise), truth, BOUND),
        *_near("joined in fp64", folded, truth, EXACT),
    ]


def _near(what: str, found: tuple[Any, Any], truth: tuple[Any, Any], bound: float) -> list[Check]:
    names = ("what the steps added", "the pictures' last values")
    return [close(f"{what}, {name}", mine, right, bound) for name, mine, right in zip(names, found, truth, strict=True)]


def widened(network: Vla) -> Vla:
    """In fp64."""
    weights = {
        part: [{name: each.double() for name, each in layer.items()} for layer in layers]
        for part, layers in network.weights.items()
    }
    ends = {name: each.double() for name, each in network.ends.items()}
    angles = {count: (pair[0].double(), pair[1].double()) for count, pair in network.angles.items()}
    return replace(network, weights=weights, ends=ends, angles=angles)


def _shape(sizes: Mapping[str, Any]) -> VlaShape:
    views, steps = int(sizes["views"]), int(sizes["steps"])
    return replace(VlaShape() if int(sizes["published"]) else SMALL, views=views, steps=steps)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shape = {name: sizes[name] for name in ("views", "steps", "published")}
    return tuple(
        LabRow(
            what=f"an inference, {technique} against {plain}", shape=shape | {"plain": plain, "technique": technique}
        )
        for plain, technique in PAIRS
    )


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """The kernels of each form; eager, launches where they take longer."""
    machine, shape = torch_machine(chip), _shape(row.shape)

    def seconds(form: str) -> float:
        tally = Counted(machine, shape, *FORMS[form]).total()
        return max(tally.device_s, tally.host_s(rates)) if form == EAGER else tally.device_s

    plain, technique = str(row.shape["plain"]), str(row.shape["technique"])
    by = f"GEMMs, attention and streams of {chip.name}"
    by += ", launches as the run measured them alone" if plain == EAGER else ""
    return Predicted.of_seconds(seconds(plain), seconds(technique), by)


EXPERIMENT = Experiment(
    slug="running-vlas-at-real-time-speed",
    title="Running VLAs at real-time speed: eager, captured, joined and compiled",
    checks="what every form adds to the actions, and its values of the pictures, equal the plain one's, and two layers "
    "of each part those in fp64, within what bf16 rounds",
    claim=LabClaim(
        what="pi0 with two pictures in 27.3 ms on an RTX 4090: 106.5 ms in plain PyTorch, 43.5 ms captured, 35.7 ms "
        "with a simplified graph",
        comparable=False,
        why="the same steps but the last, whose kernels are the authors' own; on another card, of twice the memory's "
        "bandwidth and more",
    ),
    sizes=(
        Size("views", "pictures, of 256 tokens each", default=2, on_cpu=2, most=16),
        Size("steps", "flow steps", default=10, on_cpu=3, most=1000),
        Size("published", "layers and widths of pi0 (1), or small ones (0)", default=1, on_cpu=0, least=0, most=1),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=RATES,
)
