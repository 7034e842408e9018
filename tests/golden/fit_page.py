"""Writes docs/fit.md: `python -m tests.golden.fit_page`. The steps are computed by hand from published shapes.

Nothing here asks Gnomon for a figure. A step is a name and an expression of numbers and of earlier names; the page
shows both and the value, and `test_fit_page.py` compares the last ones with `gnomon fit`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "fit.md"
NAMES = {"max": max, "min": min}
ALLOWED = re.compile(r"[\w\s+\-*/().,]*")

HEAD = """# What fits: ten models by hand

`gnomon fit` says what one vLLM rank holds, and how many tokens of KV cache are left. Here its figures are computed step
by step, in bytes, for ten kinds of networks; `make fit-page` writes the page again, and a test compares the results
with the command's answer.

What the steps mean:

- **usable**: the driver's total less what no program can have (0.25% and 263 MiB, measured on an H200), times
  `gpu_memory_utilization`.
- **weights**: matrices sharded by the tensor-parallel degree along their heads or inner channels; norms, routers and
  MLA's down-projections are replicated; embedding and head are padded to a multiple of 64 rows and sharded.
- **activations**: PyTorch's peak in the step that vLLM profiles. Inside a layer: 1.5 times the output of the widest
  projection, four hidden states, and 256 MiB for kernel autotuning. Or in the sampler: three hidden states, the logits
  in 16 bits and in fp32, and in vLLM's first model runner three fp32 copies.
- **runtime**: 205 MB of libraries, 650 MB of communication buffers where there are several ranks, a table of positions,
  and in the first runner its estimate for CUDA graphs: 8.72 MB each and 90.4 kB per layer, for every size twice.
- **block**: one page of every layer of a group. Layers with different caches form groups, and a sequence takes
  blocks from each; one block of all is vLLM's own (the null block).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A model: the words of the command, what is special, and the steps."""

    title: str
    words: str
    text: str
    steps: str


def value(expression: str, known: dict[str, float]) -> float:
    """A step's value from its expression and the steps before it."""
    if not ALLOWED.fullmatch(expression):
        raise ValueError(f"{expression!r} is no arithmetic")
    return float(eval(expression, {"__builtins__": {}}, {**NAMES, **known}))


def evaluated(section: Section) -> list[tuple[str, str, float]]:
    known: dict[str, float] = {}
    found = []
    for line in section.steps.strip().splitlines():
        name, expression = (part.strip() for part in line.split(":"))
        known[name] = value(expression, known)
        found.append((name, expression, known[name]))
    return found


def shown(number: float) -> str:
    return f"{number:,.0f}" if abs(number - round(number)) < 1e-3 else f"{number:,.1f}"


def render() -> str:
    parts = [HEAD]
    for number, section in enumerate(SECTIONS, 1):
        rows = evaluated(section)
        lines = [f"{name} = {expression} = {shown(result)}" for name, expression, result in rows]
        parts.append(
            f"## {number}. {section.title}\n\n`gnomon fit {section.words}`\n\n{section.text}\n\n```\n"
            + "\n".join(lines)
            + "\n```\n"
        )
    return "\n".join(parts)


H200 = "(143771 * 0.9975 - 263) * 1048576"
H100 = "(81559 * 0.9975 - 263) * 1048576"
A100 = "(81920 * 0.9975 - 263) * 1048576"
L40S = "(46068 * 0.9975 - 263) * 1048576"

