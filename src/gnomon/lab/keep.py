"""Results of runs put into their papers' folders under names of their own: no result is written over."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.errors import GnomonError, InputError
from gnomon.lab.base import SCHEMA

INDEX = Path(__file__).parents[1] / "papers" / "index"
FIRST = "lab.json"


def file_name(found: Mapping[str, Any], kept: Mapping[str, Mapping[str, Any]]) -> str:
    """The name of a result beside those already kept: the first is `lab.json`, others have their device and date."""
    if FIRST not in kept:
        return FIRST
    device = re.sub(r"[^a-z0-9]+", "-", str(found["device"]).lower()).strip("-")
    stem = f"lab-{device}-{found['date']}"
    names = (f"{stem}.json", *(f"{stem}-{count}.json" for count in range(2, 1000)))
    return next(name for name in names if name not in kept)


def keep(path: Path, index: Path = INDEX) -> Path | None:
    """Copy a result into its paper's folder; None where the same result is there already."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if found.get("schema") != SCHEMA:
        raise InputError(f"'{path}' is not an outcome of `gnomon lab run`", hint="Give its --out files.")
    if not found["ok"] or found["device"] == "cpu":
        reason = "its checks failed" if not found["ok"] else "it ran on a CPU"
        raise InputError(
            f"'{path}' is not kept: {reason}", hint="Run it on a GPU, with all checks within their bounds."
        )
    folder = index / str(found["slug"]).replace("-", "_")
    if not folder.is_dir():
        raise InputError(f"'{path}' is of '{found['slug']}', which is no paper of the index")
    kept = {one.name: json.loads(one.read_text(encoding="utf-8")) for one in sorted(folder.glob("lab*.json"))}
    if any(_measured(one) == _measured(found) for one in kept.values()):
        return None
    target = folder / file_name(found, kept)
    shutil.copyfile(path, target)
    return target


def _measured(found: Mapping[str, Any]) -> tuple[Any, ...]:
    """What two files of one run share, whatever models predict of it later."""
    return found["device"], found["date"], found["wall_s"]


def main(names: list[str]) -> int:
    failed = 0
    for name in names:
        try:
            target = keep(Path(name))
        except (GnomonError, json.JSONDecodeError) as failure:
            failed = 1
            print(f"{name}: {failure}", file=sys.stderr)
        else:
            print(f"{name}: {f'kept as {target}' if target else 'kept already'}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
