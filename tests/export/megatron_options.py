"""Megatron-LM's own options, from its list where that is at hand."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gnomon.engines.megatron import options

SWITCH = {"_StoreTrueAction": "store_true", "_StoreFalseAction": "store_false"}


def published() -> list[dict[str, Any]]:
    """Megatron-LM's own list of options, where it is at hand."""
    truth = os.environ.get("GNOMON_TRUTH")
    shared = Path(truth).parent if truth else Path(__file__).parents[3] / "shared"
    file = shared / "engines" / "megatron-options.json"
    if not file.is_file():
        pytest.skip("the list of Megatron-LM's options is not here; GNOMON_TRUTH leads to the folder beside it")
    listed: dict[str, Any] = json.loads(file.read_text())
    assert listed["commit"] == options.COMMIT
    assert listed["date"] == options.DATE
    found: list[dict[str, Any]] = listed["options"]
    return found


def parser_of(listed: list[dict[str, Any]]) -> argparse.ArgumentParser:
    """Megatron-LM's own parser, made again from the list; it ends where a word is not understood."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for option in listed:
        kind = {"int": int, "float": float}.get(option["type"], str)
        names = {"dest": option["dest"], "default": option["default"]}
        action = option["action"]
        if action in SWITCH:
            parser.add_argument(*option["flags"], **names, action=SWITCH[action])
        elif action == "BooleanOptionalAction":
            parser.add_argument(option["flags"][0], **names, action=argparse.BooleanOptionalAction)
        else:
            # An enumeration is written by the name of its member alone.
            choices = [kind(str(choice).rpartition(".")[2]) for choice in option["choices"] or []] or None
            parser.add_argument(*option["flags"], **names, type=kind, nargs=option["nargs"], choices=choices)
    return parser
