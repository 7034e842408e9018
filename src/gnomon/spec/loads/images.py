"""Images of requests: `2`, `2,1280x720`; with the tokens that one of them takes in a prompt once the model is known."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gnomon.errors import InputError

MOST_IMAGES = 10_000
MOST_PIXELS = 100_000
HINT = "Write 2, or 2,1280x720: images of a request, and their pixels across and down."
_SIZE = re.compile(r"(\d{1,6})x(\d{1,6})")
_TOKENS = re.compile(r"tokens=(\d{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestImages:
    """Every request has `count` images of one size, one after the other at the beginning of its prompt."""

    count: int
    height: int = 0
    """Pixels; 0 for the size that the model is usually given."""
    width: int = 0
    tokens: int = 0
    """Of one image in the prompt; 0 until the model is known."""

    @classmethod
    def read(cls, text: str, where: str = "--images") -> RequestImages:
        first, *rest = (part.strip() for part in str(text).split(","))
        if not re.fullmatch(r"\d{1,6}", first) or not 1 <= int(first) <= MOST_IMAGES:
            raise InputError(f"'{first}' is not a number of images from 1 to {MOST_IMAGES:,}", where=where, hint=HINT)
        height = width = tokens = 0
        for part in rest:
            if (size := _SIZE.fullmatch(part)) and not width:
                width, height = int(size[1]), int(size[2])
                if not (1 <= width <= MOST_PIXELS and 1 <= height <= MOST_PIXELS):
                    raise InputError(f"'{part}' is not the size of an image", where=where, hint=HINT)
            elif (said := _TOKENS.fullmatch(part)) and not tokens:
                tokens = int(said[1])
            else:
                raise InputError(f"'{part}' is not the size of an image", where=where, hint=HINT)
        return cls(count=int(first), height=height, width=width, tokens=tokens)

    @property
    def text(self) -> str:
        """As it is read."""
        size = f",{self.width}x{self.height}" if self.width else ""
        return f"{self.count}{size}{f',tokens={self.tokens}' if self.tokens else ''}"

    @property
    def words(self) -> str:
        """In a title."""
        size = f" of {self.width}x{self.height}" if self.width else ""
        return f"{self.count} image{'s' * (self.count > 1)}{size} each"

    @property
    def prompt_tokens(self) -> int:
        """Of all images of a request."""
        return self.count * self.tokens
