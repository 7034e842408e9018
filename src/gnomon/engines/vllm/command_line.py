"""The words of a `vllm serve` command as flags and values: as every engine's are, and `-O3` beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gnomon.engines import command_line
from gnomon.engines.vllm.arguments import TABLE

_LEVEL = re.compile(r"-O(?:=?(\w+))?")


def read_arguments(words: Sequence[str], table: command_line.FlagTable = TABLE) -> command_line.ReadArguments:
    """The words behind `vllm serve`. Raises InputError for flags that a release of vLLM does not have."""
    return command_line.read_arguments([_plain(word) for word in words], table)


def _plain(word: str) -> str:
    """`-O3` as the flag that it stands for."""
    level = _LEVEL.fullmatch(word)
    if not level:
        return word
    return f"--optimization-level={level[1]}" if level[1] else "--optimization-level"
