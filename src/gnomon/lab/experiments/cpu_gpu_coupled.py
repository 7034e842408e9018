"""CPU-GPU coupled systems: prefills bound by launches or by kernels, eager against a captured CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.cost.machine import Machine
from gnomon.lab.base import Check, Compared, Experiment, Findings, LabClaim, LabRow, LabRun, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.eager_ops import NORM, ROTATION, rms_norm, rotary_angles, rotated
from gnomon.lab.launches import RATES, Tally, launch_rates, replayable
from gnomon.lab.priced import torch_machine
from gnomon.lab.ways import close
from gnomon.spec import Chip

EAGER, GRAPH = "eager", "CUDA graph"
KV_SHARE, FFN = 4, 4
"""Query heads of a key-value head; width of the MLP in hidden widths, as in Llama-3.2-1B."""
VOCABULARY = 128256
SHORT = 8
"""A short prompt has the tokens of a long one over this."""
EPSILON, BASE = 1e-5, 500_000.0
"""Of norms, and of the rotary embedding, as in Llama-3.2-1B."""
VIEWS = 24
"""Of a layer: views, transposes and slices, which launch nothing; those inside linear layers count half."""
BOUND, REPLAYED = 0.5, 0.05
"""Of the logits' root mean square, the largest difference: bf16 through all layers from fp64, a replay from eager."""


