"""Names a shell offers while a command is typed."""

from __future__ import annotations


def models(incomplete: str) -> list[str]:
    from gnomon.catalog import model_names

    return [name for name in model_names() if name.startswith(incomplete.lower())]


def chips(incomplete: str) -> list[str]:
    """Chips whose name begins with the last word; the short names people use come first."""
    from gnomon.load.chips import try_names

    head, comma, last = incomplete.rpartition(",")
    found = [name for name in try_names() if name.lower().startswith(last.lower()) and " " not in name]
    return [f"{head}{comma}{name}" for name in sorted(found, key=lambda name: (len(name), name.lower()))]
