"""Live bytes: a tape of three operators worked out by hand, and what holds for every tape of every engine."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from gnomon.engines.megatron.style import fused, parted
from gnomon.engines.torch.style import style as eager
from gnomon.graph.layers import Cut, embedding, head, layer
from gnomon.graph.liveness import backward, forward, recomputed_before
from gnomon.graph.tape import Recomputed, Tape, TapeNode
from gnomon.load import model as load_model
from gnomon.spec import Model

# A product, an activation, and a residual that hands its gradient on to both that it read; `in` gets a second one.
TINY = Tape(
    name="tiny",
    nodes=(
        TapeNode(name="product", reads=("in",), writes=("wide",), keeps=("in",)),
        TapeNode(name="bend", reads=("wide",), writes=("bent",), keeps=("wide",), scratch=1.0, gradient_scratch=3.0),
        TapeNode(name="residual", reads=("in", "bent"), writes=("out",), passes_on=True),
    ),
    sizes={"in": 2.0, "wide": 10.0, "bent": 2.0, "out": 2.0},
    recompute=lambda _: Recomputed(frozenset({"in"}), (frozenset({"product", "bend"}),)),
)


def test_forward_by_hand() -> None:
    assert forward(TINY, "none") == [
        ("product", 2 + 10),
        ("bend", 2 + 10 + 2 + 1),
        ("residual", 2 + 10 + 2 + 2),
    ]
    # Nothing keeps the wide tensor once it has been read.
    assert forward(TINY, "full") == [("product", 12), ("bend", 15), ("residual", 2 + 2 + 2)]


BACK = [
    ("residual", 12 + 2),  # one gradient, in the hands of three names
    ("bend", 12 + 2 + 10 + 3),  # the wide tensor's joins it, and scratch
    ("product", 2 + 2 + 10 + 2),  # only `in` stays; its second gradient is added to the first
]


def test_backward_by_hand() -> None:
    assert backward(TINY, "none") == BACK


def test_what_is_rerun_comes_first_beside_the_gradient_of_the_result() -> None:
    assert backward(TINY, "full") == [("product", 2 + 12), ("bend", 2 + 15), *BACK]


def test_a_gradient_that_is_not_handed_on_is_a_buffer_of_its_own() -> None:
    residual = replace(TINY.nodes[2], passes_on=False)
    alone = replace(TINY, nodes=(*TINY.nodes[:2], residual))
    # Now `in` and `bent` have their own beside the result's, which then goes.
    assert backward(alone, "none") == [
        ("residual", 12 + 2 + 2 + 2),
        ("bend", 12 + 2 + 2 + 10 + 3),
        ("product", 2 + 2 + 10 + 2),
    ]


GPT, LLAMA = load_model("gpt-1.7b"), load_model("llama-3.1-8b")
STYLES = {"parted": parted(True, "fp32"), "fused": fused(), "torch": eager(LLAMA)}
MODES = ("none", "selective", "full", "op", "modules=core_attn", "modules=mlp", "modules=core_attn+mlp")


def tapes(model: Model, name: str) -> list[Tape]:
    found = []
    for cut in (Cut(seq=512), Cut(seq=512, tp=2), Cut(seq=512, tp=2, sequence_parallel=True)):
        style = STYLES[name]
        found += [embedding(model, cut, style), layer(model, model.blocks[0], cut, style), head(model, cut, style)]
    return found


CASES = [
    pytest.param(tape, id=f"{name} {model.name} {tape.name} {i // 3}")
    for name in STYLES
    for model in (GPT, LLAMA)
    for i, tape in enumerate(tapes(model, name))
]
EVERY = pytest.mark.parametrize("tape", CASES)
LAYERS = pytest.mark.parametrize("tape", CASES[1::3])


def total(tape: Tape, *names: str) -> float:
    return sum(tape.sizes[name] for name in sorted(set(names)))


@EVERY
def test_every_operator_has_its_moment(tape: Tape) -> None:
    for mode in MODES:
        there, back = forward(tape, mode), backward(tape, mode)
        assert [name for name, _ in there] == [node.name for node in tape.nodes]
        due = recomputed_before(tape, mode)
        order = [[*(one.name for one in due.get(node.name, ())), node.name] for node in reversed(tape.nodes)]
        assert [name for name, _ in back] == [name for names in order for name in names]
        again = Counter(one.name for nodes in due.values() for one in nodes)
        assert again == Counter(node.name for node in tape.recomputed(mode))


@EVERY
def test_an_operator_lives_beside_what_it_reads_and_writes(tape: Tape) -> None:
    for mode in MODES:
        for node, (_, size) in zip(tape.nodes, forward(tape, mode), strict=True):
            assert size >= total(tape, *node.reads, *node.writes) + node.scratch
        due = recomputed_before(tape, mode)
        places = itertools.accumulate(1 + len(due.get(node.name, ())) for node in reversed(tape.nodes))
        moments = backward(tape, mode)
        gradients = [moments[place - 1] for place in places]
        for node, (_, size) in zip(reversed(tape.nodes), gradients, strict=True):
            assert size >= total(tape, *node.keeps) + node.gradient_scratch


@EVERY
def test_the_fullest_moment_holds_what_is_kept(tape: Tape) -> None:
    for mode in MODES:
        assert max(size for _, size in forward(tape, mode)) >= tape.saved_activation_bytes(mode)
        assert max(size for _, size in backward(tape, mode)) >= tape.saved_activation_bytes(mode)


@EVERY
def test_forward_ends_with_what_stays_and_the_result(tape: Tape) -> None:
    """And what the last operator read, which then goes."""
    last = tape.nodes[-1]
    for mode in MODES:
        stays = tape.stays(mode) | set(last.reads) | set(last.writes) | {"out"}
        stays &= set(tape.sizes)
        # Tensors the last operators read go with them, unless they are kept.
        assert forward(tape, mode)[-1][1] == pytest.approx(total(tape, *stays) + last.scratch)


@EVERY
def test_backward_ends_with_the_gradient_of_the_source(tape: Tape) -> None:
    """The first operator's own tensors are all that is left beside it."""
    first = tape.nodes[0]
    left = total(tape, *first.keeps) + total(tape, *first.writes) + first.gradient_scratch
    uses = sum("in" in node.reads for node in tape.nodes)
    gradients = uses * tape.sizes["in"] if first.reads else 0.0
    assert backward(tape, "none")[-1][1] == pytest.approx(left + gradients)


@LAYERS
def test_a_residual_hands_its_gradient_on(tape: Tape) -> None:
    """A layer's backward pass begins with one gradient, which the stream and the branch share."""
    assert backward(tape, "none")[0] == ("ffn.residual", tape.saved_activation_bytes("none") + tape.sizes["out"])


@EVERY
def test_recomputing_never_lowers_the_moments_of_the_gradients(tape: Tape) -> None:
    """What is recomputed at once is there until its gradient runs; operator by operator a little more may be held."""
    plain = backward(tape, "none")
    for mode in (mode for mode in MODES if tape.recomputing(mode).at_once):
        assert backward(tape, mode)[-1] == plain[-1]
        for (name, size), (same, kept) in zip(backward(tape, mode)[-len(plain) :], plain, strict=True):
            assert name == same
            assert size >= kept - 1e-9
