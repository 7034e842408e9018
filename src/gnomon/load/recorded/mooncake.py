"""Mooncake's traces (Qin et al., FAST '25): JSONL with times in milliseconds and hashes of prompt blocks.

A hash stands for a block of 512 tokens and all before it: prompts that begin with the same hashes share those tokens.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.errors import InputError
from gnomon.load.recorded.columns import Columns
from gnomon.load.recorded.found import Found
from gnomon.load.recorded.lines import line_of
from gnomon.load.recorded.prefixes import by_chains
from gnomon.load.recorded.records import RecordFault, Row, each_row, known_keys, number, records, whole
from gnomon.load.rows import NOTHING_RUN
from gnomon.spec import Requests
from gnomon.spec.workload import MAX_ARRIVAL_S, MAX_TOKENS

KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
BLOCK = 512
"""Tokens of a hashed block."""
MAX_HASHES = 100_000_000
"""Of a file: read, they take 2 GiB."""
LARGEST_HASH = 2**63 - 1


def read_mooncake(file: Path, limit: int | None) -> Found:
    """The requests of a file, or its first `limit`."""
    kept, hashes, sizes, last_s = Columns(), array("q"), array("q"), 0.0
    for block in records(file, limit):
        rows: list[tuple[float, int, int]] = []
        for line, (arrival, inputs, outputs, ids) in each_row(
            block, file, _row, None if limit is None else limit - kept.count
        ):
            if arrival < last_s:
                hint = f"Sort the lines by it. {NOTHING_RUN}"
                message, where = "the request arrives before the one above it", f"{file} line {line}, column timestamp"
                raise InputError(message, where=where, hint=hint)
            last_s = arrival
            rows.append((arrival, inputs, outputs))
            hashes.extend(ids)
            sizes.append(len(ids))
        if len(hashes) > MAX_HASHES:
            raise InputError(f"has more than {MAX_HASHES:,} hash_ids", where=str(file), hint=NOTHING_RUN)
        if rows:
            table = np.array(rows, np.float64)
            kept.add({"arrival_s": table[:, 0], "input_tokens": table[:, 1], "output_tokens": table[:, 2]})
        if kept.count == limit:
            break
    if not kept.count:
        raise InputError("has no requests", where=str(file), hint=NOTHING_RUN)
    requests, _ = kept.requests(file.name.removesuffix(".gz").removesuffix(".jsonl"))
    shared = _with_prefixes(requests, np.frombuffer(hashes, np.int64), np.frombuffer(sizes, np.int64))
    return Found(shared, True, lambda place: f"line {line_of(file, place, 0)}")


def _with_prefixes(requests: Requests, hashes: Any, sizes: Any) -> Requests:
    found = by_chains(hashes, sizes, requests.input_tokens, BLOCK) if hashes.size else None
    return replace(requests, prefixes=found)


def _row(row: Row) -> tuple[float, int, int, list[int]]:
    known_keys(row, KEYS)
    inputs = whole(row, "input_length", 1, MAX_TOKENS)
    ids = row.get("hash_ids")
    if not isinstance(ids, list) or not all(type(one) is int and abs(one) <= LARGEST_HASH for one in ids):
        raise RecordFault("is not a list of whole numbers", "hash_ids")
    if len(ids) > -(-inputs // BLOCK):
        raise RecordFault(f"has {len(ids)} blocks of {BLOCK} tokens, and the prompt {inputs} tokens", "hash_ids")
    arrival = number(row, "timestamp", 0, MAX_ARRIVAL_S * 1e3) / 1e3
    return arrival, inputs, whole(row, "output_length", 1, MAX_TOKENS), ids
