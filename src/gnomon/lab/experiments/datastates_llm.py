"""DataStates-LLM: checkpoints copied to the host during the next forward and backward, written in the background."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from gnomon.errors import InputError
from gnomon.lab.base import Check, Compared, Experiment, Findings, LabClaim, LabRun, Size, Sustained
from gnomon.lab.bench import Bench
from gnomon.lab.checkpoint import CHUNK_BYTES, MODES, Blocked, Checkpointed, Snapshots, check_disk
from gnomon.lab.decoder import DecodeLoop

WARM = 2
"""Iterations before the first checkpoint: the optimizer's states begin with the first."""
CPU_CHUNK_BYTES = 1000
"""Splits tensors across chunks, so that tests cover it."""
LOSSES_BOUND = 1e-3
"""Relative. Some GPU reductions are not deterministic, so that even baseline runs differ after the first update."""
WAITED_S = 1e-3
"""Seconds from which a buffer counts as not free."""
AGAIN = "none, again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Results of one mode of the loop."""

    losses: list[float]
    iteration_s: list[float]
    """Seconds of each iteration with its checkpoint, without writes that follow the last one."""
    update_s: list[float]
    """Seconds of the optimizer's update in each iteration."""
    blocked: list[Blocked]
    drain_s: float
    write_s: list[float]
    differing: int
    gpu_bytes: int


def train(bench: Bench, mode: str, sizes: Mapping[str, int], snapshots: Snapshots) -> Trained:
    """Run the loop, with a checkpoint at the start of each iteration after the warm-up."""
    snapshots.reset()
    loop = DecodeLoop(bench, sizes)
    kept = Checkpointed(bench=bench, mode=mode, snapshots=snapshots, stream=bench.stream())
    losses, times, updates, blocked, witness, last = [], [], [], [], None, None
    with bench.peak() as most:
        for turn in range(WARM + sizes["checkpoints"]):
            saving = turn >= WARM and mode != "none"
            if saving and turn == WARM:
                snapshots.prepare(loop.state())
            if saving and turn == WARM + sizes["checkpoints"] - 1:
                witness = [tensor.detach().clone() for tensor in loop.state()]
            bench.synchronize()
            start = time.perf_counter()
            if saving:
                last = kept.request(loop.state())
            loss = loop.forward_backward()
            bench.idle()
            kept.before_update()
            updating = time.perf_counter()
            loop.update()
            bench.idle()
            if turn >= WARM:
                updates.append(time.perf_counter() - updating)
                times.append(time.perf_counter() - start)
                blocked.append(kept.blocked if saving else Blocked())
            losses.append(float(loss))
            bench.sample_clock()
        bytes_held = most() - (sum(t.numel() * t.element_size() for t in witness) if witness else 0)
    start = time.perf_counter()
    snapshots.drain()
    drained = time.perf_counter() - start
    differing = last.differing(bench.torch, witness) if last and witness else 0
    return Trained(
        losses=losses,
        iteration_s=times,
        update_s=updates,
        blocked=blocked,
        drain_s=drained,
        write_s=list(snapshots.write_s),
        differing=differing,
        gpu_bytes=bytes_held,
    )


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    if sizes["width"] % sizes["heads"]:
        raise InputError(f"{sizes['width']} is not a multiple of {sizes['heads']} heads", where="--size heads")
    with tempfile.TemporaryDirectory(prefix="gnomon-lab-") as folder, _repeatable(bench):
        nbytes, parameters = _bytes(bench, sizes)
        check_disk(Path(folder), nbytes * sizes["buffers"])
        bench.tell("allocating host memory")
        chunk = CHUNK_BYTES if bench.timed else CPU_CHUNK_BYTES
        snapshots = Snapshots(bench, nbytes, sizes["buffers"], Path(folder), chunk)
        try:
            runs: dict[str, Trained] = {}
            for name in (MODES[0], AGAIN, *MODES[1:]):
                bench.tell(f"training, checkpoints {name}")
                bench.release()
                runs[name] = train(bench, MODES[0] if name == AGAIN else name, sizes, snapshots)
            bench.tell("measuring the link")
            link = _link(bench, snapshots)
        finally:
            snapshots.close()
    return Findings(
        checks=tuple(_checks(runs)),
        compared=tuple(_compared(bench, runs, nbytes, sizes["buffers"])),
        references={"iteration without checkpoints": _iteration(bench, runs["none"])},
        facts=_facts(bench, runs, nbytes) | link | {"parameters": parameters, "checkpoint_bytes": nbytes},
        notes=(*NOTES, *_run_notes(bench, runs)),
    )


