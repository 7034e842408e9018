"""The input of a tower: images cut into patches, audio cut into frames, or text; and the tokens it makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

PICTURE_SIDE = 1024
"""Pixels a side of the picture that is meant where a tower takes any size and none is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTokens:
    """One picture, or one stretch of sound or text, inside a tower."""

    sequences: int
    """Sequences that attend only to themselves: tiles, where each is worked on by itself."""
    positions: int
    """Of one such sequence."""
    patches: int
    """Those of them that are made of what was taken in; others are a class, or fill up."""
    merged: int
    """Tokens that all of it leaves for the decoder."""
    marks: int = 0
    """Further tokens of the prompt around them, such as ends of rows."""
    grid: tuple[int, int] = (0, 0)
    """Patches down and across, where it is a picture in one piece."""

    @property
    def prompt(self) -> int:
        """Tokens it takes in a prompt."""
        return self.merged + self.marks


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionPreprocessor:
    """How a tower cuts what it takes. Pictures have a patch; sound and text have positions alone."""

    positions: int = 0
    """The most it takes of sound or text, and what is meant where nothing else is said."""
    patch: int = 0
    """Pixels a side of a patch."""
    side: int = 0
    """Pixels a side of the picture, or of the tile, that it was made for; of any size, the largest, or 0."""
    any_size: bool = False
    """Pictures keep their size, but for whole tokens; else they are resized, or cut into tiles."""
    merge: int = 1
    """Patches a side that become one token for the decoder."""
    tiles: int = 1
    """The most that a picture is cut into."""
    always_tiles: bool = False
    """Every picture is cut or filled up to all of them, and they look at each other; else each is alone, and one of
    the whole picture is added where there are several."""
    beside: int = 0
    """Positions of a tile beside its patches, such as a class."""
    align: int = 1
    """The positions of a tile are filled up to a multiple of this."""
    keeps_beside: bool = False
    """The decoder sees those positions too."""
    row_ends: bool = False
    """A token of the prompt ends each row of the merged patches."""

    @property
    def usual(self) -> tuple[int, int]:
        """Pixels down and across where none are given."""
        side = PICTURE_SIDE if self.any_size else self.side
        return (side, side)

    def length(self, positions: int) -> ImageTokens:
        """So much of sound or text."""
        return ImageTokens(sequences=1, positions=positions, patches=positions, merged=positions)

    def picture(self, height: int, width: int) -> ImageTokens:
        """A picture of so many pixels."""
        return self._whole(height, width) if self.any_size else self._tiled(height, width)

    def covers(self, height: int, width: int) -> int:
        """Tiles that a picture takes before the one of the whole."""
        return ceil(height / self.side) * ceil(width / self.side)

    def _whole(self, height: int, width: int) -> ImageTokens:
        """Sides are rounded to whole tokens, as Qwen's and Mistral's preprocessors do."""
        unit = self.patch * self.merge
        down, across = (max(1, self._rounded(side, unit)) for side in (height, width))
        grid = (down * self.merge, across * self.merge)
        return ImageTokens(
            sequences=1,
            positions=grid[0] * grid[1],
            patches=grid[0] * grid[1],
            merged=down * across,
            marks=down if self.row_ends else 0,
            grid=grid,
        )

    def _rounded(self, side: int, unit: int) -> int:
        return ceil(side / unit) if self.row_ends else round(side / unit)

    def _tiled(self, height: int, width: int) -> ImageTokens:
        patches = (self.side // self.patch) ** 2
        kept = patches // self.merge**2 + (self.beside if self.keeps_beside else 0)
        filled = ceil((patches + self.beside) / self.align) * self.align
        if self.always_tiles:
            filled, patches, kept = (self.tiles * size for size in (filled, patches, kept))
            return ImageTokens(sequences=1, positions=filled, patches=patches, merged=kept)
        covered = min(self.covers(height, width), self.tiles) if self.tiles > 1 else 1
        tiles = covered + (1 if covered > 1 else 0)
        return ImageTokens(sequences=tiles, positions=filled, patches=patches, merged=tiles * kept)
