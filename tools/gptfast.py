"""gpt-fast beside its published tokens per second, to which nothing is fitted: `python -m tools.gptfast`.

Rows of `measurements/published/gptfast.csv`: its README, and the baseline of Ladder-Residual's repository, whose chip
the paper names (H100). Those of the README on several GPUs have an all-reduce of their own in place of NCCL's.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import gnomon
from gnomon.engines.gptfast import ENGINE

ROWS = Path(__file__).resolve().parents[1] / "measurements" / "published" / "gptfast.csv"


def rows() -> list[dict[str, str]]:
    with ROWS.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def error(row: dict[str, str]) -> float:
    """Tokens per second, predicted over published, less one."""
    tp, batch, given, made = (int(row[name]) for name in ("tp", "batch", "input", "output"))
    words: Any = {"on": f"{row['chip']}:{tp}", "tp": tp, "engine": ENGINE.name, "dtype": "bf16"}
    decode = gnomon.predict(row["model"], phase="decode", batch=batch, context=given + made // 2, **words)
    prompt = gnomon.predict(row["model"], phase="prefill", tokens=given, **words)
    ours = batch * made / (made * decode.time_s.value + batch * prompt.time_s.value)
    return float(ours / float(row["tokens_s"]) - 1)


def main() -> None:
    for row in rows():
        print(f"{row['id']:13} {float(row['tokens_s']):8.1f} tokens/s {error(row):+.1%}")


if __name__ == "__main__":
    main()
