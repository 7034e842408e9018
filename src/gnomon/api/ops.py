"""Single operators, priced row by row: a table in, the same table with times out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, overload

from gnomon.load.operators import csv_text, engines_of, operator_table, pricer_of, refuse_columns_out
from gnomon.paths import write_text
from gnomon.planning.operators.columns import priced_columns
from gnomon.planning.operators.price import ADDED
from gnomon.planning.operators.rows import price_rows
from gnomon.spec import Pool
from gnomon.spec.questions.step import OpsQuestion
from gnomon.spec.questions.values import check_value


@overload
def ops(source: Mapping[str, Any], *, on: str | Pool, out: None = None) -> dict[str, Any]: ...


@overload
def ops(
    source: str | Path | Iterable[Mapping[str, Any]], *, on: str | Pool, out: str | Path | None = None
) -> list[dict[str, Any]]: ...


def ops(source: Any, *, on: str | Pool, out: str | Path | None = None) -> list[dict[str, Any]] | dict[str, Any]:
    """Rows of an operator table with `time_us,low_us,high_us,provenance` added, in order.

    `source` is a CSV file, an iterable of mappings, or a mapping of columns, which comes back as one of arrays; there a
    scalar applies to all rows. Times are device times, without launch overhead. A table that has all of these columns
    already is priced again; one that has only some of them is refused."""
    on = OpsQuestion(source=source, on=on).on
    check_value(out, "str | Path | None", "out")
    if isinstance(source, Mapping):
        refuse_columns_out(out)
        return priced_columns(source, pricer_of(on, engines_of(source)))
    table = operator_table(source)
    price_rows(pricer_of(on, engines_of(table)), table.rows, table.places, table.columns)
    if out is not None:
        write_text(Path(out), csv_text(table.rows, [*table.columns, *ADDED]))
    return table.rows


def answer(question: OpsQuestion) -> list[dict[str, Any]]:
    """The rows of a file with their times."""
    return [dict(row) for row in ops(str(question.source), on=question.on)]
