"""ShareGPT: a JSON list of conversations, read one by one.

There is no tokenizer here: tokens are characters divided by `CHARACTERS_PER_TOKEN`, which the answer says. As in vLLM's
benchmark, a conversation is its first prompt and the answer to it; with `--turns N` it is a session of up to N turns,
whose prompts contain what was said before.
"""

from __future__ import annotations

import codecs
import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.errors import InputError
from gnomon.load.files import MIB, blocks
from gnomon.load.recorded.found import Found
from gnomon.load.recorded.lines import MAX_JSON, MAX_LINES
from gnomon.load.rows import NOTHING_RUN
from gnomon.spec import NotModelled
from gnomon.spec.loads.sessions import Turns

CHARACTERS_PER_TOKEN = 4.0
"""Of English text, by OpenAI's rule of thumb for its tokenizers; code and other languages have fewer."""
MAX_CONVERSATION = 16 * MIB
PROMPTS, ANSWERS = ("human", "user"), ("gpt", "chatgpt", "bing", "bard", "assistant")
"""Who speaks, as ShareGPT's versions write it."""
COUNTED = f"tokens are characters divided by {CHARACTERS_PER_TOKEN:g}: there is no tokenizer"
SKIPPED = "they do not begin with a prompt and an answer"
_SPACE = " \t\r\n"


def read_sharegpt(file: Path, limit: int | None, turns: int, think_s: float) -> Found:
    """Conversations as requests, or the first `limit` of them; with several turns, as sessions."""
    own, outputs, count, places = array("q"), array("q"), array("q"), array("q")
    total = 0
    for place, conversation in enumerate(_items(file)):
        if limit is not None and len(own) >= limit:
            break
        total += 1
        said = _exchanges(conversation, f"{file}, conversation {place + 1}")[:turns]
        if limit is not None:
            said = said[: limit - len(own)]
        if not said:
            continue
        own.extend(_tokens(prompt) for prompt, _ in said)
        outputs.extend(_tokens(answer) for _, answer in said)
        count.append(len(said))
        places.extend([place + 1] * len(said))
        if len(own) > MAX_LINES:
            raise InputError(f"has more than {MAX_LINES:,} requests", where=str(file), hint=NOTHING_RUN)
    if not own:
        raise InputError("has no conversation of a prompt and an answer", where=str(file), hint=NOTHING_RUN)
    sessions = Turns(
        count=np.frombuffer(count, np.int64),
        own_tokens=np.frombuffer(own, np.int64),
        output_tokens=np.frombuffer(outputs, np.int64),
    )
    name = f"{file.name.removesuffix('.gz').removesuffix('.json')}, {CHARACTERS_PER_TOKEN:g} characters a token"
    idle = [NotModelled(option="texts of --trace", why=COUNTED)]
    if len(count) < total:
        idle.append(NotModelled(option=f"{total - len(count):,} of {total:,} conversations", why=SKIPPED))
    return Found(
        sessions.requests(think_s, name), False, lambda at: f"conversation {places[at % len(places)]}", tuple(idle)
    )  # fmt: skip


def _tokens(text: str) -> int:
    return max(1, round(len(text) / CHARACTERS_PER_TOKEN))


def _exchanges(conversation: Any, where: str) -> list[tuple[str, str]]:
    """Prompts and answers from the beginning on, as long as they take turns; a system's message is part of the first
    prompt."""
    messages = conversation.get("conversations") if isinstance(conversation, dict) else None
    if not isinstance(messages, list):
        raise InputError("has no list `conversations`", where=where, hint=f"Read is ShareGPT's format. {NOTHING_RUN}")
    found: list[tuple[str, str]] = []
    prompt = system = ""
    for message in messages:
        speaker = message.get("from") if isinstance(message, dict) else None
        text = message.get("value") if isinstance(message, dict) else None
        if not isinstance(speaker, str) or not isinstance(text, str):
            raise InputError("has a message without from and value", where=where, hint=NOTHING_RUN)
        if speaker == "system" and not found and not prompt:
            system = text
        elif speaker in PROMPTS and text and not prompt:
            prompt = system + text
            system = ""
        elif speaker in ANSWERS and text and prompt:
            found.append((prompt, text))
            prompt = ""
        else:
            break
    return found


def _items(file: Path) -> Iterator[Any]:
    """The members of a JSON list, one after the other; the text is never there as a whole."""
    reader = _ListReader(file)
    for text in _texts(file):
        yield from reader.feed(text)
    yield from reader.feed("", last=True)
    if reader.expected != "end":
        raise _damaged(file)


class _ListReader:
    """Takes the text of a JSON list in parts and gives its members as soon as they are whole."""

    def __init__(self, file: Path) -> None:
        self.expected = "list"
        """Then `first` (a member or the end), `after` (a comma or the end), `member`, and `end`."""
        self._file, self._text, self._wanted = file, "", 0
        self._decode = json.JSONDecoder().raw_decode

    def feed(self, text: str, *, last: bool = False) -> Iterator[Any]:
        self._text += text
        if len(self._text) < self._wanted and not last:
            return  # a member that is not whole: once there is twice as much of it, it is tried again
        at = 0
        while (at := _skip(self._text, at)) < len(self._text):
            letter = self._text[at]
            if letter == "]" and self.expected in ("first", "after"):
                self.expected, at = "end", at + 1
            elif (self.expected, letter) in (("list", "["), ("after", ",")):
                self.expected, at = ("first" if letter == "[" else "member"), at + 1
            elif self.expected not in ("first", "member"):
                raise _damaged(self._file)
            else:
                try:
                    item, at = self._decode(self._text, at)
                except (ValueError, RecursionError):
                    if last or len(self._text) - at > MAX_CONVERSATION:
                        raise _damaged(self._file) from None
                    break
                self.expected = "after"
                yield item
        self._text = self._text[at:]
        self._wanted = 2 * len(self._text)


def _texts(file: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    for data in blocks(file, MAX_JSON):
        try:
            yield decoder.decode(data)
        except UnicodeDecodeError:
            raise InputError("is not UTF-8 text", where=str(file), hint="Save the file as UTF-8.") from None


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _damaged(file: Path) -> InputError:
    return InputError("is not a whole JSON list of conversations", where=str(file), hint=NOTHING_RUN)
