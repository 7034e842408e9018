"""What fields of answers may hold, beyond their types: a stored answer is checked against it when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from gnomon.spec.estimate import Estimate

MOST = 1e30
"""More than any figure of ours; its inverse is less than any that is not zero."""


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The least and the largest number that a field may hold."""

    least: float = 0.0
    most: float = MOST


OR_EMPTY = "or empty"
"""Beside the shape of a mapping that may as well have no field."""
Signed = Annotated[float, NumberRange(-MOST)]
Degree = Annotated[int, NumberRange(1, 1e9)]
"""A count of chips, sequences or parts."""
Time = Annotated[Estimate, NumberRange(1 / MOST)]
"""Seconds that others are divided by."""
Setting = str | bool | Signed


class Inputs(TypedDict, total=False):
    """What an answer was asked with, by the names of the flags. Each command has some of these; others may be beside
    them. An answer that reads some of them names them beside this shape."""

    model: str | None
    on: str | None
    cluster: str | None
    work: str | None
    phase: str | None
    kind: str | None
    unit: str | None
    launch: str | None
    engine: str | None
    dtype: str | None
    kv_dtype: str | None
    arithmetic: str | None
    tp: Degree | None
    pp: Degree | None
    vp: Degree | None
    cp: Degree | None
    ep: Degree | None
    dp: Degree | None
    batch: int | None
    context: int | None
    tokens: float | None
    settings: Mapping[str, Setting] | None
    techniques: tuple[str, ...]
    asked: Mapping[str, Any]
    trace: str | None
    rate: float | None
    input: str | int | None
    output: str | int | None
    requests: int | None
    seed: int | None
    concurrency: int | None
    arrivals: str | None
    prefix: str | None
    turns: int | None
    think_s: float | None
    adapters: str | int | None
    priorities: str | None
    pools: tuple[Mapping[str, Any], ...]
    router: str | None
    kv_transfer: str | None
    slo: str | None
    seq: Degree
    global_batch: Degree
    lengths: str
    packing: str
    document_masking: bool
    sampling: str
    micro_batch: Degree
    recompute: str
    zero: int
    schedule: str
    expert_tp: int | None
    layers_per_stage: str
    dp_shard: int
    hpz: int
    tp_overlap: bool
    cp_a2a: int
    fp8_param_gather: bool
    bf16_layers: str
    dispatch: str | None
    capacity_factor: float
    pad_to_capacity: bool
    imbalance: float
    ep_overlap: bool
    cuda_graphs: bool
    cp_comm: str
    sequence_parallel: bool
    optimizer: str
