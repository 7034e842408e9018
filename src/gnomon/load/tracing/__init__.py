"""Any `torch.nn.Module`, made into a list of operator calls.

Nothing here imports PyTorch before a module is traced.
"""

from __future__ import annotations

from typing import Any

from gnomon.load.tracing.script import built, is_script, parted
from gnomon.load.tracing.trace_file import is_trace_file
from gnomon.spec.traced import Traced

__all__ = ["built", "is_script", "is_trace_file", "parted", "trace_module"]


def trace_module(module: Any, inputs: Any, **options: Any) -> Traced:
    """What one step of the module calls; see `gnomon.load.tracing.trace`, which needs PyTorch."""
    from gnomon.load.tracing import trace

    return trace.trace_module(module, inputs, trace.TraceOptions(**options))
