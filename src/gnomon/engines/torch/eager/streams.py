"""PyTorch's memory-bound kernels: bytes moved, launches and efficiency.

Bytes follow from shapes, layouts and formats. A kernel without a measured efficiency takes that of the measured kernel
it is most `like`, until `gnomon.engines.torch.efficiencies` has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.catalog.base import packaged
from gnomon.engines.torch.eager.forms import find_efficiency, form_of, gather_efficiency
from gnomon.graph.ops import Elementwise
from gnomon.graph.style import STREAMING_EFFICIENCY
from gnomon.spec.traced import Call

FILE = Path(__file__).with_name("streams.yaml")
STRIDED = "rope"
"""Kernel whose operands are all strided: its efficiency is that of a transposing copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How an operator's kernel reads its arguments and writes its results."""

    kernel: str
    like: str = "add"
    reads: float = 1.0
    writes: float = 1.0
    launches: int = 1
    unread: tuple[str, ...] = ()
    """Arguments it does not read, or reads only a few values of."""
    looked_up: tuple[str, ...] = ()
    """Arguments of which it gathers as many bytes as it writes."""
    again: tuple[str, ...] = ()
    """Arguments that it also writes in full, after clearing or copying them."""
    places: tuple[str, ...] = ()
    """Arguments that it scatters into a tensor: only the indexed values are read and written."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules by operator, and operators that launch nothing."""

    by_operator: Mapping[str, Rule]
    nothing: frozenset[str]


@cache
def rules() -> Rules:
    data = packaged(FILE)
    found: dict[str, Rule] = {}
    for entry in data["kernels"]:
        names = entry.pop("operators")
        fields: dict[str, Any] = {key: tuple(x) if isinstance(x, list) else x for key, x in entry.items()}
        found |= dict.fromkeys(names, Rule(**fields))
    return Rules(found, frozenset(data["nothing"]))


def base_name(call: Call) -> str:
    """The operator without its namespace and its in-place suffix."""
    name, known = call.op.partition(".")[2], rules()
    return name if name in known.nothing or name in known.by_operator else name.removesuffix("_")


def rule_for(call: Call) -> tuple[Rule, bool]:
    """The rule of a call, and whether it is known: an operator without a rule streams its operands once."""
    name, known = base_name(call), rules().by_operator
    if name.endswith("batch_norm") and call.options.get("training") is False:
        name = "_native_batch_norm_legit_no_training"
    if name in known:
        return known[name], True
    if call.pointwise:
        return known["where"], True
    if name.startswith(("_foreach_", "_fused_")):
        return Rule(kernel="foreach", like="scale"), True
    return Rule(kernel=name), False


def stream(call: Call, efficiencies: Mapping[str, float]) -> tuple[Elementwise | None, bool]:
    """The kernel of a call, or None where it launches none; and whether its rule is known."""
    if base_name(call) in rules().nothing or call.is_view:
        return None, True
    rule, known = rule_for(call)
    read, written = _traffic(call, rule)
    if not read and not written:
        return None, True
    name, efficiency = _efficiency(call, rule, efficiencies, read + written)
    launches = rule.launches
    return (
        Elementwise(
            name=name,
            rows=1,
            read_per_row=read / launches,
            written_per_row=written / launches,
            dtype="bf16",
            count=launches,
            efficiency=efficiency,
            cached=efficiency >= STREAMING_EFFICIENCY,
        ),
        known,
    )


def _traffic(call: Call, rule: Rule) -> tuple[float, float]:
    """Bytes read and written, all launches together."""
    there = {spec.storage for spec in call.inputs}
    made = sum(spec.bytes for spec in call.results if spec.storage not in there)
    sizes = {name: sum(spec.stored_bytes for spec in specs) for name, specs in call.tensors.items()}
    changed = {name for name in call.changed if name != "grads"}  # an optimizer only reads them
    read = 0.0
    for name, size in sizes.items():
        if name not in rule.unread and not (rule.places and name in changed):
            read += min(size, made) if name in rule.looked_up else size
    written = made + sum(sizes.get(name, 0.0) for name in changed if not rule.places)
    placed = sum(sizes.get(name, 0.0) for name in rule.places)
    again = sum(sizes.get(name, 0.0) for name in rule.again)
    return read * rule.reads + placed, written * rule.writes + placed + again


def _efficiency(call: Call, rule: Rule, efficiencies: Mapping[str, float], moved: float) -> tuple[str, float]:
    """The kernel's name and efficiency: of its variant where it was measured, else of the kernel, else of `like`."""
    made = call.results[0] if call.results else (call.inputs[0] if call.inputs else None)
    if made is None:
        return rule.kernel, find_efficiency(efficiencies, False, rule.kernel, rule.like)
    name = form_of(call, rule.kernel, made)
    wide = any(spec.item_bytes == 4 for spec in (made, *call.inputs) if spec.values)
    like = STRIDED if name.endswith(".strided") else rule.like
    efficiency = gather_efficiency(efficiencies, made, moved) if rule.kernel == "gather" else None
    return name, efficiency or find_efficiency(efficiencies, wide, name, rule.kernel, like)
