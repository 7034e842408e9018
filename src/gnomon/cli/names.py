"""Names a shell offers while a command is typed."""

from __future__ import annotations


def models(incomplete: str) -> list[str]:
    from gnomon.catalog import model_names

    return _beginning(model_names(), incomplete)


def chips(incomplete: str) -> list[str]:
    from gnomon.catalog import chip_names

    return _beginning(chip_names(), incomplete)


def _beginning(names: tuple[str, ...], typed: str) -> list[str]:
    return [name for name in names if name.startswith(typed)]
