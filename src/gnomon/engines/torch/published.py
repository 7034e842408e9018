"""Kernels between products as the published code of networks has them, where they are not PyTorch's own one kernel.

Counted by tracing transformers 5.17 with `gnomon.trace`; tests/oracles/test_network_kernels.py traces them again.
"""

from __future__ import annotations

from dataclasses import replace

from gnomon.engines.torch.eager.products import ATTENTION
from gnomon.engines.torch.paces import paces
from gnomon.engines.torch.style import style
from gnomon.graph.lowering.plain import NOTHING, Kernels
from gnomon.graph.style import Stream
from gnomon.spec import Model, Tower

MASKED = ATTENTION["attention.efficient"]


def published(model: Model, part: Model | Tower) -> Kernels:
    """The kernels of one part of a network."""
    pace = paces()
    centred = part.norm_bias or model.centred_norms
    own = style(replace(model, norm_bias=centred))
    beside = NOTHING
    if not centred:
        # A norm by its root mean square is written out: widened, squared, averaged, scaled, narrowed and weighed.
        own = replace(own, norm=Stream(10, 8, 0, 0, 8, pace=pace["scale.float32"]))
    if model.family == "t5":
        # Its GELU is a formula of eight steps, where it has one.
        own = replace(own, gated=Stream(10, 8, 0, 0, 8, pace=pace["add"]))
    if model.family == "modernbert":
        # Queries and keys are turned in fp32: widened, turned, joined and narrowed.
        own = replace(own, rope=Stream(11, 10, 0, 0, 16, pace=pace["scale.bfloat16"]))
    if model.family == "whisper":
        # Heads are put in order for each of queries, keys and values and back, and the residual is added across.
        own = replace(own, residual=replace(own.residual, pace=pace["rope"]))
        beside = Stream(7, 7, 0, 0, 7, pace=pace["rope"])
    # Llama's tower masks the tiles that a picture does not fill.
    masked = model.family == "mllama" and isinstance(part, Tower)
    return Kernels(style=own, beside=beside, masked=masked, masked_pace=MASKED, skips=False)
