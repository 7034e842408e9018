"""DataStates-LLM: checkpoints copied to the host during the next forward and backward, and written behind."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gnomon.errors import InputError
from gnomon.lab.base import Check, Compared, Experiment, Findings, Measured, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.checkpoint import CHUNK_BYTES, MODES, Blocked, Checkpointed, Snapshots, check_disk, state_of

VOCABULARY = 16384
WARM = 2
"""Iterations before the first checkpoint: the optimizer's states begin with the first."""
CPU_CHUNK_BYTES = 1000
"""Cuts tensors anywhere, so that tests see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What one mode of the loop left behind."""

    losses: list[float]
    iteration_s: list[float]
    """With a checkpoint each; what the last ones left to write is not in it."""
    blocked: list[Blocked]
    drain_s: float
    write_s: list[float]
    differing: int
    gpu_bytes: int


class Loop:
    """A decoder of plain PyTorch layers, weights and states in fp32, products in bf16."""

    def __init__(self, bench: Bench, sizes: Mapping[str, int]) -> None:
        torch, width = bench.torch, sizes["width"]
        nn = torch.nn
        torch.manual_seed(SEED)
        self.bench, self.torch = bench, torch
        layer = [
            nn.TransformerEncoderLayer(
                width, sizes["heads"], 4 * width, dropout=0.0, batch_first=True, norm_first=True, device=bench.device
            )
            for _ in range(sizes["layers"])
        ]
        self.table = nn.Embedding(VOCABULARY if bench.timed else 64, width, device=bench.device)
        nn.init.normal_(self.table.weight, std=0.02)
        self.layers = nn.ModuleList(layer)
        self.model = nn.ModuleList([self.table, self.layers])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        shape = (sizes["batch"], sizes["sequence"] + 1)
        generator = bench.generator(SEED + 7)
        self.tokens = torch.randint(0, self.table.num_embeddings, shape, device=bench.device, generator=generator)
        self.mask = nn.Transformer.generate_square_subsequent_mask(sizes["sequence"], device=bench.device)

    @property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.model.parameters())

    def state(self) -> list[Any]:
        return list(state_of(self.model, self.optimizer))

    def forward_backward(self) -> Any:
        torch = self.torch
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.bench.device, dtype=torch.bfloat16):
            x = self.table(self.tokens[:, :-1])
            for layer in self.layers:
                x = layer(x, src_mask=self.mask, is_causal=True)
            logits = x @ self.table.weight.T
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), self.tokens[:, 1:].flatten())
        loss.backward()
        return loss.detach()

    def update(self) -> None:
        self.optimizer.step()


def train(bench: Bench, mode: str, sizes: Mapping[str, int], snapshots: Snapshots) -> Trained:
    """The loop from its beginning, with a checkpoint at the beginning of each iteration but the first two."""
    loop = Loop(bench, sizes)
    kept = Checkpointed(bench=bench, mode=mode, snapshots=snapshots, stream=bench.stream())
    losses, times, blocked, witness, last = [], [], [], None, None
    snapshots.forget()
    with bench.peak() as most:
        for turn in range(WARM + sizes["checkpoints"]):
            saving = turn >= WARM and mode != "none"
            if saving and turn == WARM + sizes["checkpoints"] - 1:
                witness = [tensor.detach().clone() for tensor in loop.state()]
            bench.synchronize()
            start = time.perf_counter()
            if saving:
                last = kept.request(loop.state())
            loss = loop.forward_backward()
            bench.idle()
            kept.before_update()
            loop.update()
            bench.idle()
            if turn >= WARM:
                times.append(time.perf_counter() - start)
                blocked.append(kept.blocked if saving else Blocked())
            losses.append(float(loss))
            bench.look()
        bytes_held = most() - (sum(t.numel() * t.element_size() for t in witness) if witness else 0)
    start = time.perf_counter()
    snapshots.drain()
    drained = time.perf_counter() - start
    differing = last.differing(bench.torch, witness) if last and witness else 0
    return Trained(
        losses=losses,
        iteration_s=times,
        blocked=blocked,
        drain_s=drained,
        write_s=list(snapshots.write_s),
        differing=differing,
        gpu_bytes=bytes_held,
    )


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    if sizes["width"] % sizes["heads"]:
        raise InputError(f"{sizes['width']} is no multiple of {sizes['heads']} heads", where="--size heads")
    with tempfile.TemporaryDirectory(prefix="gnomon-lab-") as folder, _repeatable(bench):
        nbytes, parameters = _bytes(bench, sizes)
        check_disk(Path(folder), nbytes * sizes["buffers"])
        bench.tell("taking host memory")
        chunk = CHUNK_BYTES if bench.timed else CPU_CHUNK_BYTES
        snapshots = Snapshots(bench, nbytes, sizes["buffers"], Path(folder), chunk)
        try:
            runs: dict[str, Trained] = {}
            for mode in MODES:
                bench.tell(f"training, checkpoints {mode}")
                bench.release()
                runs[mode] = train(bench, mode, sizes, snapshots)
        finally:
            snapshots.close()
    return Findings(
        checks=tuple(_checks(runs)),
        compared=tuple(_compared(bench, runs, nbytes, sizes["buffers"])),
        references={"iteration without checkpoints": _iteration(bench, runs["none"])},
        facts=_facts(bench, runs, nbytes) | {"parameters": parameters, "checkpoint_bytes": nbytes},
        notes=NOTES,
    )


