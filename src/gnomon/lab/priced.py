"""Seconds of kernels on a chip, as plans price them, for the predictions of experiments."""

from __future__ import annotations

from typing import Literal

import numpy as np

from gnomon.catalog.hardware import node_of
from gnomon.cost.host_link import LINK_SHARE
from gnomon.cost.machine import Machine
from gnomon.graph.ops import Convolution, SequenceAttention
from gnomon.lab.base import RateUnknown
from gnomon.load.profiles import profile_for
from gnomon.spec import Batch, Chip, Pool


def machine_of(chip: Chip) -> Machine:
    """One of a chip, as plans price it."""
    return Machine(Pool.of(chip, 1), profile_for(chip))


def gemm_s(machine: Machine, m: int, n: int, k: int, dtype: str = "bf16", batch: int = 1) -> float:
    """Seconds of a GEMM on a machine."""
    shape = {name: np.array([float(size)]) for name, size in (("m", m), ("n", n), ("k", k), ("batch", batch))}
    return float(machine.seconds("gemm", dtype, shape)[0])


def stream_s(machine: Machine, read: float, written: float) -> float:
    """Seconds of an elementwise kernel that reads and writes so many bytes."""
    stream = {
        "bytes_read": np.array([float(read)]),
        "bytes_written": np.array([float(written)]),
        "efficiency": np.ones(1),
    }
    return float(machine.seconds("elementwise", "bf16", stream)[0])


def conv_s(
    machine: Machine,
    places: int,
    outputs: int,
    inputs: int,
    taps: int,
    *,
    stride: int = 1,
    groups: int = 1,
    turned: float = 0.0,
) -> float:
    """Seconds of a convolution in bf16 with so many output places and weights for each pair of channels; `turned` are
    the bytes that lie channels first."""
    moved = 2.0 * (places * outputs + places * stride**2 * inputs + outputs * inputs // groups * taps)
    op = Convolution(
        name="conv", m=places, n=outputs // groups, k=inputs // groups * taps, groups=groups, moved=moved,
        dtype="bf16", channels=min(inputs, outputs) // groups, turned=turned,
    )  # fmt: skip
    return float(machine.seconds(op.kind, "bf16", op.shape(Batch.prefill(1, 1)))[0])


def torch_machine(chip: Chip) -> Machine:
    """One of a chip with PyTorch's kernels."""
    return Machine(Pool.of(chip, 1), profile_for(chip), framework="torch")


def copy_bytes_s(chip: Chip) -> float:
    """Bytes per second of large copies between pinned memory and a chip, one way, by its host in the catalog."""
    host = Pool.of(chip, 1, node=node_of(chip)).machine
    if host is None:
        raise RateUnknown("host_to_gpu_bytes_s")
    return LINK_SHARE * float(host.copy_bytes_s(1))


def attention_s(
    machine: Machine, sequences: int, heads: int, tokens: int, head_dim: int, *, causal: bool, backward: bool = False
) -> float:
    """Seconds of softmax attention over whole sequences."""
    phase: Literal["forward", "backward"] = "backward" if backward else "forward"
    op = SequenceAttention(
        name="attention", phase=phase, sequences=sequences, heads=heads, kv_heads=heads, queries=tokens, keys=tokens,
        head_dim=head_dim, value_dim=head_dim, causal=causal, dtype="bf16",
    )  # fmt: skip
    return float(machine.seconds(op.kind, "bf16", op.shape(Batch.prefill(1, tokens)))[0])


def shared_attention_s(
    machine: Machine, sequences: int, heads: int, kv_heads: int, queries: int, keys: int, head_dim: int
) -> float:
    """Seconds of attention without a mask of some queries over more keys, which heads may share."""
    op = SequenceAttention(
        name="attention", phase="forward", sequences=sequences, heads=heads, kv_heads=kv_heads, queries=queries,
        keys=keys, head_dim=head_dim, value_dim=head_dim, causal=False, dtype="bf16",
    )  # fmt: skip
    return float(machine.seconds(op.kind, "bf16", op.shape(Batch.prefill(1, keys)))[0])
