"""Files from outside: keys that are given twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.errors import InputError
from gnomon.load import files
from gnomon.load.files import read_json


def test_a_key_repeated_late_is_found_at_once(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    path.write_text("{" + ",".join(f'"k{i}":1' for i in range(60_000)) + ',"k59999":1}')
    with pytest.raises(InputError, match="k59999"):
        read_json(path)


def test_keys_are_counted_and_not_compared_with_each_other() -> None:
    asked: list[int] = []

    class Key(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return super().__hash__()

        def __eq__(self, other: object) -> bool:
            asked.append(1)
            return super().__eq__(other)

    pairs = [(Key(f"k{i}"), 1) for i in range(2000)] + [(Key("k1999"), 1)]
    with pytest.raises(files._RepeatedKeyError, match="k1999"):
        files._without_repeats(pairs)
    assert len(asked) < 3 * len(pairs)
