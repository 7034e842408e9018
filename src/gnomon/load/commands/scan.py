"""Shell text prepared for `shlex`: quoted characters are kept apart from those that mean something, comments are
dropped, here documents set aside, and what a shell would fill in stays marked. Nothing is expanded here."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from gnomon.errors import InputError

_SHIFT = 0xE000
"""Characters of quotes are moved into Unicode's private area, where they mean nothing to a shell."""
QUOTED_DOLLAR = chr(0xE900)
"""A `$` in double quotes: what it stands for is one word, whatever it holds."""
END = chr(0xE901)
"""The end of what a shell would fill in, which is written `${…}` or `$(…)` however it was."""
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_PRIVATE = re.compile("[\x00\ue000-\uf8ff]")
_HEREDOC = re.compile(r"<<(-?)\s*(['\"\\]?)(\w+)\2?")
_ENDS_WORD = " \t\n;&|()<>"
_BRACKETS = {"(": ")", "{": "}"}
BREAK = ";"


def tokens(text: str, where: str) -> list[str]:
    """Words and operators of a text, a `;` for every end of a line. Raises InputError for a quote without its end."""
    if _PRIVATE.search(text):
        raise InputError("holds characters that no command has", where=where)
    lexer = shlex.shlex(_Scan(_parted(text)[0], where).prepared(), posix=True, punctuation_chars=";&|()<>")
    lexer.commenters, lexer.whitespace_split = "", True
    try:
        return list(lexer)
    except ValueError as error:
        raise InputError(f"cannot be read as a command: {str(error).lower()}", where=where) from None


def literal(text: str) -> str:
    """A word as it was written, without its quotes."""
    return "".join(chr(ord(letter) - _SHIFT) if _SHIFT <= ord(letter) < _SHIFT + 128 else letter for letter in text)


def _kept(text: str) -> str:
    """A text that means nothing to a shell."""
    return "".join(chr(ord(letter) + _SHIFT) if ord(letter) < 128 else letter for letter in text)


@dataclass(frozen=True, slots=True)
class HereDocument:
    """Lines that a script hands to a program, up to the word that ends them."""

    until: str
    text: str
    filled: bool
    """Whether the shell fills variables in."""


def here_documents(text: str) -> list[HereDocument]:
    """All of a text, in their order."""
    return _parted(text)[1]


def quoted(text: str) -> str:
    """A here document's text as the one word that a shell would make of it."""
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'


def _parted(text: str) -> tuple[str, list[HereDocument]]:
    """The text with empty lines for those of here documents, which are another program's input, and these."""
    lines: list[str] = []
    found: list[HereDocument] = []
    opened: re.Match[str] | None = None
    inside: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        if opened is None:
            opened, inside = (_HEREDOC.search(line) if "<<<" not in line else None), []
            lines.append(line)
            continue
        lines.append("")
        if line.strip() == opened[3]:
            found.append(HereDocument(opened[3], "".join(f"{one}\n" for one in inside), not opened[2]))
            opened = None
        else:
            inside.append(line.lstrip("\t") if opened[1] else line)
    return "\n".join(lines), found


class _Scan:
    """One pass over the characters."""

    def __init__(self, text: str, where: str) -> None:
        self._text, self._where, self._at = text, where, 0
        self._out: list[str] = []

    def prepared(self) -> str:
        while self._at < len(self._text):
            self._step()
        return "".join(self._out)

    def _step(self) -> None:
        letter = self._text[self._at]
        if letter == "\\":
            self._escape()
        elif letter == "'":
            end = self._closed("'", self._at + 1)
            self._put(f"''{_kept(self._text[self._at + 1 : end])}", end + 1)
        elif letter == '"':
            self._double()
        elif letter in "$`":
            self._expansion("$")
        elif letter == "#" and (not self._out or self._out[-1][-1:] in _ENDS_WORD):
            end = self._text.find("\n", self._at)
            self._at = end if end >= 0 else len(self._text)
        elif letter == "\n":
            self._put(f" {BREAK} ", self._at + 1)
        else:
            self._plain(letter)

    def _plain(self, letter: str) -> None:
        if letter in "<>":  # a number before it is a stream, not a word
            while self._out and self._out[-1].isdigit():
                self._out.pop()
        self._put(letter, self._at + 1)

    def _put(self, text: str, at: int) -> None:
        self._out.append(text)
        self._at = at

    def _escape(self) -> None:
        after = self._text[self._at + 1 : self._at + 2]
        self._put(" " if after in ("\n", "") else _kept(after), self._at + 2)

    def _double(self) -> None:
        start, end = self._at, len(self._text)
        self._put("''", self._at + 1)  # an empty pair: a word, even where nothing is in it
        while self._at < end and self._text[self._at] != '"':
            letter, after = self._text[self._at], self._text[self._at + 1 : self._at + 2]
            if letter == "\\" and after in ("$", "`", '"', "\\"):
                self._put(_kept(after), self._at + 2)
            elif letter == "\\" and after == "\n":
                self._at += 2
            elif letter in "$`":
                self._expansion(QUOTED_DOLLAR)
            else:
                self._put(_kept(letter), self._at + 1)
        if self._at >= end:
            raise self._unclosed('"', start)
        self._at += 1

    def _expansion(self, mark: str) -> None:
        """What begins with `$` or a backtick, its mark first and the rest kept together."""
        text, start = self._text, self._at
        if text[start] == "`":
            end = self._closed("`", start + 1)
            return self._put(f"{mark}{_kept(f'({text[start + 1 : end]})')}{END}", end + 1)
        after = text[start + 1 : start + 2]
        if after in _BRACKETS:
            end = self._balanced(start + 1, after, _BRACKETS[after])
            return self._put(f"{mark}{_kept(text[start + 1 : end])}{END}", end)
        found = _NAME.match(text, start + 1)
        if found:
            return self._put(f"{mark}{_kept(f'{{{found[0]}}}')}{END}", found.end())
        return self._put(_kept("$"), start + 1)

    def _balanced(self, at: int, opening: str, closing: str) -> int:
        depth, start = 0, at
        while at < len(self._text):
            depth += (self._text[at] == opening) - (self._text[at] == closing)
            at += 1
            if not depth:
                return at
        raise self._unclosed(f"${opening}", start)

    def _closed(self, quote: str, at: int) -> int:
        end = self._text.find(quote, at)
        if end < 0:
            raise self._unclosed(quote, at - 1)
        return end

    def _unclosed(self, quote: str, at: int) -> InputError:
        line = self._text.count("\n", 0, at) + 1
        where = f"{self._where} line {line}" if "\n" in self._text.strip() else self._where
        return InputError(f"the quote {quote} is not closed", where=where)
