"""Requests for many LoRA adapters of one base model share a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.cost.step import StepModel
from gnomon.engines.base import RankBytes, ServingCase
from gnomon.errors import NotApplicableError
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.ops import LOGITS, TOKENS, Elementwise, Gemm, Op, Rows
from gnomon.graph.tape import TapeNode
from gnomon.spec import AttentionMixer, DenseFfn, Model
from gnomon.techniques.base import SERVING, Parameter, Rejection, Technique, Trial, Values

NARROW, WIDE = 2, 4
"""Bytes of weights and activations, and of the numbers between the two GEMMs."""
ADAPTED = ("q", "k", "v", "out", "gate", "up", "down")
"""Roles of the linear layers of attention and feed-forward."""
JOINED = {"attention.qkv": 3, "ffn.up": 2}
"""Layers that one GEMM of the base model runs and that have an adapter each."""


class GroupedAdapters(Technique[ServingCase]):
    """Punica's kernels (SGMV): beside every GEMM of a layer one kernel turns the rows of each adapter
    into `rank` numbers and a second one those into outputs, over all adapters of the step at once."""

    name = "grouped-adapters"
    work = (SERVING,)
    title = "LoRA adapters of many requests in one step"
    idea = (
        "Requests for different adapters of one base model share a step: its weights are read once, and two thin "
        "kernels beside every GEMM read the adapters of the sequences; adapters take memory beside the weights."
    )
    trials = (
        Trial(
            paper="punica",
            words="grouped-adapters",
            note="The plan without it serves the base model alone: what many adapters in one step cost, where one "
            "replica for each would be the alternative.",
        ),
    )
    parameters = (
        Parameter("rank", "of an adapter", default=16.0, low=1.0, high=512.0, whole=True),
        Parameter("adapters", "on the GPU at once", default=32.0, low=1.0, high=4096.0, whole=True),
        Parameter("share", "different adapters of a step, over its sequences", default=1.0, low=0.001, high=1.0),
    )
    searched = False
    changes = frozenset({"flops", "weight bytes"})

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        yield not _plain(case.model), "adapters are priced for dense decoders with plain attention"

    def program(self, case: ServingCase, values: Values) -> NodePass:
        rank, share = int(values["rank"]), float(values["share"])

        def adapted(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            if part != "layer":
                return nodes
            return [
                replace(node, forward=tuple(new for op in node.forward for new in _adapted(op, rank, share)))
                for node in nodes
            ]

        return adapted

    def memory(self, used: RankBytes, case: ServingCase, values: Values) -> RankBytes:
        """Adapters are sharded as the layers that they belong to."""
        each = int(values["rank"]) * _sides(case.model) * NARROW / case.strategy.tp
        return replace(used, weights=used.weights + int(values["adapters"]) * each)

    def costs(self, found: StepModel, case: ServingCase, values: Values) -> StepModel:
        if found.adapters is not None:
            why = "the engine serves adapters with kernels of its own"
            raise NotApplicableError(self.name, why, where="--with", hint="Leave it out, or serve without adapters.")
        return found

    def assumed(self, case: ServingCase, values: Values) -> str:
        return "adapters are on the GPU when their requests arrive"


def _sides(model: Model) -> int:
    """Inputs and outputs of all linear layers."""
    each = ((block.count, tensor) for block in model.blocks for tensor in block.tensors(model.hidden))
    return sum(count * (tensor.rows + tensor.columns) for count, tensor in each if tensor.role in ADAPTED)


def _plain(model: Model) -> bool:
    plain = all(isinstance(b.mixer, AttentionMixer) and isinstance(b.ffn, DenseFfn) for b in model.blocks)
    return plain and not model.towers


def _adapted(op: Op, rank: int, share: float) -> tuple[Op, ...]:
    """A GEMM of the base model, and the two kernels beside it. The first reads the adapters of a step and writes
    `rank` numbers for each token, the second reads those and adds to the outputs."""
    if not isinstance(op, Gemm):
        return (op,)
    assert isinstance(op.n, int) and isinstance(op.k, int), "weight matrices have fixed sizes"
    joined = JOINED.get(op.name, 1)
    weights = Elementwise(
        name=f"{op.name}.lora_weights",
        rows=Rows(LOGITS.of, share * rank),
        read_per_row=(joined * op.k + op.n) * NARROW,
        written_per_row=0.0,
        count=op.count,
    )
    middle = joined * rank * WIDE
    tokens = Elementwise(
        name=f"{op.name}.lora_tokens",
        rows=TOKENS,
        read_per_row=op.k * NARROW + middle + op.n * NARROW,
        written_per_row=middle + op.n * NARROW,
        count=op.count,
    )
    return op, weights, tokens


TECHNIQUES = (GroupedAdapters(),)