NOTES = (
    "plain: copy and write with training waiting; asynchronous waits for the copy, lazy only before the update",
    "a file counts as written when fsync returns; where the disk is slower than the iterations, buffers run out and "
    "every mode waits for it (buffer_s)",
)


@contextmanager
def _repeatable(bench: Bench) -> Iterator[None]:
    """Kernels that give the same bits each time, so that losses can be compared to the last one."""
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
    """Of a checkpoint, and parameters; by one iteration, which also builds what is built once."""
    loop = Loop(bench, sizes)
    loop.forward_backward()
    loop.update()
    return sum(tensor.numel() * tensor.element_size() for tensor in loop.state()), loop.parameters


def _checks(runs: Mapping[str, Trained]) -> Iterator[Check]:
    plain = runs["none"].losses
    for mode in MODES[1:]:
        run = runs[mode]
        what = f"{mode}: bytes of the last checkpoint unlike the state when it was asked for"
        yield Check(what=what, difference=float(run.differing), bound=0.0)
        unlike = sum(a != b for a, b in zip(run.losses, plain, strict=True))
        yield Check(what=f"{mode}: losses unlike those without checkpoints", difference=float(unlike), bound=0.0)


def _iteration(bench: Bench, run: Trained, host_bytes: int = 0) -> Measured:
    return bench.measured(run.iteration_s, run.gpu_bytes, host_bytes)


def _compared(bench: Bench, runs: Mapping[str, Trained], nbytes: int, buffers: int) -> Iterator[Compared]:
    plain = runs["synchronous"]
    for mode in ("lazy", "asynchronous"):
        run, shape = runs[mode], {"mode": mode, "checkpoint_bytes": nbytes}
        blocked, mine = (bench.measured([each.total_s for each in one.blocked], one.gpu_bytes) for one in (plain, run))
        yield Compared(what=f"blocked by a checkpoint, {mode}", shape=shape, plain=blocked, technique=mine)
        one, other = _iteration(bench, plain, nbytes), _iteration(bench, run, nbytes * buffers)
        yield Compared(what=f"iteration with a checkpoint, {mode}", shape=shape, plain=one, technique=other)


def _facts(bench: Bench, runs: Mapping[str, Trained], nbytes: int) -> dict[str, Any]:
    if not bench.timed:
        return {"losses": runs["none"].losses}
    modes = {
        mode: {
            "iteration_s": run.iteration_s,
            "blocked": [asdict(each) | {"total_s": each.total_s} for each in run.blocked],
            "write_s": run.write_s,
            "left_to_write_s": run.drain_s,
        }
        for mode, run in runs.items()
    }
    plain = runs["synchronous"]
    copy_s = median(each.queue_s + each.copy_s for each in plain.blocked)
    return {
        "modes": modes,
        "losses": runs["none"].losses,
        "gpu_to_host_bytes_s": nbytes / copy_s,
        "disk_write_bytes_s": nbytes / median(plain.write_s),
        "folder": tempfile.gettempdir(),
    }


EXPERIMENT = Experiment(
    slug="datastates-llm",
    title="DataStates-LLM: checkpoints copied beside forward and backward, written behind",
    checks="restored checkpoints equal the state when they were asked for, bit by bit, and losses those without them",
    sizes=(
        Size(name="layers", what="layers of the decoder", default=24, on_cpu=2, most=200),
        Size(name="width", what="its hidden width", default=1536, on_cpu=32, most=16384),
        Size(name="heads", what="its attention heads", default=12, on_cpu=2, most=128),
        Size(name="batch", what="sequences of an iteration", default=8, on_cpu=2, most=1024),
        Size(name="sequence", what="tokens of a sequence", default=2048, on_cpu=8, most=2**17),
        Size(name="checkpoints", what="iterations with a checkpoint", default=3, on_cpu=3, most=100),
        Size(name="buffers", what="checkpoints that host memory holds", default=2, on_cpu=2, most=16),
    ),
    work=work,
)
