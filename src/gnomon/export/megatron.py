"""A shell script that trains with Megatron-LM on every node, and the plan beside it."""

from __future__ import annotations

from gnomon.engines.megatron import launch
from gnomon.engines.megatron.options import COMMIT
from gnomon.export.base import Rendered, in_other_words, require_load
from gnomon.spec import Plan

NAME = "megatron"
SUMMARY = "run.sh with one `torchrun pretrain_gpt.py` a node"


def render(plan: Plan) -> Rendered:
    require_load(plan, NAME)
    return Rendered(
        files=launch.files(plan),
        command="bash run.sh",
        engine="megatron",
        version=COMMIT,
        not_expressed=tuple(launch.not_expressed(in_other_words(plan))),
    )
