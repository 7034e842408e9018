"""Published rows of mixtures: what one rank of a group computes, and which rows say something else than they seem to.

AIConfigurator times the rank that gets most. Tokens are those of the whole group, `balanced` deals them out evenly, and
`power_law_A` draws shares of a power law (`gnomon.graph.uneven`), five times anew for each row.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import ceil
from zlib import crc32

import numpy as np

from gnomon.engines.vllm.kernels import MXFP4_STEPS, published_kernel
from gnomon.errors import CalibrationError
from gnomon.graph.uneven import busiest_unevenly, visited_unevenly

GROUPED = (7168.0, 2048.0, 256.0, 8.0)
"""DeepSeek-V3's sizes. Its router first chooses four of eight groups of experts, so that what was meant to be even
visits half of them, and one rank gets twice what another does: in vLLM's and SGLang's tables such rows take half or
three times what other models of the size do. TensorRT-LLM's are given the choices themselves."""
UNGATED = ((2688.0, 1856.0, 128.0, 6.0),)
"""Nemotron 3 Nano's sizes; its larger siblings are those that choose 22 experts."""
UNGATED_TOPK = 22.0
UNGATED_SINCE = {"vllm": "0.24"}
"""The releases whose rows of these run two matrices, as the models do; others were timed with a gate."""
WHOLE_ROWS = (("sglang", "0.5.10"),)
"""Where a rank multiplies every choice of the tokens that reach it, and not only those of its own experts: with 2 to 8
ranks a row takes as long as with one."""

Sizes = dict[str, float]


def experts(row: Mapping[str, str]) -> tuple[str, str, Sizes] | None:
    """One rank's share; a cut of experts' width is a smaller width. None where a row cannot be trusted."""
    names = ("num_tokens", "hidden_size", "inter_size", "num_experts", "topk", "moe_tp_size", "moe_ep_size")
    try:
        tokens, hidden, inner, count, topk, cut, ranks = (float(row[name] or 1) for name in names)
        power = row["distribution"].removeprefix("power_law_")
        skew = 0.0 if power == row["distribution"] else float(power)
    except (KeyError, ValueError) as problem:
        raise CalibrationError(f"a published row of experts has {problem}") from None
    model = (hidden, inner, count, topk)
    if count % ranks or not _trusted(row, model, ranks, skew):
        return None
    visits, visited = _visits(tokens, count, topk, int(ranks), skew)
    choices = topk / ranks
    if ranks > 1 and (row["framework"], row["framework_version"]) in WHOLE_ROWS:
        visits = topk * min(tokens, visits)
    sizes = {"tokens": visits / choices} | _computed(row, hidden, inner / cut) | {"experts": count / ranks}
    sizes |= {"topk": choices, "skew": skew, "visited": visited, "absent": max(tokens * topk - visits, 0.0)}
    return "moe", row["dtype"], sizes | {"matrices": _matrices(row, model), "model": float(crc32(repr(model).encode()))}


def _computed(row: Mapping[str, str], hidden: float, inner: float) -> Sizes:
    """Channels that the kernel of a row computes on: vLLM's of mxfp4 pad them."""
    padded = row["framework"] == "vllm" and "mxfp4" in row["dtype"]
    inner_step, hidden_step = MXFP4_STEPS.get(published_kernel(row["kernel"]), (1, 1)) if padded else (1, 1)
    return {"hidden": ceil(hidden / hidden_step) * hidden_step, "inter": ceil(inner / inner_step) * inner_step}


def _trusted(row: Mapping[str, str], model: tuple[float, ...], ranks: float, skew: float) -> bool:
    """Whether a row's routing is what it says it is."""
    return model != GROUPED or row["framework"] == "trtllm" or (ranks == 1 and skew > 0)


def _matrices(row: Mapping[str, str], model: tuple[float, ...]) -> float:
    since = UNGATED_SINCE.get(row["framework"])
    newer = since is not None and _release(row["framework_version"]) >= _release(since)
    ungated = model in UNGATED or model[3] == UNGATED_TOPK
    return 2.0 if "nongated" in row["kernel"] or (newer and ungated) else 3.0


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


@lru_cache(maxsize=1 << 15)
def _visits(tokens: float, count: float, topk: float, ranks: int, skew: float) -> tuple[float, float]:
    """Visits to the busiest rank, and its visited experts."""
    held = count / ranks
    if not skew:
        visits = tokens * topk / ranks
        return visits, min(held, max(visits, 1.0))
    sizes = (np.array(tokens), np.array(count), np.array(topk), np.array(skew))
    if ranks == 1:
        return tokens * topk, float(visited_unevenly(*sizes))
    visits = float(busiest_unevenly(*sizes, ranks))
    return visits, min(held, visits, max(float(visited_unevenly(*sizes)) / ranks, 1.0))
