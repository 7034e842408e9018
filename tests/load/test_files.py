"""Files from outside: keys that are given twice, and numbers that can be read in two ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.errors import InputError
from gnomon.load import files
from gnomon.load.files import parse_yaml, read_json


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
    with pytest.raises(files.RepeatedKeyError, match="k1999"):
        files.without_repeats(pairs)
    assert len(asked) < 3 * len(pairs)


@pytest.mark.parametrize("number", ["010", "-010", "+07", "0_7", "1:30", "190:20:30", "190:20:30.15", "0b11", "-0b1"])
def test_numbers_that_yaml_reads_in_two_ways_are_refused(number: str) -> None:
    for text, field in (
        (f"replicas: {number}", "replicas"),
        (f"a: {{b: {number}}}", "a.b"),
        (f"a: [1, {{c: {number}}}]", r"a\[1\].c"),
    ):
        with pytest.raises(InputError, match=rf"x\.yaml, field {field}: '.*' is not read as one number"):
            parse_yaml(text, "x.yaml")
    assert parse_yaml(f"a: '{number}'", "x.yaml") == {"a": number}


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("10", 10), ("-3", -3), ("1_000", 1000), ("0x10", 16), ("0.5", 0.5), ("01.5", 1.5), ("1.0e+3", 1000.0)],
)
def test_plain_numbers_are_read(text: str, value: float) -> None:
    assert parse_yaml(f"a: {text}", "x.yaml") == {"a": value}


@pytest.mark.parametrize("text", ["<<: {a: 1}", "b: 1\n<<: {a: 1}", "b: {<<: {a: 1}}", "<<: [{a: 1}, {b: 2}]"])
def test_merges_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"x\.yaml line \d: merges \(<<\) are not allowed"):
        parse_yaml(text, "x.yaml")
