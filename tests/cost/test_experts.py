"""Tokens sent to experts: the ranks they reach, what bounds them, and laws that any link obeys."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from gnomon import catalog
from gnomon.cost import experts
from gnomon.cost.link_fits import link_fits

H100 = catalog.chip("H100")
START = {name: start for name, (start, _, _) in experts.COEFFICIENTS.items()}
FITS = [(op, link) for op in (experts.DISPATCH, experts.COMBINE) for link in link_fits()[op]]


def shape(**sizes: float) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    usual = {"tokens": 4096, "hidden": 7168, "topk": 8, "experts": 256, "ranks": 8, "width": 2, "blocks": 20}
    return {name: np.array([float(value)]) for name, value in (usual | sizes).items()}


def seconds(c: dict[str, float] | None = None, **sizes: float) -> float:
    return float(experts.seconds(shape(**sizes), H100, H100.scaleup, c or START)[0])


@pytest.mark.parametrize(("ranks", "count", "topk"), [(2, 4, 2), (4, 8, 3), (3, 6, 2), (4, 4, 4)])
def test_ranks_are_reached_as_if_all_choices_were_counted(ranks: int, count: int, topk: int) -> None:
    each = count // ranks
    chosen = [len({expert // each for expert in some}) for some in combinations(range(count), topk)]
    found = experts.reached(np.array([ranks]), np.array([count]), np.array([topk]))
    assert found[0] == pytest.approx(np.mean(chosen))


@pytest.mark.parametrize(("op", "link"), FITS)
def test_more_to_send_is_never_quicker(op: str, link: str) -> None:
    c = dict(link_fits()[op][link].coefficients)
    for name, sizes in {
        "tokens": [1, 16, 500, 1e4, 1e6], "hidden": [512, 4096, 16384], "topk": [1, 2, 8, 32], "width": [0.5, 1, 2],
    }.items():  # fmt: skip
        times = [seconds(c, **{name: size}) for size in sizes]
        assert times == sorted(times), name
    assert seconds(c, blocks=24) <= seconds(c, blocks=4)
    better = replace(H100.scaleup, bandwidth_bytes_s=2 * H100.scaleup.bandwidth_bytes_s)
    assert experts.seconds(shape(), H100, better, c)[0] <= seconds(c)


@pytest.mark.parametrize(("op", "link"), FITS)
def test_nothing_beats_the_link(op: str, link: str) -> None:
    sent = experts.reached(np.array([8.0]), np.array([256.0]), np.array([8.0]))[0] * 7 / 8
    wire = 1e5 * sent * 7168 * 2 / H100.scaleup.bandwidth_bytes_s
    assert seconds(dict(link_fits()[op][link].coefficients), tokens=1e5, blocks=132) > wire


def test_no_tokens_take_no_time_and_indices_no_bytes() -> None:
    assert seconds(tokens=0) == 0
    assert seconds(width=0) < seconds(width=0.5)
    assert seconds(width=0) == pytest.approx(seconds(width=0, topk=1))


def test_published_exchanges() -> None:
    """DeepEP in SGLang 0.5.12 on 8 H100, 24 thread blocks, 131,072 tokens of DeepSeek-V3: 14.7 ms there, 26.9 back."""
    for op, width, published in ((experts.DISPATCH, 1.03, 14.694e-3), (experts.COMBINE, 2.0, 26.913e-3)):
        c = dict(link_fits()[op]["NVLink4"].coefficients)
        assert seconds(c, tokens=131072, width=width, blocks=24) == pytest.approx(published, rel=0.12)
