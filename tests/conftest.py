"""What every test shares: a history of its own, and property tests that do not depend on the machine's mood."""

from __future__ import annotations

from pathlib import Path

import pytest

try:
    from hypothesis import settings
except ImportError:  # the oracles' environment does without
    pass
else:
    settings.register_profile("gnomon", deadline=None, derandomize=True)
    settings.load_profile("gnomon")


@pytest.fixture(autouse=True)
def own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of a test are kept in its own folder, never in the user's."""
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
