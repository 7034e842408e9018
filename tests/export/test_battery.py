"""Random plans, exported and read back from what they start; a sample of the battery in `tests/oracles`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.export import read_back, read_back_training
from tests.export.battery import check_serving, check_training
from tests.export.random_plans import serving_plans, training_plans


@pytest.mark.heavy
@pytest.mark.battery(2)
@pytest.mark.parametrize("seed", [1, 2])
def test_served_plans_come_back_from_their_commands(seed: int, tmp_path: Path) -> None:
    for place, plan in enumerate(serving_plans(seed, 4, tmp_path / "named")):
        check_serving(plan, tmp_path / str(place), read_back.our_parser())


def test_trained_plans_come_back_from_their_commands(tmp_path: Path) -> None:
    for place, plan in enumerate(training_plans(3, 4)):
        check_training(plan, tmp_path / str(place), read_back_training.our_parser())
