"""Any `torch.nn.Module`, made into a list of operator calls.

Nothing here imports PyTorch before a module is traced.
"""

from __future__ import annotations

from typing import Any

from gnomon.load.tracing.script import built, is_script, parted
from gnomon.load.tracing.script_words import one_chip, require_torch, script_question, scripted
from gnomon.spec.questions.running import TraceQuestion
from gnomon.spec.traced import Traced

__all__ = ["built", "is_script", "one_chip", "parted", "script_question", "scripted", "trace_module"]


def trace_module(module: Any, inputs: Any, asked: TraceQuestion) -> Traced:
    """What one step of the module calls; see `gnomon.load.tracing.trace`, which needs PyTorch."""
    require_torch()
    from gnomon.load.tracing import trace

    return trace.trace_module(module, inputs, asked)