@dataclass(frozen=True, slots=True)
class _Decoder:
    """Layers of Llama in PyTorch's operators, as Hugging Face's eager model has them."""

    torch: Any
    heads: int
    layers: tuple[Mapping[str, Any], ...]
    table: Any
    gain: Any

    def norm(self, x: Any) -> Any:
        return rms_norm(self.torch, x, self.gain, EPSILON)

    def attended(self, x: Any, layer: Mapping[str, Any], angles: tuple[Any, Any]) -> Any:
        functional, (batch, tokens, width) = self.torch.nn.functional, x.shape
        dim = width // self.heads
        query, key, value = (
            functional.linear(x, layer[name]).view(batch, tokens, -1, dim).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        query, key = rotated(self.torch, query, angles), rotated(self.torch, key, angles)
        key, value = (
            each[:, :, None].expand(-1, -1, self.heads // each.shape[1], -1, -1).reshape(query.shape)
            for each in (key, value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return functional.linear(mixed.transpose(1, 2).reshape(x.shape), layer["output"])

    def __call__(self, tokens: Any, angles: tuple[Any, Any]) -> Any:
        """Logits after each prompt's last token."""
        functional = self.torch.nn.functional
        x = functional.embedding(tokens, self.table)
        for layer in self.layers:
            x = x + self.attended(self.norm(x), layer, angles)
            near = self.norm(x)
            wide = functional.silu(functional.linear(near, layer["gate"])) * functional.linear(near, layer["up"])
            x = x + functional.linear(wide, layer["down"])
        return functional.linear(self.norm(x[:, -1]), self.table)

    def to(self, dtype: Any) -> _Decoder:
        layers = tuple({name: each.to(dtype) for name, each in layer.items()} for layer in self.layers)
        return _Decoder(self.torch, self.heads, layers, self.table.to(dtype), self.gain.to(dtype))


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    torch, facts = bench.torch, dict[str, Any](launch_rates(bench))
    model = _drawn(bench, sizes)
    checks: list[Check] = []
    compared: list[Compared] = []
    with torch.no_grad():
        for row in rows(sizes):
            bench.tell(row.what)
            bench.release()
            batch, tokens = int(row.shape["batch"]), int(row.shape["tokens"])
            prompt = torch.randint(
                0, model.table.shape[0], (batch, tokens), device=bench.device, generator=bench.generator(SEED + 91)
            )
            angles = rotary_angles(bench, tokens, sizes["width"] // sizes["heads"], BASE, torch.bfloat16)
            if not compared:
                checks.append(_against_fp64(model, prompt, angles))
            (eager, replayed), (plain, mine) = _timed(bench, model, prompt, angles, sizes["repeats"])
            checks.append(close(f"{batch} x {tokens} tokens, replayed from eager", replayed, eager, REPLAYED))
            compared.append(row.compared(plain, mine, deferred_s=0.0))
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=(*NOTES, _bound(compared)))


NOTES = (
    "prefills of random weights with the operators of Hugging Face's eager Llama, logits of the last token; wall time "
    "from an idle GPU to an idle one; the graph is captured before",
)


def _bound(compared: list[Compared]) -> str:
    """Which batches the host's launches bind, where a graph saves a tenth or more."""
    bound = [row.what for row in compared if row.gain is not None and row.gain >= 1 / 0.9]
    return f"bound by the CPU: {', '.join(bound) or 'none'}"


def _timed(
    bench: Bench, model: _Decoder, prompt: Any, angles: tuple[Any, Any], repeats: int
) -> tuple[tuple[Any, Any], tuple[LabRun, LabRun]]:
    """Eager logits and those of a replay, and the times of both."""
    eager = model(prompt, angles)
    plain = bench.wall(lambda: model(prompt, angles), repeats)
    replay, output = replayable(bench, lambda: model(prompt, angles))
    mine = bench.wall(replay, repeats)
    return (eager, model(prompt, angles) if output is None else output), (plain, mine)


def _drawn(bench: Bench, sizes: Mapping[str, int]) -> _Decoder:
    torch, width = bench.torch, sizes["width"]
    generator = bench.generator(SEED + 92)

    def weights(rows: int, columns: int) -> Any:
        return bench.normal(rows, columns, dtype=torch.bfloat16, generator=generator, scale=0.5 * columns**-0.5)

    shapes = {"query": (1, 1), "output": (1, 1), "gate": (FFN, 1), "up": (FFN, 1), "down": (1, FFN)}
    layers = []
    for _ in range(sizes["layers"]):
        layer = {name: weights(n * width, k * width) for name, (n, k) in shapes.items()}
        layers.append(layer | {name: weights(width // KV_SHARE, width) for name in ("key", "value")})
    gain = torch.ones(width, dtype=torch.bfloat16, device=bench.device)
    return _Decoder(torch, sizes["heads"], tuple(layers), weights(min(VOCABULARY, 64 * width), width), gain)


def _against_fp64(model: _Decoder, prompt: Any, angles: tuple[Any, Any]) -> Check:
    double = model.torch.float64
    truth = model.to(double)(prompt[:, :32], tuple(angle[:32].to(double) for angle in angles))
    return close("logits in bf16 against fp64", model(prompt[:, :32], tuple(a[:32] for a in angles)), truth, BOUND)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shape = {name: sizes[name] for name in ("layers", "width", "heads")}
    tokens, cases = sizes["tokens"], [(1, max(1, sizes["tokens"] // SHORT))]
    batch = 1
    while batch <= sizes["batch"]:
        cases.append((batch, tokens))
        batch *= 2
    return tuple(
        LabRow(
            what=f"prefill of {batch} x {count} tokens, {GRAPH} against {EAGER}",
            shape=shape | {"batch": batch, "tokens": count},
        )
        for batch, count in cases
    )


def _tally(machine: Machine, shape: Mapping[str, Any]) -> Tally:
    """Kernels of a prefill."""
    batch, tokens, width, heads, layers = (int(shape[name]) for name in ("batch", "tokens", "width", "heads", "layers"))
    count, total = batch * tokens, Tally(machine)
    size = 2.0 * count * width
    layer = Tally(machine, views=VIEWS)
    for _ in range(2):
        _norm(layer, size)
        layer.stream(2 * size, size)  # the residual
    for share in (1, KV_SHARE):  # rotary embedding of queries and of keys
        for read, written in ROTATION:
            layer.stream(read * size / share, written * size / share)
        layer.stream(size / KV_SHARE, size)  # keys, or values, repeated for their query heads
    for n, k in ((width, width), (width, width), (FFN * width, width), (FFN * width, width), (width, FFN * width)):
        layer.gemm(count, n, k)
    for _ in range(2):
        layer.gemm(count, width // KV_SHARE, width)
    layer.attention(batch, heads, tokens, width // heads, causal=True)
    layer.stream(FFN * size, FFN * size)
    layer.stream(2 * FFN * size, FFN * size)
    total.add(layer, layers)
    total.stream(size, size)
    _norm(total, 2.0 * batch * width)
    total.gemm(batch, min(VOCABULARY, 64 * width), width)
    return total


def _norm(tally: Tally, size: float) -> None:
    for read, written in NORM:
        tally.stream(read * size, written * size)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Eager: launches or kernels, whichever take longer; in a graph the kernels alone."""
    tally = _tally(torch_machine(chip), row.shape)
    by = f"{tally.launches:.0f} kernels on {chip.name}, launches as the run measured them alone"
    return Predicted.of_seconds(max(tally.host_s(rates), tally.device_s), tally.device_s, by)


EXPERIMENT = Experiment(
    slug="cpu-gpu-coupled",
    title="CPU-GPU coupled systems: prefills eager and in a CUDA graph, by batch",
    checks="logits of a graph's replay equal eager ones, and those in fp64 within what bf16 rounds",
    claim=LabClaim(
        what="Llama-3.2-1B prefills of 512 tokens are bound by the CPU up to batches four times larger on a GH200 than "
        "on PCIe systems, and 1.9 to 2.7 times faster at large batches",
        comparable=False,
        why="the paper compares systems, this run the launches and the kernels of one",
    ),
    sizes=(
        Size("layers", "layers of the decoder", default=16, on_cpu=2, most=200),
        Size("width", "its hidden width", default=2048, on_cpu=64, least=64, most=32768),
        Size("heads", "its query heads, four to a key-value head", default=32, on_cpu=4, least=4, most=256),
        Size("tokens", "tokens of a prompt; an eighth of them too", default=512, on_cpu=40, least=8, most=65536),
        Size("batch", "largest batch; powers of two up to it", default=32, on_cpu=2, most=1024),
        Size("repeats", "timed passes", default=15, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=RATES,
)
