"""A step with side tasks the plain way: at every moment everything is looked at again. Slow, and shares no code."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.sim.training_plain import _target, lasting

from gnomon.sim.training import Orders, StepTimes
from gnomon.sim.training.placement import LOOP, Placement

LANES = {"copy out": "out", "copy in": "in", "reduce": "net", "gather": "net"}


class Plain:
    """Parts of passes and side tasks as dictionaries, whose `start` and `end` are filled in as time goes on."""

    def __init__(self, orders: Orders, times: StepTimes, placement: Placement = LOOP) -> None:
        self.orders, self.times, self.placement = orders, times, placement
        self.parts: list[list[dict[str, Any]]] = []
        self.side: list[dict[str, Any]] = []
        self.arrived: dict[Any, float] = {}
        self.links: dict[tuple[int, bool], float] = {}
        self.blocked = [0.0] * len(orders)
        stages = placement.stages(times.pp, times.vp)
        for rank, tasks in enumerate(orders):
            self.parts.append(self._parts_of(rank))
            for task in tasks:
                if task.kind == "F" and stages[rank, task.chunk] == 0:
                    self.arrived["F", rank, task.chunk, task.micro] = 0.0
        for rank in range(len(orders)):
            for number, group in enumerate(times.side):
                self._accompany(rank, number, group)

    def _parts_of(self, rank: int) -> list[dict[str, Any]]:
        tasks, each = self.orders[rank], lasting(self.orders[rank], rank, self.times)
        cut, found, place = self.times.side[0].parts, [], 0
        while place < len(tasks):
            unit = list(range(place, place + 1 + tasks[place].overlapped))
            for step in range(cut):
                pieces = [step if tasks[one].kind == "F" else cut - 1 - step for one in unit]
                found.append({"unit": unit, "pieces": pieces, "first": step == 0, "last": step == cut - 1,
                              "seconds": each[place] / cut, "end": None, "start": None})  # fmt: skip
            place = unit[-1] + 1
        return found

    def _accompany(self, rank: int, number: int, group: Any) -> None:
        tasks, parts = self.orders[rank], self.parts[rank]
        places: dict[Any, dict[str, int]] = {}
        count = 0
        for index, part in enumerate(parts):
            for one, piece in zip(part["unit"], part["pieces"], strict=True):
                task = tasks[one]
                places.setdefault((task.chunk, task.micro, piece), {})[task.kind] = index
                places[task.chunk, task.micro, piece][f"{task.kind} number"] = count
                count += 1
        shape = self.times.forward_s.shape
        for (chunk, micro, _), at in places.items():
            begins, ends = at.get("B", at.get("I")), at.get("B", at.get("W"))
            far = at.get("B number", at.get("I number")) - at["F number"] - 1
            if far < group.apart:
                continue
            before: dict[str, Any] | None = None
            for one in group.tasks:
                opens, closes = (at["F"], at["F"]) if "F" in (one.after, one.before) else (begins, ends)
                made = {
                    "name": one.name, "rank": rank, "group": number, "chunk": chunk, "micro": micro,
                    "lane": (LANES[one.name], rank // one.shared), "opens": opens, "closes": closes,
                    "after": bool(one.after), "follows": before if one.follows else None, "start": None, "end": None,
                    "seconds": float(np.broadcast_to(one.seconds, shape)[rank, chunk]) / group.parts,
                    "bytes": float(np.broadcast_to(one.bytes, shape)[rank, chunk]) / group.parts, "given": None,
                    "turn": (closes if one.after else opens, bool(one.after), number, group.tasks.index(one)),
                    "ready": None,
                }  # fmt: skip
                self.side.append(made)
                before = made

    def run(self) -> Plain:
        now = 0.0
        self.opening: dict[tuple[int, int], list[dict[str, Any]]] = {}
        self.mine: dict[tuple[int, int], list[dict[str, Any]]] = {}
        self.queues: dict[Any, dict[int, list[dict[str, Any]]]] = {}
        for one in sorted(self.side, key=lambda each: each["turn"]):
            self.opening.setdefault((one["rank"], one["opens"]), []).append(one)
            self.mine.setdefault((one["rank"], one["group"]), []).append(one)
            self.queues.setdefault(one["lane"], {}).setdefault(one["rank"], []).append(one)
        while True:
            moved = True
            while moved:
                moved = self._give(now) | self._start(now)
                if not moved:
                    moved = self._serve(now)
            later = [one["end"] for one in (*self.side, *(part for parts in self.parts for part in parts))]
            later += [*self.arrived.values(), *self.blocked]
            later = [at for at in later if at is not None and at > now]
            if not later:
                return self
            now = min(later)

    def _give(self, now: float) -> bool:
        """Room, to parts in their order."""
        moved = False
        for rank, parts in enumerate(self.parts):
            for number, group in enumerate(self.times.side):
                mine, limit = (
                    self.mine.get((rank, number), []),
                    float(np.broadcast_to(group.limit_bytes, self.times.pp)[rank]),
                )
                taken = 0.0
                for one in mine:
                    closes = self.parts[rank][one["closes"]]["end"]
                    gone = one["end"] if one["after"] else closes
                    over = gone is not None and gone <= now and (one["after"] or one["end"] is not None)
                    taken += one["bytes"] if one["given"] is not None and not over else 0.0
                for index in range(len(parts)):
                    here = [one for one in self.opening.get((rank, index), []) if one["group"] == number]
                    waiting = [one for one in here if one["given"] is None]
                    if not waiting:
                        continue
                    need = sum(one["bytes"] for one in waiting)
                    if need and taken + need > limit * (1 + 1e-9):
                        break
                    taken, moved = taken + need, True
                    for one in waiting:
                        one["given"] = now
        return moved

    def _start(self, now: float) -> bool:
        moved = False
        for rank, parts in enumerate(self.parts):
            index = next((at for at, part in enumerate(parts) if part["start"] is None), None)
            if index is None:
                continue
            part, tasks = parts[index], self.orders[rank]
            if index and (parts[index - 1]["end"] is None or parts[index - 1]["end"] > now):
                continue
            here = self.opening.get((rank, index), [])
            if any(one["given"] is None for one in here) or self.blocked[rank] > now:
                continue
            if any(one["end"] is None or one["end"] > now for one in here if not one["after"]):
                continue
            inputs = [("F" if tasks[one].kind == "F" else "B", rank, tasks[one].chunk, tasks[one].micro)
                      for one in part["unit"] if tasks[one].kind != "W"]  # fmt: skip
            if part["first"] and any(self.arrived.get(key, np.inf) > now for key in inputs):
                continue
            part["start"], part["end"], moved = now, now + part["seconds"], True
            if part["last"]:
                self._send(rank, part)
        return moved

    def _send(self, rank: int, part: dict[str, Any]) -> None:
        at, times = part["end"], self.times
        for task in (self.orders[rank][one] for one in part["unit"]):
            found = _target(task, rank, times, self.placement)
            if task.kind == "W":
                continue
            if found is None:
                if task.kind == "F":  # the network turns
                    self.arrived["B", rank, task.chunk, task.micro] = at
                continue
            key, up = found
            seconds = times.forward_send_s if task.kind == "F" else times.backward_send_s
            if key[1] == rank:
                self.arrived[key] = at
            elif times.blocking:
                at = self.arrived[key] = self.blocked[rank] = at + seconds
            else:
                self.links[rank, up] = max(at, self.links.get((rank, up), 0.0)) + seconds
                self.arrived[key] = self.links[rank, up]

    def _serve(self, now: float) -> bool:
        for lane in sorted(self.queues):
            queues = self.queues[lane]
            started = [one for queue in queues.values() for one in queue if one["start"] is not None]
            if any(one["end"] > now for one in started):
                continue
            heads = [next((one for one in queue if one["start"] is None), None) for queue in queues.values()]
            able = [one for one in heads if one is not None and self._ready(one, now)]
            if able:
                one = min(able, key=lambda each: (each["ready"], each["rank"]))
                one["start"], one["end"] = now, now + one["seconds"]
                return True
        return False

    def _ready(self, one: dict[str, Any], now: float) -> bool:
        parts, follows = self.parts[one["rank"]], one["follows"]
        times = [parts[one["closes"]]["end"] if one["after"] else one["given"]]
        times += [follows["end"]] if follows else []
        if any(at is None or at > now for at in times):
            return False
        one["ready"] = max(times)
        return True
