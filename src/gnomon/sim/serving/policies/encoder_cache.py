"""The encoder cache of vLLM V1 (checked against 0.24.0): room for embeddings of images between the step that makes them
and the last step that reads them."""

from __future__ import annotations

from collections import OrderedDict

Image = tuple[int, int]
"""A request, and which of its images."""


class EncoderCache:
    """Embeddings that a request still needs keep their room; others stay until theirs is needed, the oldest go first.
    All images have the same number of embeddings, and no two are the same."""

    __slots__ = ("_each", "_idle", "_needed", "free", "usable")

    def __init__(self, size: int, each: int) -> None:
        self._each = each
        self.free = self.usable = size
        """Embeddings that have no content, and that no request needs."""
        self._needed: dict[int, set[int]] = {}
        self._idle: OrderedDict[Image, None] = OrderedDict()

    def find(self, image: Image) -> bool:
        """Whether an image's embeddings are there; from now on its request needs them."""
        request, which = image
        if which in self._needed.get(request, ()):
            return True
        if image not in self._idle:
            return False
        del self._idle[image]
        self.usable -= self._each
        self._needed.setdefault(request, set()).add(which)
        return True

    def room(self, more: int) -> bool:
        """Whether there is room for so many images that are not there; older ones make it."""
        wanted = more * self._each
        if wanted > self.free and wanted > self.usable:
            return False
        while wanted > self.free:
            self._idle.popitem(last=False)
            self.free += self._each
        return True

    def add(self, image: Image) -> None:
        """An image is encoded in this step."""
        request, which = image
        self._needed.setdefault(request, set()).add(which)
        self.free -= self._each
        self.usable -= self._each

    def drop(self, request: int, before: int | None = None) -> None:
        """A request needs its first images no more; all where nothing is said."""
        needed = self._needed.get(request)
        if needed is None:
            return
        for which in sorted(needed):
            if before is None or which < before:
                needed.discard(which)
                self._idle[request, which] = None
                self.usable += self._each
        if not needed:
            del self._needed[request]

    def forked(self) -> EncoderCache:
        other = EncoderCache(0, self._each)
        other.free, other.usable = self.free, self.usable
        other._needed = {request: set(which) for request, which in self._needed.items()}
        other._idle = self._idle.copy()
        return other
