"""`docker run`: the variables and chips that it gives to a container. Which word is the image, an engine knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gnomon.engines.operations import Variable
from gnomon.load.commands.found import StartedProcess
from gnomon.load.commands.variables import environment_of

PROGRAMS = ("docker", "podman", "nerdctl")
_DEVICES = re.compile(r"[\"']?device=([\d,]+)[\"']?")


def container_of(process: StartedProcess) -> StartedProcess:
    """A process with what `docker run` says about it; any other as it is."""
    words = process.words
    at = next((place for place, word in enumerate(words) if word.rpartition("/")[2] in PROGRAMS), None)
    if at is None or "run" not in words[at + 1 : at + 3]:
        return process
    given = environment_of(text for text in _values(words[at:], ("-e", "--env")) if not isinstance(text, Variable))
    asked = next(_values(words[at:], ("--gpus",)), "")
    return replace(process, environment={**process.environment, **given}, chips=_chips(asked))


def _values(words: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word in names and at + 1 < len(words):
            yield words[at + 1]
        elif equals and name in names:
            yield value


def _chips(asked: str) -> int:
    found = _DEVICES.fullmatch(asked)
    if found:
        return len(found[1].split(","))
    return int(asked) if re.fullmatch(r"\d{1,4}", asked) else 0
