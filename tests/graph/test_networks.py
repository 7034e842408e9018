"""Work of encoders, towers and diffusion transformers: matrices times rows, and attention, to the last FLOP."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import catalog
from gnomon.engines.vllm.networks import COMPILED
from gnomon.errors import InputError
from gnomon.graph.base import Graph
from gnomon.graph.core import CoreAttention
from gnomon.graph.layers import Cut, Writer
from gnomon.graph.layers.heads import Heads
from gnomon.graph.layers.plain import span
from gnomon.graph.networks import decoder_graph, diffusion_graph, encoder_graph, tower_graph
from gnomon.graph.source_attention import SourceAttention
from gnomon.graph.style import Stream
from gnomon.graph.support import check_plain
from gnomon.graph.windows import Window
from gnomon.load import model as load_model
from gnomon.spec import AttentionMixer, Batch, Block, ConvolutionLayer, ImageTokens, Linear, Model, Strategy, Tower

ALONE = Strategy()
FUSED = COMPILED
NAMES = catalog.model_names()
OF_KIND = {kind: [name for name in NAMES if load_model(name).kind == kind] for kind in ("encoder", "diffusion")}
TOWERED = [name for name in NAMES if load_model(name).towers]


def _matrices(blocks: Iterable[Block], hidden: int, half: str) -> int:
    """Parameters of the matrices of one half of all layers."""
    found = [(block.count, getattr(block, half)) for block in blocks]
    return sum(
        n * tensor.parameters for n, part in found if part for tensor in part.tensors(hidden) if tensor.columns > 1
    )


def _looked(blocks: Iterable[Block], length: int, grid: tuple[int, int], windows: bool = True) -> float:
    """Query-key products of one sequence, counted pair by pair."""
    total = 0.0
    for block in blocks:
        mixer = block.attention
        pairs = _pairs(mixer, length, grid) if windows else length * length
        total += 4.0 * block.count * mixer.q_width * pairs
    return total


def _pairs(mixer: AttentionMixer, length: int, grid: tuple[int, int]) -> int:
    if mixer.window is None:
        return length * length
    if not mixer.chunked:
        reach = mixer.window // 2
        return sum(min(i, reach) + min(length - 1 - i, reach) + 1 for i in range(length))
    side = round(mixer.window**0.5)
    cells = [
        (min(side, grid[0] - down) * min(side, grid[1] - across)) ** 2
        for down in range(0, grid[0], side)
        for across in range(0, grid[1], side)
    ]
    return sum(cells)


def _flops(graph: Graph, batch: Batch) -> float:
    return float(graph.flops(batch)[0])


def _usual(tower: Tower) -> ImageTokens:
    intake = tower.intake
    return intake.picture(*intake.usual) if intake.patch else intake.length(intake.positions)


@pytest.mark.parametrize("name", OF_KIND["encoder"])
@pytest.mark.parametrize("head", [False, True])
def test_an_encoder(name: str, head: bool) -> None:
    model, sequences, tokens = load_model(name), 3, 200
    matrices = _matrices(model.blocks, model.hidden, "mixer") + _matrices(model.blocks, model.hidden, "ffn")
    if head:
        matrices += model.vocab * model.hidden
        matrices += sum(part.inputs * part.outputs for part in model.tail if isinstance(part, Linear))
    expected = sequences * (2.0 * matrices * tokens + _looked(model.blocks, tokens, (0, 0)))
    graph = encoder_graph(model, FUSED, tokens, "bf16", head=head)
    assert _flops(graph, Batch.prefill(sequences, tokens)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", OF_KIND["diffusion"])
def test_a_diffusion_transformer(name: str) -> None:
    """Modulations once a sample, all else for each of its patches."""
    model, samples, patches = load_model(name), 3, 256
    matrices = _matrices(model.blocks, model.hidden, "mixer") + _matrices(model.blocks, model.hidden, "ffn")
    (stem,) = (part for part in model.stem if isinstance(part, ConvolutionLayer))
    ends = stem.kernel * stem.inputs * stem.outputs
    ends += sum(p.inputs * p.outputs for p in model.tail if isinstance(p, Linear) and not p.once)
    made = [p for block in model.blocks for p in block.extras * block.count if isinstance(p, Linear)]
    beside = (*made, *model.stem, *model.tail)
    once = sum(p.inputs * p.outputs for p in beside if isinstance(p, Linear) and p.once)
    if made:
        once += 256 * model.hidden + model.hidden**2  # the time's vector for the last modulation
    per_sample = 2.0 * (matrices + ends) * patches + 2.0 * once + _looked(model.blocks, patches, (0, 0))
    source = 100 if model.towers else 0
    for block in model.blocks if source else ():
        assert block.cross is not None
        each = {tensor.role: tensor.parameters for tensor in block.cross.tensors(model.hidden)}
        per_sample += 2.0 * block.count * (patches * (each["cross_q"] + each["cross_out"]))
        per_sample += 2.0 * block.count * source * (each["cross_k"] + each["cross_v"] + 2 * patches * model.hidden)
    graph = diffusion_graph(model, FUSED, patches, source, "bf16")
    assert _flops(graph, Batch.prefill(samples, patches)) == samples * per_sample


@pytest.mark.parametrize("name", TOWERED)
def test_a_tower(name: str) -> None:
    tower = load_model(name).towers[0]
    taken = _usual(tower)
    matrices = _matrices(tower.blocks, tower.hidden, "mixer") + _matrices(tower.blocks, tower.hidden, "ffn")
    per = 2.0 * matrices * taken.positions + _looked(tower.blocks, taken.positions, taken.grid)
    tail = sum(part.inputs * part.outputs for part in tower.tail if isinstance(part, Linear))
    rows = {"bins": 2 * taken.patches}  # sound comes in at twice the pace
    stem = sum(
        2.0 * part.inputs * part.outputs * getattr(part, "kernel", 1) * rows.get(part.name, taken.patches)
        for part in tower.stem
        if isinstance(part, Linear | ConvolutionLayer)
    )
    expected = taken.sequences * (per + stem) + 2.0 * tail * taken.merged
    graph = tower_graph(tower, taken, FUSED, ALONE, "bf16")
    assert _flops(graph, Batch.prefill(taken.sequences, taken.positions)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["t5-large", "whisper-small", "llama-3.2-11b-vision"])
def test_a_source_is_read_once(name: str) -> None:
    """Prompts make its keys and values, decodes find them; both look at all of it."""
    model, source = load_model(name), 300
    graph, none = (decoder_graph(model, FUSED, 1, size, "bf16") for size in (source, 0))
    cross = [
        (b.count, half) for b in model.blocks for half in (b.mixer, b.cross) if type(half).__name__ == "CrossAttention"
    ]
    made = sum(
        2.0 * n * source * t.parameters
        for n, half in cross
        for t in half.tensors(model.hidden)
        if t.role in ("cross_k", "cross_v")
    )
    looked = sum(4.0 * n * source * half.heads * half.head_dim for n, half in cross)  # type: ignore[union-attr]
    prompt, decode = _flops(graph, Batch.prefill(1, 1)), _flops(graph, Batch.decode(1, 0))
    assert prompt - decode == pytest.approx(made, rel=1e-12)
    if model.kind == "encoder-decoder":
        assert decode - _flops(none, Batch.decode(1, 0)) == pytest.approx(looked, rel=1e-12)


def test_layers_that_look_at_a_picture_rest_without_one() -> None:
    model = load_model("llama-3.2-11b-vision")
    text = replace(model, blocks=tuple(b for b in model.blocks if isinstance(b.mixer, AttentionMixer)), towers=())
    batch = Batch.prefill(2, 50)
    graphs = (decoder_graph(one, FUSED, 50, 0, "bf16") for one in (model, text))
    with_cross, without = (graph.flops(replace_logits(batch)) for graph in graphs)
    assert with_cross == without


def replace_logits(batch: Batch) -> Batch:
    return replace(batch, logit_rows=batch.tokens)


@given(length=st.integers(1, 600), window=st.integers(1, 300), chunked=st.booleans())
def test_a_window_sees_what_it_lets_through(length: int, window: int, chunked: bool) -> None:
    shape = AttentionMixer(heads=1, kv_heads=1, head_dim=1, window=window, chunked=chunked, causal=False)
    of = Heads(heads=1, kv_heads=1, key_dim=1, value_dim=1, window=Window(window, chunked), causal=False)
    seen = span(Writer(load_model("bert-base"), Cut(seq=length, inference=True), FUSED), of)
    op = CoreAttention(name="a", phase="forward", heads=1, kv_heads=1, head_dim=1, kv_dtype="bf16", **seen)
    figures = op.shape(Batch.prefill(2, length))
    keys = float(figures["pairs"][0]) / length / 2
    if chunked:
        parts = [min(window, length - start) for start in range(0, length, window)]
        assert keys == pytest.approx(sum(part**2 for part in parts) / length)
        assert figures["sequences"][0] == 2 * len(parts)
    else:
        assert keys == pytest.approx(_pairs(shape, length, (0, 0)) / length)
    assert 1 - 1e-12 <= keys <= length


@given(sequences=st.integers(1, 50), tokens=st.integers(1, 3000), keys=st.integers(1, 3000))
def test_operators_count_pairs(sequences: int, tokens: int, keys: int) -> None:
    batch = Batch.prefill(sequences, tokens)
    whole = CoreAttention(name="a", phase="forward", heads=3, kv_heads=3, head_dim=8, kv_dtype="bf16", causal=False)
    assert whole.flops(batch)[0] == pytest.approx(4.0 * sequences * tokens**2 * 24, rel=1e-12)
    look = SourceAttention(name="b", phase="forward", heads=4, kv_heads=2, head_dim=8, keys=keys)
    assert look.flops(batch)[0] == 4.0 * sequences * tokens * keys * 32
    assert look.bytes(batch)[0] == 2.0 * 8 * 2 * sequences * (2 * keys + 4 * tokens)
    assert not look.flops(Batch.decode(2, 5))[0]


def test_a_tower_is_cut_like_its_decoder() -> None:
    tower = load_model("qwen2.5-vl-7b").towers[0]
    taken = _usual(tower)
    batch = Batch.prefill(1, taken.positions)
    whole, half = (tower_graph(tower, taken, FUSED, Strategy(tp=tp), "bf16") for tp in (1, 2))
    ends = tower_graph(replace(tower, blocks=()), taken, FUSED, ALONE, "bf16")
    alone = _flops(ends, batch)
    assert 2 * (_flops(half, batch) - alone) == pytest.approx(_flops(whole, batch) - alone, rel=1e-12)
    with pytest.raises(InputError, match="which 8 does not divide"):
        tower_graph(tower, taken, FUSED, Strategy(tp=8), "bf16")


@pytest.mark.parametrize(
    "feature",
    [{"sinks": True}, {"logit_cap": 30.0}, {"output_gate": True}, {"alibi": True}, {"shared_kv": True}, {"window": 9}],
)
def test_plain_kernels_are_refused_where_there_are_none(feature: dict[str, object]) -> None:
    plain = load_model("llama-3.2-1b").blocks
    changed = (replace(plain[0], mixer=replace(plain[0].attention, **feature)),)  # type: ignore[arg-type]
    assert not check_plain(plain)
    assert check_plain(changed)
    assert check_plain((replace(plain[0], parallel=True),))
    assert check_plain(load_model("mixtral-8x7b").blocks)
    assert check_plain(load_model("mamba-2.8b").blocks)


PIECES = st.tuples(st.floats(0.1, 4), st.floats(0.1, 4), st.floats(0.1, 1.2))


@given(st.lists(PIECES, min_size=1, max_size=8), st.integers(0, 3))
def test_a_chain_takes_as_long_as_its_kernels(kernels: list[tuple[float, float, float]], small: int) -> None:
    found = Stream.chain(*kernels, small=small)
    assert found.kernels == len(kernels) + small
    seconds = sum((reads + writes) / efficiency for reads, writes, efficiency in kernels)
    assert (found.reads + found.writes) / found.efficiency == pytest.approx(seconds)


def test_logits_of_an_odd_vocabulary_take_the_kernel_for_odd_rows() -> None:
    """BERT's 30,522 do not fill rows of 16 bytes, ModernBERT's 50,368 do; plain fp32 does not mind."""
    for name, dtype, kind in (
        ("bert-large", "bf16", "gemm_unaligned"),
        ("bert-large", "fp32", "gemm"),
        ("modernbert-large", "bf16", "gemm"),
    ):
        graph = encoder_graph(load_model(name), FUSED, 64, dtype, head=True)
        assert [op.kind for op in graph.ops if op.name == "head.logits"] == [kind]


def test_each_kind_is_there() -> None:
    kinds = {load_model(name).kind for name in NAMES}
    assert {"encoder", "diffusion", "encoder-decoder", "multimodal"} <= kinds
    assert all(isinstance(load_model(name), Model) for name in TOWERED)
