"""docs/techniques.md has every technique; `tests/golden/test_readme.py` runs its commands."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "techniques.md"


def test_the_page_names_every_technique() -> None:
    from gnomon.techniques import TRAINING, techniques

    text = PAGE.read_text(encoding="utf-8")
    for one in techniques().values():
        assert f"| `{one.name}` | {', '.join(trial.paper for trial in one.trials)} |" in text
        assert TRAINING in one.work or all(f"`{parameter.name}" in text for parameter in one.parameters)
