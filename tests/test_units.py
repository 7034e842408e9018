"""Quantities survive the way to text and back, and a text that is none names its flag."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gnomon import units
from gnomon.errors import InputError

sizes = st.floats(min_value=1e-6, max_value=1e9, allow_nan=False)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("40ms", 0.04), ("1s", 1.0), ("2.5us", 2.5e-6), ("1m", 60.0), ("1 min", 60.0), ("3h", 10800.0), ("2d", 172800.0)]
    + [("7µs", 7e-6), ("100ns", 1e-7), (".5s", 0.5), ("1e3ms", 1.0), ("0", 0.0), (" 4 s ", 4.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "count"),
    [("300e9", 300e9), ("8k", 8000), ("8Ki", 8192), ("1.5M", 1.5e6), ("70B", 70e9), ("1,000", 1000), ("1_000", 1000)],
)
def test_counts(text: str, count: float) -> None:
    assert units.parse_count(text) == count


def test_bytes_and_rates() -> None:
    assert units.parse_bytes("80GiB") == 80 * 1024**3
    assert units.parse_bytes("80GB") == 80e9
    assert units.parse_bytes("512") == 512
    assert units.parse_bytes("2 mib") == 2 * 1024**2
    assert units.parse_rate("8") == units.parse_rate("8/s") == units.parse_rate("480/min") == units.parse_rate(8)


@given(sizes)
def test_durations_come_back(seconds: float) -> None:
    assert units.parse_duration(units.format_duration(seconds)) == pytest.approx(seconds, rel=5.1e-3)


@given(st.integers(0, 10**15))
def test_counts_come_back(count: int) -> None:
    assert units.parse_count(units.format_count(count)) == count
    assert units.parse_count(units.format_short_count(count)) == pytest.approx(count, rel=5.1e-3)


def test_large_sizes_have_large_units() -> None:
    shown = [units.format_bytes(size * 1024**3) for size in (2048, 20480, 1_715_271.5, 2**24)]
    assert shown == ["2,048.0 GiB", "20.0 TiB", "1,675.1 TiB", "16.0 PiB"]


@given(st.floats(min_value=1.0, max_value=1e15))
def test_bytes_come_back(size: float) -> None:
    shown = units.format_bytes(size)
    unit = shown.rpartition(" ")[2]
    half_a_digit = 0.5 if unit == "B" else 0.05 * units.parse_bytes(f"1 {unit}")
    assert units.parse_bytes(shown) == pytest.approx(size, abs=half_a_digit * (1 + 1e-9))
    assert half_a_digit <= 0.5 * size


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_rates_come_back(rate: float) -> None:
    assert units.parse_rate(units.format_rate(rate)) == pytest.approx(rate, rel=5.1e-3)


@given(st.floats())
def test_printing_never_fails(value: float) -> None:
    texts = [units.format_duration(value), units.format_bytes(value), units.format_money(value)]
    texts += [units.format_count(value), units.format_short_count(value)]
    assert all(texts)
    assert max(map(len, texts)) <= len("-1,000,000,000,000,000.0 PiB"), "no long rows of zeros"
    if 1e-6 <= abs(value) < 1e15:
        assert not any("e" in text.replace("never", "") for text in texts[1:])


@pytest.mark.parametrize("value", [1e-300, -1e-300, 5e-324, 1e-30, 1e-9, 1e20, 1e29, 1e300])
def test_what_nobody_reads_digit_by_digit_has_an_exponent(value: float) -> None:
    shows = (units.format_duration, units.format_bytes, units.format_money, units.format_count, units.format_rate)
    for show in (*shows, units.format_short_count):
        assert sum(letter.isdigit() for letter in show(value)) <= 16, show(value)
        assert "00000" not in show(value), show(value)


@pytest.mark.parametrize("text", ["1e-300s", "1e-12s", "0.5ns", 1e-10])
def test_durations_are_at_least_a_nanosecond(text: str | float) -> None:
    with pytest.raises(InputError, match=r"--flag: .* is less than 1 ns"):
        units.parse_duration(text, "--flag")
    assert units.parse_duration("1ns") == 1e-9 and units.parse_duration(0) == 0


@pytest.mark.parametrize("text", ["1e-300", "1e-15/s", "1e-3/d", "1e-8", 1e-7, "1e10", "1e29/h", 1e308])
def test_rates_have_a_range(text: str | float) -> None:
    with pytest.raises(InputError, match=r"--flag: .* is not between 1e-06 and 1e\+09 per second"):
        units.parse_rate(text, "--flag")


@given(st.text(max_size=80))
def test_any_text_parses_or_is_an_input_error(text: str) -> None:
    for parse in (units.parse_duration, units.parse_count, units.parse_whole, units.parse_bytes, units.parse_rate):
        try:
            assert parse(text, "--flag") >= 0
        except InputError as error:
            assert error.where == "--flag"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0063, "6.3 ms"), (0.0009996, "1 ms"), (1.4, "1.4 s"), (0, "0 s"), (750, "12.5 min"), (34 * 86400, "34 days")]
    + [(2.5e-6, "2.5 us"), (math.inf, "never")],
)
def test_printed_durations(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [(19.9, "$19.90"), (0.19, "$0.19"), (0.00123, "$0.0012"), (45_200, "$45.2k"), (1.9e6, "$1.9M"), (-3, "-$3.00")],
)
def test_printed_money(usd: float, text: str) -> None:
    assert units.format_money(usd) == text


def test_printed_bytes_and_counts() -> None:
    assert units.format_bytes(24.1 * 1024**3) == "24.1 GiB"
    assert units.format_bytes(3 * 1024**2) == "3.0 MiB"
    assert units.format_count(33_000) == "33,000"
    assert units.format_short_count(8_030_261_248) == "8.03B"


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (units.parse_duration, "40", "has no unit"),
        (units.parse_duration, "40 lightyears", "unknown unit 'lightyears'"),
        (units.parse_duration, "-1s", "zero or more"),
        (units.parse_duration, "soon", "is not a duration"),
        (units.parse_duration, float("nan"), "zero or more"),
        (units.parse_count, "1e400", "below 1e+30"),
        (units.parse_count, "many", "is not a count"),
        (units.parse_count, "9" * 99, "..."),
        (units.parse_count, "1,5", "is not a count"),
        (units.parse_count, "1,0,0", "is not a count"),
        (units.parse_count, "1234,567", "is not a count"),
        (units.parse_count, "0,5", "is not a count"),
        (units.parse_count, 10**400, "below 1e+30"),
        (units.parse_whole, 1.5, "positive whole number"),
        (units.parse_whole, np.float32(1.5), "positive whole number"),
        (units.parse_whole, "2.5", "positive whole number"),
        (units.parse_whole, "0", "positive whole number"),
        (units.parse_bytes, "80 gallons", "unknown unit"),
        (units.parse_rate, "0", "above zero"),
        (units.parse_rate, "8/fortnight", "unknown unit"),
        (units.parse_rate, "8/", "unknown unit"),
    ],
)
def test_mistakes_name_the_flag(parse, text, said) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as caught:
        parse(text, "--flag")
    assert said in str(caught.value)
    assert str(caught.value).startswith("--flag: ")


PARSERS = (units.parse_duration, units.parse_count, units.parse_whole, units.parse_bytes, units.parse_rate)


@pytest.mark.battery(8)
@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "value", [True, False, None, math.nan, math.inf, -math.inf, -1, b"8", [8], {}, 8j, object, np.bool_(True), np.nan]
)
def test_what_is_no_quantity(parse: Any, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        parse(value, "--flag")
    assert caught.value.where == "--flag"


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("value", [8, 8.0, np.int32(8), np.int64(8), np.uint8(8), np.float32(8), np.float64(8)])
def test_numbers_of_any_kind(parse: Any, value: Any) -> None:
    assert parse(value) == 8


def test_whole_numbers_are_exact_and_bounded() -> None:
    assert units.parse_whole(2**53 + 1) == 2**53 + 1
    assert type(units.parse_whole(np.int64(5))) is int
    with pytest.raises(InputError, match="thousands of digits"):
        units.parse_whole(10**9000)
    assert units.parse_count("12,345,678.5") == 12_345_678.5
    with pytest.raises(InputError, match="--limit: '11' is more than 10"):
        units.parse_whole("11", "--limit", most=10)


TABLES = {"parse_duration": units._DURATIONS, "parse_count": units._COUNTS, "parse_bytes": units._BYTES}
WRITTEN = [(parser, unit) for parser, table in TABLES.items() for unit in table]


@pytest.mark.parametrize(("parser", "unit"), WRITTEN)
@given(number=st.floats(min_value=1e-3, max_value=1e9))
def test_every_unit_is_read_as_what_it_is(parser: str, unit: str, number: float) -> None:
    """Written out in full, with a space or without, a value comes back as the same number of base units."""
    parse, scale = getattr(units, parser), TABLES[parser][unit]
    assume(parser != "parse_duration" or number * scale >= 1e-9)
    for gap in ("", " "):
        assert parse(f"{number!r}{gap}{unit}" if unit else repr(number)) == pytest.approx(number * scale, rel=1e-15)


@pytest.mark.parametrize("period", units._PERIODS)
@given(number=st.floats(min_value=1e-3, max_value=1e9))
def test_every_period_of_a_rate(period: str, number: float) -> None:
    low, high = units.RATES_PER_S
    assume(low <= number / units._PERIODS[period] <= high)
    assert units.parse_rate(f"{number!r}/{period}") == pytest.approx(number / units._PERIODS[period], rel=1e-15)


@given(st.floats(min_value=1e-9, max_value=1e14))
def test_what_is_printed_is_printed_again_after_it_was_read(value: float) -> None:
    """A value loses digits once, on its first way to text."""
    for show, parse in (
        (units.format_duration, units.parse_duration),
        (units.format_short_count, units.parse_count),
        (units.format_rate, units.parse_rate),
    ):
        text = show(value)
        if parse is units.parse_rate and not 1.01 * units.RATES_PER_S[0] < value < 0.99 * units.RATES_PER_S[1]:
            continue
        assert show(parse(text)) == text