NOTES = (
    "plain: copy and write with training waiting; asynchronous waits for the copy, lazy only before the update",
    "a file counts as written when fsync returns; where the disk is slower than the iterations, buffers run out and "
    "every mode waits for it (buffer_s): `gain` is of iterations with buffers in use, `burst_gain` of those before",
)


@contextmanager
def _repeatable(bench: Bench) -> Iterator[None]:
    """Deterministic kernels, where PyTorch has them."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch = bench.torch
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = filled


def _bytes(bench: Bench, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Bytes of a checkpoint, and parameters, from one iteration, which also warms up."""
    loop = DecodeLoop(bench, sizes)
    loop.forward_backward()
    loop.update()
    return sum(tensor.numel() * tensor.element_size() for tensor in loop.state()), loop.parameters


def _checks(runs: Mapping[str, Trained]) -> Iterator[Check]:
    plain = runs["none"].losses
    for mode in MODES[1:]:
        run = runs[mode]
        what = f"{mode}: bytes of the last checkpoint that differ from the state when it was requested"
        yield Check(what=what, difference=float(run.differing), bound=0.0)
        what = f"{mode}: losses against those without checkpoints, relative"
        yield Check(what=what, difference=losses_apart(run.losses, plain), bound=LOSSES_BOUND)


def losses_apart(mine: list[float], theirs: list[float]) -> float:
    """The largest relative difference; infinite for NaN."""
    worst = [abs(a - b) / abs(b) if b else math.inf for a, b in zip(mine, theirs, strict=True)]
    return max(math.inf if math.isnan(each) else each for each in worst)


def _link(bench: Bench, snapshots: Snapshots) -> dict[str, float]:
    """The bandwidth of one large copy into pinned memory, with nothing else running."""
    snapshots.drain()
    target = snapshots.all[0].chunks[0]
    source = bench.empty(target.numel(), dtype=target.dtype)
    took = min(bench.seconds(lambda: target.copy_(source, non_blocking=True)) for _ in range(4))
    return {"gpu_to_host_bytes_s": target.numel() / took} if bench.timed else {}


def _waited(run: Trained) -> list[float]:
    """Seconds of the checkpoints that found no free buffer."""
    return [each.buffer_s for each in run.blocked if each.buffer_s > WAITED_S]


def _run_notes(bench: Bench, runs: Mapping[str, Trained]) -> Iterator[str]:
    for mode in MODES[1:] if bench.timed else ():
        if waited := _waited(runs[mode]):
            count = f"{len(waited)} of {len(runs[mode].blocked)} checkpoints"
            yield f"{mode}: {count} waited for the disk, up to {max(waited):.3g} s; a burst is of the others, if any"
    facts = _modes(runs) if bench.timed else {}
    yield from (equal_writes(mode, facts) for mode in ("lazy", "asynchronous") if facts)
    apart = losses_apart(runs[AGAIN].losses, runs[MODES[0]].losses)
    yield f"losses of two runs without checkpoints are {apart:.2g} apart, relative"


def equal_writes(mode: str, modes: Mapping[str, Any]) -> str:
    """The sustained gain if writes took equally long in both versions: what is due to overlap, not to the disk."""
    own, plain = median(modes[mode]["write_s"]), median(modes["synchronous"]["write_s"])
    without, burst = median(modes[MODES[0]]["iteration_s"]), median(modes[mode]["iteration_s"])
    copy = median(each["queue_s"] + each["copy_s"] for each in modes["synchronous"]["blocked"])
    gain = (without + copy + own) / max(burst, own)
    return (
        f"{mode}: a write took {own:.3g} s here and {plain:.3g} s in the plain version; if equal, the sustained "
        f"gain would be {gain:.3g}x"
    )


def _free(run: Trained, samples: list[float]) -> list[float]:
    """Samples of checkpoints that found a free buffer, or all where none did."""
    pairs = zip(samples, run.blocked, strict=True)
    return [sample for sample, each in pairs if each.buffer_s <= WAITED_S] or samples


def _iteration(bench: Bench, run: Trained, host_bytes: int = 0) -> LabRun:
    return bench.measured(_free(run, run.iteration_s), run.gpu_bytes, host_bytes)


def _blocked(bench: Bench, run: Trained) -> LabRun:
    return bench.measured(_free(run, [each.total_s for each in run.blocked]), run.gpu_bytes)


