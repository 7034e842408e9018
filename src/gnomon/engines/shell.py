"""What scripts of every engine share."""

from __future__ import annotations


def comment(text: str) -> str:
    """A text that cannot leave the line of its comment, in a shell or in YAML."""
    return "# " + "".join(letter if letter.isprintable() else "?" for letter in text)
