"""Tokens put in the order of experts by GEMMs with one-hot masks, as the first libraries of experts did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gnomon.engines.training import StepTable
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.grid import PARTS, encoded
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.ops import TOKENS, Elementwise, Gemm, Op
from gnomon.graph.sizes import PREFILLS, PROMPT, Rows
from gnomon.graph.tape import TapeNode
from gnomon.spec import Model, MoeFfn
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Values

PERMUTE, UNPERMUTE, MASKS = "ffn.permute", "ffn.unpermute", "ffn.masks"
FP32, HALF, BOOL = 4.0, 2.0, 1.0
MASKED_GEMMS = 5
"""Of masks with tokens: into slots and back, and the gradients of tokens, slots and weights."""
SAVED = FP32 + BOOL + 2 * HALF
"""Bytes of a mask's value between the passes: weights in fp32, whether there is one, and both cast for the GEMMs."""
GRADIENTS = HALF + 2 * FP32
"""Of the gradient of the weights: as the GEMM gives it, widened, and that of one choice."""


class EinsumDispatch(Technique[TrainingCase]):
    name = "einsum-dispatch"
    work = (TRAINING,)
    title = "Tokens dispatched by GEMMs with one-hot masks"
    idea = (
        "Masks of tokens, experts and slots are multiplied with the tokens before and after the experts (GShard's "
        "gating, as Fairseq and the first DeepSpeed-MoE have it): FLOPs and memory grow with the square of the tokens "
        "that are dispatched together, and every slot of every expert is sent and computed."
    )
    parameters = (
        Parameter("capacity", "slots of an expert over an equal share, where the plan says nothing", default=1.0,
                  low=1.0, high=8.0, tried=(1.0,)),
    )  # fmt: skip
    excludes = ("ring-attention",)
    searched = False
    changes = frozenset({"flops", "activation bytes"})

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        plans = case.plans
        yield not case.model.is_moe, f"{case.model.name} has no experts"
        yield (plans.tp > 1) | (plans.cp > 1), "masks over tokens that several ranks share are not priced"
        yield plans.dispatch > 0, "tokens that are sent once to a rank are not dispatched by masks"
        yield case.load.sequences is not None, "masks over sequences that differ in length are not priced"

    def rewrite(self, case: TrainingCase, values: Values) -> TrainingCase:
        given = case.plans.capacity_factor
        usual = np.full_like(given, encoded("capacity_factor", float(values["capacity"])))
        return case.having(capacity_factor=np.where(given > 0, given, usual), pad_to_capacity=1)

    def costs(self, found: StepTable, case: TrainingCase, values: Values) -> StepTable:
        """FLOPs of masks are none of the model's."""
        slots = _topk(case.model) * found.grid.capacity_factor / PARTS
        each = 2.0 * case.load.seq**2 * slots * case.model.hidden
        layers = sum(block.count for block in case.model.blocks if isinstance(block.ffn, MoeFfn))
        return replace(found, model_flops=found.model_flops - MASKED_GEMMS * layers * case.load.global_batch * each)

    def program(self, case: TrainingCase, values: Values) -> NodePass:
        topk = _topk(case.model)

        def masked(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            if part != "layer" or not any(node.name == PERMUTE for node in nodes):
                return nodes
            return [new for node in nodes for new in _masked(node, writer, topk)]

        return masked


def _topk(model: Model) -> int:
    return max((block.ffn.topk for block in model.blocks if isinstance(block.ffn, MoeFfn)), default=0)


def _masked(node: TapeNode, writer: Writer, topk: int) -> tuple[TapeNode, ...]:
    if node.name not in (PERMUTE, UNPERMUTE):
        return (node,)
    slots = topk * writer.cut.sent_rows
    to_slots = Gemm(
        name=f"{node.name}.einsum", m=Rows("prompt", slots), n=writer.model.hidden, k=PROMPT, batch=PREFILLS,
        dtype=writer.cut.dtype, out_dtype=writer.out,
    )  # fmt: skip
    to_tokens = replace(to_slots, m=PROMPT, k=Rows("prompt", slots))
    of_weights: Op = replace(to_slots, name=f"{node.name}.einsum.by_weights", n=writer.model.hidden)
    if node.name == PERMUTE:
        back = replace(to_tokens, name=f"{node.name}.by_input")
        return _made(writer, slots, topk), replace(node, forward=(to_slots,), dgrad=(back,), kernel=None)
    back = replace(to_slots, name=f"{node.name}.by_input")
    read = node.reads[0]
    given = replace(node, forward=(to_tokens,), dgrad=(back, of_weights), kernel=None, keeps=(read,))
    return (given,)


def _made(writer: Writer, slots: float, topk: int) -> TapeNode:
    """Masks of each choice, their sum, which of it is there, and both cast; and backward the gradients of the choices'
    weights."""
    each = slots * writer.cut.seq
    writer.sizes[MASKS] = each * SAVED
    read, written = FP32 * (topk + 2) + BOOL, FP32 * (topk + 1) + BOOL + 2 * HALF
    forward = Elementwise(
        name=MASKS, rows=TOKENS, read_per_row=each * read, written_per_row=each * written, count=topk + 4
    )
    back = Elementwise(
        name=f"{MASKS}.by_input", rows=TOKENS, read_per_row=each * (HALF + FP32 * topk), written_per_row=each * FP32,
        count=topk + 1,
    )  # fmt: skip
    counted = [replace(op, read_per_row=op.read_per_row / op.count, written_per_row=op.written_per_row / op.count)
               for op in (forward, back)]  # fmt: skip
    return TapeNode(
        name=MASKS, forward=(counted[0],), dgrad=(counted[1],), reads=("ffn.shares",), writes=(MASKS,), keeps=(MASKS,),
        gradient_scratch=each * GRADIENTS,
    )  # fmt: skip


TECHNIQUES = (EinsumDispatch(),)