def sustained(iteration_s: Sequence[float], write_s: Sequence[float], buffers: int) -> Sustained:
    """Seconds of an iteration with a checkpoint once all host buffers are in use."""
    steady = iteration_s[buffers:]
    if steady:
        return Sustained(seconds=median(steady), how=f"measured: iterations after the first {buffers}, buffers in use")
    seconds = max(median(iteration_s), median(write_s))
    how = "derived: no iteration can be shorter than the write of its checkpoint, once buffers are in use"
    return Sustained(seconds=seconds, how=how)


def _compared(bench: Bench, runs: Mapping[str, Trained], nbytes: int, buffers: int) -> Iterator[Compared]:
    """Rows of iterations, then of the time blocked by a checkpoint, for each mode."""
    plain, without = runs["synchronous"], median(runs[MODES[0]].iteration_s)
    for mode in ("lazy", "asynchronous"):
        run = runs[mode]
        shape = {"mode": mode, "checkpoint_bytes": nbytes, "buffers": buffers, "waited_for_disk": len(_waited(run))}
        left = run.drain_s if bench.timed else 0.0
        steady = sustained(run.iteration_s, run.write_s, buffers) if bench.timed else None
        one, other = _iteration(bench, plain, nbytes), _iteration(bench, run, nbytes * buffers)
        yield Compared(
            what=f"iteration with a checkpoint, {mode}",
            shape=shape,
            plain=one,
            technique=other,
            deferred_s=left,
            sustained=steady,
            of_paper=mode == "lazy",
        )
        yield Compared(
            what=f"blocked by a checkpoint, {mode}",
            shape=shape,
            plain=_blocked(bench, plain),
            technique=(short := _blocked(bench, run)),
            deferred_s=left,
            sustained=steady and replace(steady, seconds=max(steady.seconds - without, short.seconds or 0.0)),
            of_paper=mode == "lazy",
        )


def _facts(bench: Bench, runs: Mapping[str, Trained], nbytes: int) -> dict[str, Any]:
    plain = runs[MODES[0]]
    losses = {
        "losses": {name: run.losses for name, run in runs.items()},
        "plain_losses_apart": losses_apart(runs[AGAIN].losses, plain.losses),
    }
    if not bench.timed:
        return losses
    copy_s = median(each.queue_s + each.copy_s for each in runs["synchronous"].blocked)
    return losses | {
        "modes": _modes(runs),
        "iteration_s": median(plain.iteration_s),
        "update_s": median(plain.update_s),
        "checkpoint_copy_bytes_s": nbytes / copy_s,
        "disk_write_bytes_s": median(nbytes / each for each in runs["synchronous"].write_s),
        "folder": tempfile.gettempdir(),
    }


def _modes(runs: Mapping[str, Trained]) -> dict[str, dict[str, Any]]:
    """Seconds of every run, per iteration."""
    return {
        name: {
            "iteration_s": run.iteration_s,
            "update_s": run.update_s,
            "blocked": [asdict(each) | {"total_s": each.total_s} for each in run.blocked],
            "write_s": run.write_s,
            "left_to_write_s": run.drain_s,
        }
        for name, run in runs.items()
    }


EXPERIMENT = Experiment(
    slug="datastates-llm",
    title="DataStates-LLM: checkpoint copies overlapped with forward and backward, written in the background",
    checks="restored checkpoints equal the state when they were requested, bit by bit; losses are near those without",
    claim=LabClaim(
        what="checkpoints up to 48 times faster and runs 2.2 times faster than earlier methods, on up to 180 GPUs",
        comparable=False,
        why="the paper's gains are of many nodes that write to a parallel file system of 650 GB/s; this is of one GPU "
        "and one disk, which bounds a sustained run whatever is overlapped",
    ),
    sizes=(
        Size("layers", "layers of the decoder", default=24, on_cpu=2, most=200),
        Size("width", "its hidden width", default=1536, on_cpu=32, most=16384),
        Size("heads", "its attention heads", default=12, on_cpu=2, most=128),
        Size("batch", "sequences of an iteration", default=8, on_cpu=2, most=1024),
        Size("sequence", "tokens of a sequence", default=2048, on_cpu=8, most=2**17),
        Size("checkpoints", "iterations with a checkpoint", default=6, on_cpu=3, most=100),
        Size("buffers", "checkpoints that host memory holds", default=2, on_cpu=2, most=16),
    ),
    work=work,
)
