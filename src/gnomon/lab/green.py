"""Streams whose kernels run on a share of the SMs: two green contexts of the driver that split the GPU.

What a stream of a green context captures in a CUDA graph keeps to its SMs when it is replayed. PyTorch's own green
contexts of one size each start at the same SM, so two of them are no partition.
"""

from __future__ import annotations

import ctypes
from typing import Any

from gnomon.errors import CalibrationError
from gnomon.lab.bench import Bench

SM_RESOURCE, DEFAULT_STREAM, NON_BLOCKING = 1, 1, 1
ROOM = 1024
"""Bytes for a resource; 144 in CUDA 12 and 13."""
COUNT_AT = 96
"""Where a resource has its number of SMs, after its type and 92 bytes of the driver's own."""


def split_streams(bench: Bench, wanted: int) -> tuple[Any, Any, tuple[int, int]]:
    """Streams on at least so many SMs, as the driver rounds, and on all others; and how many each has."""
    torch = bench.torch
    driver = ctypes.CDLL("libcuda.so.1")
    device = torch.cuda.current_device()
    everything, mine, others = (ctypes.create_string_buffer(ROOM) for _ in range(3))
    _call(driver.cuDeviceGetDevResource, device, everything, SM_RESOURCE)
    groups = ctypes.c_uint(1)
    _call(driver.cuDevSmResourceSplitByCount, mine, ctypes.byref(groups), everything, others, 0, ctypes.c_uint(wanted))
    streams = [torch.cuda.ExternalStream(_stream(driver, device, resource)) for resource in (mine, others)]
    return streams[0], streams[1], (_count(mine), _count(others))


def _stream(driver: Any, device: int, resource: Any) -> int:
    """A stream of a new green context, which lives as long as the process."""
    description, context, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    _call(driver.cuDevResourceGenerateDesc, ctypes.byref(description), resource, 1)
    _call(driver.cuGreenCtxCreate, ctypes.byref(context), description, device, DEFAULT_STREAM)
    _call(driver.cuGreenCtxStreamCreate, ctypes.byref(stream), context, NON_BLOCKING, 0)
    return int(stream.value or 0)


def _count(resource: Any) -> int:
    return int.from_bytes(resource.raw[COUNT_AT : COUNT_AT + 4], "little")


def _call(function: Any, *given: Any) -> None:
    if code := function(*given):
        raise CalibrationError(f"{function.__name__} of the driver fails with {code}")
