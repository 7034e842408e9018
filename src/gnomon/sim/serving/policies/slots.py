"""LoRA adapters in slots of the GPU's memory, behind them those in the host's: the last used ones stay."""

from __future__ import annotations

from collections.abc import Collection

from gnomon.spec.serving import ServingLimits


class AdapterSlots:
    """Which adapters are where, and how long a step waits for those that are not in a slot."""

    __slots__ = ("_copy_s", "_host", "_host_count", "_in_slots", "_read_s", "count")

    def __init__(self, limits: ServingLimits) -> None:
        self.count = limits.adapter_slots
        self._host_count = max(limits.host_adapters, self.count)
        self._copy_s, self._read_s = limits.adapter_copy_s, limits.adapter_read_s
        self._in_slots: dict[int, None] = {}
        self._host: dict[int, None] = {}
        """Both by last use, the oldest first."""

    def use(self, adapters: Collection[int]) -> float:
        """A step runs these, no more than there are slots. Seconds that the host takes to bring in what is missing."""
        held_s = 0.0
        for adapter in sorted(adapters, key=lambda one: one not in self._in_slots):  # those that stay first
            if adapter not in self._host:
                held_s += self._read_s
            if adapter not in self._in_slots:
                held_s += self._copy_s
            for kept, most in ((self._host, self._host_count), (self._in_slots, self.count)):
                kept.pop(adapter, None)
                kept[adapter] = None
                if len(kept) > most:
                    del kept[next(iter(kept))]
        return held_s

    def forked(self) -> AdapterSlots:
        other = object.__new__(AdapterSlots)
        other.count, other._host_count = self.count, self._host_count
        other._copy_s, other._read_s = self._copy_s, self._read_s
        other._in_slots, other._host = self._in_slots.copy(), self._host.copy()
        return other
