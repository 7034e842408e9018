"""SkipPipe (Blagoev et al. 2025): a pipeline over twelve regions whose micro-batches skip a third of the stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from gnomon.papers.base import Ours
from gnomon.sim.training.journeys import Journey, Nodes, walk

REGIONS = ("BE", "CA", "DE", "IA", "JP", "LA", "NL", "OR", "SG", "TW", "UK", "AU")
"""Nodes are in these regions one after the other."""
LINKS = """
AU-BE:129/10.0625 AU-CA:98/13.5 AU-DE:125.5/10.7125 AU-IA:84/11.5 AU-JP:58/14.125 AU-LA:69/15 AU-NL:128/9.75 AU-OR:68/15
AU-SG:48/30.5 AU-TW:67/21.5 AU-UK:132/9.625 BE-CA:41/20.375 BE-DE:4/248.32 BE-IA:49/29 BE-JP:112/12 BE-LA:70/19.875
BE-NL:3/248.32 BE-OR:66/21.375 BE-SG:83/16.5 BE-TW:105/12.75 BE-UK:3.5/248.32 CA-DE:44/32.625 CA-IA:14/77.5
CA-JP:74/18.5 CA-LA:35/31.25 CA-NL:42/25.625 CA-OR:30.5/48.25 CA-SG:107/12.22499 CA-TW:89/15.0625 CA-UK:38.5/37.25
DE-IA:53.5/27.25 DE-JP:112/11.35 DE-LA:73/18.6875 DE-NL:3.5/248.32 DE-OR:68/15.275 DE-SG:80/12.8 DE-TW:102/12.875
DE-UK:6.6/193.28 IA-JP:72.5/14.3125 IA-LA:23.4/62.9375 IA-NL:51/28.0625 IA-OR:19.3/92.5 IA-TW:88/13.1072
IA-SG:101.5/12.9375 IA-UK:48.1/22.375 JP-LA:50/28.4375 JP-NL:108.5/11.65 JP-OR:46.2/31.1875 JP-SG:35.6/39.9375
JP-TW:19.2/78.5625 JP-UK:107/9.1 LA-NL:71.5/14.59375 LA-OR:12.4/121.375 LA-SG:79.5/17.25 LA-TW:64/16.58125
LA-UK:68/15.275 NL-OR:67/20.875 NL-SG:81.5/16.75 NL-TW:105.5/12.25 NL-UK:4.8/0.2425 OR-SG:78.5/17.1875
OR-TW:59.5/23.875 OR-UK:64/21.75 SG-TW:23.2/63.375 SG-UK:85/16.0625 TW-UK:109.5/9.175
"""
"""Latency in milliseconds and MiB/s of every pair."""
STAGES = ((0, 3, 4, 10, 11), (15, 8, 14), (1, 9, 6), (16, 12, 13), (5, 18, 7), (17, 2, 19))
COUNT, SENT_MIB, BESIDE_S, NODE_S, GAP_S, ROOM = 20, 32.0, 0.35, 0.44, 0.13, 3
HOME_MS, HOME_MIB_S = 1.0, 2048.0
SKIPPING = ((0, 6, 12, 5), (3, 14, 2, 18), (4, 1, 15, 19), (10, 13, 17, 7), (11, 8, 16, 9))
"""One path for each first node."""
OF_DEVICES = (
    (0, 12, 5, 19), (0, 1, 19, 18), (0, 6, 18, 17), (3, 12, 6, 2), (3, 14, 12, 2), (3, 6, 14, 13), (4, 15, 13, 7),
    (4, 15, 5, 17), (4, 15, 13, 7), (10, 1, 17, 5), (10, 1, 7, 2), (10, 14, 18, 19), (11, 8, 16, 9), (11, 8, 16, 9),
    (11, 8, 16, 9),
)  # fmt: skip
"""Three for each, where links may collide."""
WAVES, DRAWS = 2, 16


@cache
def _nodes() -> Nodes:
    known = {}
    for entry in LINKS.split():
        pair, figures = entry.split(":")
        first, second = pair.split("-")
        latency, rate = map(float, figures.split("/"))
        known[first, second] = known[second, first] = latency / 1e3 + SENT_MIB / rate
    home = HOME_MS / 1e3 + SENT_MIB / HOME_MIB_S
    where = [REGIONS[node % len(REGIONS)] for node in range(COUNT)]
    send = [[BESIDE_S + (home if one == other else known[one, other]) for other in where] for one in where]
    return Nodes(forward_s=[NODE_S] * COUNT, send_s=send, room=ROOM, gap_s=GAP_S)


def _iteration_s(paths: Sequence[Sequence[int]], waves: int, apart_s: float) -> float:
    """Micro-batches of every path, each after the one before it on the same path is back."""
    journeys: list[Journey] = []
    for place, path in enumerate(paths):
        for wave in range(waves):
            before = len(journeys) - 1 if wave else -1
            journeys.append(Journey(path=tuple(path), ready_s=wave * 2.5 + place % ROOM * apart_s, after=before))
    return max(walk(_nodes(), journeys))


def _full() -> float:
    """Columns of nodes, one of each stage; three of the five first nodes send, nine micro-batches each."""
    columns = [[stage[at] for stage in STAGES] for at in range(len(STAGES[1]))]
    return _iteration_s([column for column in columns for _ in range(ROOM)], 3, 0.0)


def _at_random() -> float:
    """Three of the five other stages in any order, and any node of each: the median of some draws."""
    found = []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        paths = [_drawn(first, rng) for first in STAGES[0] for _ in range(ROOM)]
        found.append(_iteration_s(paths, WAVES, NODE_S))
    return float(np.median(found))


def _drawn(first: int, rng: np.random.Generator) -> list[int]:
    stages = rng.permutation(np.arange(1, len(STAGES)))[: len(SKIPPING[0]) - 1]
    return [first, *(int(rng.choice(STAGES[stage])) for stage in stages)]


def figures() -> Iterator[Ours]:
    full = _full()
    skipping = _iteration_s([path for path in SKIPPING for _ in range(ROOM)], WAVES, 1.0)
    yield "iteration, skipped stages over the full pipeline", skipping / full
    yield "iteration, full pipeline", full
    yield "iteration, a third of the stages skipped", skipping
    name = "iteration, a third skipped, collisions of devices alone avoided"
    yield name, _iteration_s(OF_DEVICES, WAVES, NODE_S)
    yield "iteration, a third skipped at random", _at_random()