SECTIONS = (
    Section(
        title="Dense, grouped heads: Llama-3.1-8B on an H200",
        words="llama-3.1-8b --on H200",
        text="32 layers of 4,096 channels, 32 heads and 8 key-value heads of 128, a feed-forward of 14,336. Inside a "
        "layer more is alive than in the sampler.",
        steps=f"""
usable: {H200} * 0.92
attention: 4096 * (4096 + 2 * 1024) + 4096 * 4096
feed_forward: 3 * 4096 * 14336
layer: attention + feed_forward + 2 * 4096
ends: 2 * 128256 * 4096 + 4096
weights: 2 * (32 * layer + ends)
inside: 8192 * 2 * (1.5 * 2 * 14336 + 4 * 4096) + 256 * 1048576
drawing: 2 * 4096 * (3 * 8192 + 1024) + 1024 * 128256 * (2 + 4)
activations: max(inside, drawing)
runtime: 205000000 + 131072 * 128 * 2
kv: usable - weights - activations - runtime
token: 32 * 2 * 8 * 128 * 2
block: 16 * token
kv_blocks: kv // block - 1
kv_tokens: kv_blocks * 16
max_batch: kv_blocks // (131072 / 16)
""",
    ),
    Section(
        title="Dense, every head its own keys: Llama-2-7B on an A100",
        words="llama-2-7b --on A100",
        text="32 key-value heads for 32 heads: four times the KV cache per token. An A100 gets smaller batch defaults "
        "from vLLM: 2,048 tokens and 256 sequences.",
        steps=f"""
usable: {A100} * 0.92
layer: 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096
weights: 2 * (32 * layer + 2 * 32000 * 4096 + 4096)
inside: 2048 * 2 * (1.5 * 2 * 11008 + 4 * 4096) + 256 * 1048576
drawing: 2 * 4096 * (3 * 2048 + 256) + 256 * 32000 * (2 + 4)
activations: max(inside, drawing)
runtime: 205000000 + 4096 * 128 * 2
kv: usable - weights - activations - runtime
token: 32 * 2 * 32 * 128 * 2
block: 16 * token
kv_blocks: kv // block - 1
kv_tokens: kv_blocks * 16
max_batch: kv_blocks // (4096 / 16)
""",
    ),
    Section(
        title="One key-value head: Falcon-7B on an L40S",
        words="falcon-7b --on L40S",
        text="71 heads share one key and one value head of 64. The embedding is the head. Falcon runs on the first "
        "model runner, which reserves memory for the 51 sizes it captures, each as a full graph and in pieces.",
        steps=f"""
usable: {L40S} * 0.92
attention: 4544 * (4544 + 2 * 64) + 4544 * 4544
layer: attention + 2 * 4544 * 18176 + 2 * 4544
weights: 2 * (32 * layer + 65024 * 4544 + 2 * 4544)
inside: 2048 * 2 * (1.5 * 18176 + 4 * 4544) + 256 * 1048576
drawing: 2 * 4544 * (3 * 2048 + 256) + 256 * 65024 * (2 + 12)
activations: max(inside, drawing)
graphs: 2 * 51 * (8720000 + 90400 * 32)
runtime: 205000000 + 2048 * 64 * 2 + graphs
kv: usable - weights - activations - runtime
token: 32 * 2 * 1 * 64 * 2
block: 16 * token
kv_blocks: kv // block - 1
kv_tokens: kv_blocks * 16
max_batch: min(kv_blocks // (2048 / 16), 256)
""",
    ),
    Section(
        title="A mixture of experts: Qwen3-30B-A3B on two H200, experts dealt out",
        words="qwen3-30b-a3b --on H200:2 --ep 2",
        text="Each of two ranks holds 64 of the 128 experts unsharded, half of the attention, half of the vocabulary, "
        "and all of the routers and norms.",
        steps=f"""
usable: {H200} * 0.92
attention: 2048 * (4096 / 2 + 2 * 512 / 2) + 2048 * 4096 / 2
experts: 128 / 2 * 3 * 2048 * 768
layer: attention + experts + 128 * 2048 + 2 * 128 + 2 * 2048
ends: 2 * 151936 / 2 * 2048 + 2048
weights: 2 * (48 * layer + ends)
pairs: 8 * (max(2 * 768, 2048) + 768)
inside: 8192 * 2 * (pairs + 4 * 2048) + 256 * 1048576
drawing: 2 * 2048 * (3 * 8192 + 1024) + 1024 * 151936 * (2 + 12)
activations: max(inside, drawing)
graphs: 2 * 51 * (8720000 + 90400 * 48)
runtime: 205000000 + 650000000 + 40960 * 128 * 2 + graphs
kv: usable - weights - activations - runtime
token: 48 * 2 * 4 / 2 * 128 * 2
block: 16 * token
kv_blocks: kv // block - 1
kv_tokens: kv_blocks * 16
max_batch: kv_blocks // (40960 / 16)
""",
    ),
    Section(
        title="Latent attention: DeepSeek-V2-Lite on an H100",
        words="deepseek-v2-lite --on H100",
        text="A token leaves one latent vector of 512 and one turning key of 64 in each of 27 layers, whatever the "
        "number of heads, and every rank would replicate them. The first layer is dense.",
        steps=f"""
usable: {H100} * 0.92
attention: 2048 * 16 * 192 + 2048 * 576 + 512 * 16 * 256 + 16 * 128 * 2048 + 512
dense: 3 * 2048 * 10944
mixture: 64 * 2048 + 64 * 3 * 2048 * 1408 + 3 * 2048 * 2816
weights: 2 * (27 * (attention + 2 * 2048) + dense + 26 * mixture + 2 * 102400 * 2048 + 2048)
pairs: 6 * (max(2 * 1408, 2048) + 1408)
inside: 8192 * 2 * (max(pairs, 1.5 * 2 * 10944) + 4 * 2048) + 256 * 1048576
drawing: 2 * 2048 * (3 * 8192 + 1024) + 1024 * 102400 * (2 + 4)
activations: max(inside, drawing)
runtime: 205000000 + 163840 * 64 * 2
kv: usable - weights - activations - runtime
token: 27 * (512 + 64) * 2
block: 16 * token
kv_blocks: kv // block - 1
kv_tokens: kv_blocks * 16
max_batch: kv_blocks // (163840 / 16)
""",
    ),
    Section(
        title="Windows: Gemma-2-9B on an H100",
        words="gemma-2-9b --on H100",
        text="Every other layer has a sliding window of 4,096 tokens. 21 layers of each kind make two groups of 21; a "
        "block holds 16 tokens of one group. A layer with a window holds at most the window and one step, and one "
        "block more where it starts inside one; a step of 8,192 tokens covers the full context here, so windows save "
        "nothing.",
        steps=f"""
usable: {H100} * 0.92
attention: 3584 * (4096 + 2 * 2048) + 4096 * 3584
layer: attention + 3 * 3584 * 14336 + 4 * 3584
weights: 2 * (42 * layer + 256000 * 3584 + 3584)
inside: 8192 * 2 * (1.5 * 2 * 14336 + 4 * 3584) + 256 * 1048576
drawing: 2 * 3584 * (3 * 8192 + 1024) + 1024 * 256000 * (2 + 12)
activations: max(inside, drawing)
graphs: 2 * 51 * (8720000 + 90400 * 42)
runtime: 205000000 + 8192 * 256 * 2 + graphs
kv: usable - weights - activations - runtime
page: 16 * 2 * 8 * 256 * 2
block: 21 * page
kv_blocks: kv // block - 1
full: 8192 / 16
window: min(4096 - 1 + 8192, 8192) / 16 + 1
kv_tokens: kv_blocks / (full + window) * 8192 // 1
max_batch: kv_blocks // (full + window)
""",
    ),
    Section(
        title="State spaces and attention: Nemotron-H-8B on an L40S",
        words="nemotron-h-8b --on L40S",
        text="24 layers keep a state of 128 heads of 64 by 128 in fp32 and three tokens of a convolution; 4 layers are "
        "attention. A page of attention is made long enough for a state: 1,040 tokens, a multiple of 16. Groups are "
        "as large as the smaller kind, 4 layers: six groups of states, of which a sequence takes a block each, and one "
        "of attention.",
        steps=f"""
usable: {L40S} * 0.92
state_space: 4096 * (2 * 8192 + 2 * 8 * 128 + 128) + 10240 * 4 + 10240 + 3 * 128 + 8192 + 8192 * 4096
attention: 4096 * (4096 + 2 * 1024) + 4096 * 4096
feed_forward: 2 * 4096 * 21504
weights: 2 * (24 * state_space + 4 * attention + 24 * feed_forward + 52 * 4096 + 2 * 131072 * 4096 + 4096)
inside: 2048 * 2 * (1.5 * 21504 + 4 * 4096) + 256 * 1048576
drawing: 2 * 4096 * (3 * 2048 + 256) + 256 * 131072 * (2 + 12)
activations: max(inside, drawing)
graphs: 2 * 51 * (8720000 + 90400 * 52)
runtime: 205000000 + graphs
kv: usable - weights - activations - runtime
state: 10240 * 3 * 2 + 128 * 64 * 128 * 4
token: 2 * 8 * 128 * 2
page_tokens: 16 * ((state + 16 * token - 1) // (16 * token))
block: 4 * page_tokens * token
kv_blocks: kv // block - 1
sequence: 6 + (8192 + page_tokens - 1) // page_tokens
kv_tokens: kv_blocks / sequence * 8192 // 1
max_batch: kv_blocks // sequence
""",
    ),
    Section(
        title="Linear attention: Qwen3-Next-80B-A3B on four H100",
        words="qwen3-next-80b-a3b --on H100:4",
        text="Three of four layers keep a matrix of 128 by 128 for each of 32 value heads. The 12 attention layers "
        "have two key-value heads for four ranks: each rank holds one. Experts are cut by four.",
        steps=f"""
usable: {H100} * 0.92
linear: 2048 * 12288 / 4 + 2048 * 64 / 4 + 8192 * 4 / 4 + 192 + 2048 * 4096 / 4
attention: 2048 * (2 * 4096 / 4 + 2 * 256) + 2048 * 4096 / 4 + 512
mixture: 512 * 2048 + 2048 + 512 * 3 * 2048 * 512 / 4 + 3 * 2048 * 512 / 4
weights: 2 * (36 * linear + 12 * attention + 48 * (mixture + 2 * 2048) + 2 * 151936 / 4 * 2048 + 2048)
pairs: 10 * (max(2 * 512 / 4, 2048) + 512 / 4)
inside: 8192 * 2 * (pairs + 4 * 2048) + 256 * 1048576
drawing: 2 * 2048 * (3 * 8192 + 1024) + 1024 * 151936 * (2 + 12)
activations: max(inside, drawing)
graphs: 2 * 51 * (8720000 + 90400 * 48)
runtime: 205000000 + 650000000 + 262144 * 64 * 2 + graphs
kv: usable - weights - activations - runtime
state: 8192 / 4 * 3 * 2 + 32 / 4 * 128 * 128 * 2
token: 2 * 1 * 256 * 2
page_tokens: 16 * ((state + 16 * token - 1) // (16 * token))
block: 12 * page_tokens * token
kv_blocks: kv // block - 1
sequence: 3 + (262144 + page_tokens - 1) // page_tokens
kv_tokens: kv_blocks / sequence * 262144 // 1
max_batch: kv_blocks // sequence
""",
    ),
    Section(
        title="An fp8 checkpoint: MiniMax-M2 on four H200",
        words="minimax-m2 --on H200:4",
        text="Matrices are in fp8 with an fp32 scale for every 128 by 128 of them; routers, norms, embedding and head "
        "stay in bf16. The stream is copied in fp8 on its way into a layer.",
        steps=f"""
usable: {H200} * 0.92
attention: 3072 * (6144 / 4 + 2 * 1024 / 4) + 3072 * 6144 / 4
attention_scales: 4 * 24 * (12 + 2 + 2 + 12)
experts: 256 * 3 * 3072 * 1536 / 4
expert_scales: 4 * 256 * 3 * 24 * 3
wide: 2 * (256 * 3072 + 6144 + 1024 + 2 * 3072)
layer: attention + attention_scales + experts + expert_scales + wide
weights: 62 * layer + 2 * (2 * 200064 / 4 * 3072 + 3072)
pairs: 8 * (max(2 * 1536 / 4, 3072) + 1536 / 4)
inside: 8192 * (2 * (pairs + 4 * 3072) + 3072) + 256 * 1048576
drawing: 2 * 3072 * (3 * 8192 + 1024) + 1024 * 200064 * (2 + 12)
activations: max(inside, drawing)
graphs: 2 * 51 * (8720000 + 90400 * 62)
runtime: 205000000 + 650000000 + 196608 * 64 * 2 + graphs
kv: usable - weights - activations - runtime
token: 62 * 2 * 8 / 4 * 128 * 2
block: 16 * token
kv_blocks: kv // block - 1
kv_tokens: kv_blocks * 16
max_batch: kv_blocks // (196608 / 16)
""",
    ),
    Section(
        title="Four-bit weights: Llama-3.1-70B on one A100",
        words="llama-3.1-70b --on A100 --dtype int4 --context 32768",
        text="Matrices of the layers in int4, with a 16-bit scale for every 128 values along their inputs, as GPTQ "
        "stores them; embedding and head stay in bf16.",
        steps=f"""
usable: {A100} * 0.92
matrices: 8192 * (8192 + 2 * 1024) + 8192 * 8192 + 3 * 8192 * 28672
layer: matrices * 4 / 8 + matrices / 128 * 16 / 8 + 2 * 2 * 8192
weights: 80 * layer + 2 * (2 * 128256 * 8192 + 8192)
inside: 2048 * 2 * (1.5 * 2 * 28672 + 4 * 8192) + 256 * 1048576
drawing: 2 * 8192 * (3 * 2048 + 256) + 256 * 128256 * (2 + 4)
activations: max(inside, drawing)
runtime: 205000000 + 131072 * 128 * 2
kv: usable - weights - activations - runtime
token: 80 * 2 * 8 * 128 * 2
block: 16 * token
kv_blocks: kv // block - 1
kv_tokens: kv_blocks * 16
max_batch: kv_blocks // (32768 / 16)
""",
    ),
)


def main() -> None:
    PAGE.write_text(render())


if __name__ == "__main__":
    main()
