"""What every test shares: a history of its own, and property tests that do not depend on the machine's mood."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from pathlib import Path
from zlib import crc32

import pytest

_tests = count()


@pytest.fixture(autouse=True)
def own_history(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of a test are kept in its own folder, never in the user's. It is made by whoever writes to it."""
    home = tmp_path_factory.getbasetemp() / f"home-{next(_tests)}"
    monkeypatch.setenv("GNOMON_HOME", str(home))
    monkeypatch.setenv("GNOMON_QUIET", "1")  # a busy machine must not change what a command prints
    return home


@pytest.fixture
def whole(request: pytest.FixtureRequest) -> bool:
    """Whether every case of every battery is run."""
    return bool(request.config.getoption("--whole"))


def pytest_configure(config: pytest.Config) -> None:
    try:
        from tests.examples import load_profile
    except ImportError:  # the oracles' environment does without hypothesis
        return
    load_profile(whole=config.getoption("--whole") or _named(config))


def _named(config: pytest.Config) -> bool:
    """Whether a test is named on the command line."""
    return any("::" in word for word in config.args)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="run every case of every battery")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a battery run one case in so many, of every test at least one: those whose names have the lowest hash.

    A case that is named on the command line is always run.
    """
    if config.getoption("--whole") or _named(config):
        return
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    left: set[pytest.Item] = set()
    for cases in tests.values():
        marker = cases[0].get_closest_marker("battery")
        if marker:
            cases.sort(key=lambda item: crc32(item.nodeid.encode()))
            left.update(cases[-(-len(cases) // marker.args[0]) :])
    config.hook.pytest_deselected(items=sorted(left, key=lambda item: item.nodeid))
    items[:] = [item for item in items if item not in left]
