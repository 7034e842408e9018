"""One folder per paper: `paper.yaml`, with `figures.py` where it is reproduced and `lab*.json` where it was run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFolder:
    """The folder of one paper, here or of a user's own."""

    slug: str
    path: Path
    own: bool = False

    def file(self, name: str) -> Path:
        """The path of one of its files, which may not exist."""
        return self.path / name

    def matching(self, pattern: str) -> list[Path]:
        """Its files that match a pattern, by name."""
        return sorted(self.path.glob(pattern))

    def place(self, name: str) -> str:
        """One of its files as errors name it."""
        return str(self.path / name) if self.own else f"papers/index/{self.path.name}/{name}"


def folder_of(slug: str) -> PaperFolder:
    """The folder of a paper that ships."""
    return PaperFolder(slug=slug, path=Path(__path__[0], slug.replace("-", "_")))


def file_of(slug: str, name: str) -> Path:
    """The path of a file of a paper that ships."""
    return folder_of(slug).file(name)


def folders() -> list[PaperFolder]:
    """All folders that ship: slugs with `_` for `-`."""
    names = sorted(one.name for one in Path(__path__[0]).iterdir() if one.is_dir() and one.name != "__pycache__")
    return [folder_of(name.replace("_", "-")) for name in names]
