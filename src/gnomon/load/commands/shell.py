"""The simple commands of a shell text, in order, with what it says about how often each is started."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from posixpath import normpath

from gnomon.engines.operations import Variable
from gnomon.errors import InputError
from gnomon.load.commands.docker import container_of
from gnomon.load.commands.found import StartedProcess
from gnomon.load.commands.scan import HereDocument, here_documents, literal, quoted, tokens
from gnomon.load.commands.variables import ShellVariables

_OPERATOR = re.compile(r"[;&|()]+")
_REDIRECTION = re.compile(r"[<>&|]*[<>][<>&|]*")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_RANGE = re.compile(r"\{(\d{1,6})\.\.(\d{1,6})\}")
_SEQUENCE = re.compile(r"\$\(\s*seq\s+(\d{1,6})(?:\s+(\d{1,6}))?\s*\)")
_SHELLS = re.compile(r"(?:.*/)?(?:ba|da|z|k)?sh")
_TEXT_FOLLOWS = re.compile(r"-\w*c")
OPENING = {"if": "fi", "case": "esac", "for": "done", "while": "done", "until": "done", "select": "done"}
BESIDE = ("then", "do", "else", "elif", "{", "}", "!", "time", "exec", "command", "builtin", "nohup", "in")
DECLARES = ("export", "readonly", "local", "declare", "typeset", "set", "unset", "env")
TALKS = ("echo", "printf", "pkill", "pgrep", "killall", "grep", "trap", "pip", "uv-pip", "which", "cd", "source")
"""Programs that may name a server without starting it."""
MOST_DEPTH = 8


@dataclass(slots=True)
class ShellReader:
    """Reads the commands of one text; those inside of `sh -c` too."""

    where: str
    variables: ShellVariables
    blocks: list[str] = field(default_factory=list)
    """Words that end the blocks we are in."""
    loops: list[tuple[str, int]] = field(default_factory=list)
    """The loops we are in: the variable, and how often; 0 where that is not known."""
    otherwise: int = 0
    """How many `else` branches we are in."""
    depth: int = 0
    files: dict[str, str] = field(default_factory=dict)
    """Files that the text writes, with what is in them."""

    def processes(self, text: str) -> Iterator[StartedProcess]:
        """Every command of the text with the variables that it is called with."""
        current: list[str] = []
        handed: list[tuple[str, str]] = []
        documents = here_documents(text)
        found = iter([*tokens(text, self.where), ";"])
        for token in found:
            if _REDIRECTION.fullmatch(token):
                handed.append((token, next(found, "")))
            elif token == "(" and current and re.fullmatch(r"[A-Za-z_]\w*\+?=", current[-1]):
                self._list(current.pop(), found)
            elif _OPERATOR.fullmatch(token):
                self._write(current, handed, documents)
                yield from self._command(current)
                current, handed = [], []
            else:
                current.append(token)

    def _write(self, raw: list[str], handed: list[tuple[str, str]], documents: list[HereDocument]) -> None:
        """Keep what a command writes into a file: a here document, or the text of `echo` and `printf %s`."""
        words = [word for token in raw for word in self.variables.words(token)] if handed else []
        ends = [literal(word).lstrip("-") for operator, word in handed if operator == "<<"]
        into = [self.variables.text(word) for operator, word in handed if operator in (">", ">|", ">>")]
        into += [word for word in words[1:] if not word.startswith("-")] if words[:1] == ["tee"] else []
        text = _printed(words)
        for end in ends:
            document = next((one for one in documents if one.until == end), None)
            if document is not None:
                documents.remove(document)
                text = self._filled(document)
        for name in into if text is not None else ():
            self.files[normpath(name)] = text or ""

    def _filled(self, document: HereDocument) -> str:
        """A here document with what the script itself sets; a `Variable` where something in it is not known."""
        if not document.filled or not re.search(r"[$`\\]", document.text):
            return document.text
        return self.variables.text("".join(tokens(quoted(document.text), self.where)))

    def _list(self, assigned: str, found: Iterator[str]) -> None:
        """`NAME=(words)` and `NAME+=(words)`."""
        name, added = assigned.rstrip("=").rstrip("+"), assigned.endswith("+=")
        words: list[str] = []
        for token in found:
            if token.startswith(")"):
                break
            words += self.variables.words(token) if token != ";" else []
        if (self.blocks or (name in self.variables.lists and not added)) and not self.loops:
            self.variables.forget(name)
        if any(isinstance(word, Variable) for word in words) and not added:
            self.variables.forget(name)
        self.variables.lists[name] = [*(self.variables.lists.get(name, []) if added else []), *words]

    def _command(self, raw: list[str]) -> Iterator[StartedProcess]:
        raw = list(raw)
        while raw and self._keyword(raw):
            raw = raw[1:]
        words = [word for token in raw for word in self.variables.words(token)]
        environment: dict[str, str] = {}
        while words and (found := _ASSIGNED.fullmatch(words[0])):
            value = found[3]
            environment[found[1]] = Variable(value) if isinstance(words[0], Variable) else value
            words = words[1:]
        if not words:
            self._assign(environment)
            return
        if words[0] in DECLARES:
            yield from self._declared(words, environment)
        elif words[0] not in TALKS:
            yield from self._started(words, environment)

    def _keyword(self, raw: list[str]) -> bool:
        """Take a word of the shell's grammar off the front of a command; a loop takes the full head."""
        word = raw[0]
        if self.blocks and word == self.blocks[-1]:
            ended = self.blocks.pop()
            if ended == "done":
                self.loops.pop()
            self.otherwise -= bool(self.otherwise and ended == "fi")
            return True
        if word in OPENING:
            self.blocks.append(OPENING[word])
            if OPENING[word] == "done":
                self._loop(raw)
            return True
        self.otherwise += word in ("else", "elif") and not self.otherwise
        return word in BESIDE

    def _loop(self, raw: list[str]) -> None:
        """`for NAME in WORDS`; a loop of another kind runs nobody knows how often."""
        name, times = raw[1] if len(raw) > 1 else "", 0
        if raw[0] == "for" and raw[2:3] == ["in"]:
            items = [item for token in raw[3:] for item in self.variables.words(token)]
            times = sum(_times(item) for item in items) if all(map(_times, items)) else 0
        self.variables.forget(name)
        self.loops.append((name, times))
        del raw[1:]

    def _assign(self, environment: Mapping[str, str]) -> None:
        for name, value in environment.items():
            self.variables.set(name, value, sure=not self.blocks)

    def _declared(self, words: list[str], environment: Mapping[str, str]) -> Iterator[StartedProcess]:
        """`export NAME=VALUE`, and `env NAME=VALUE command`."""
        program, rest = words[0], [word for word in words[1:] if not re.fullmatch(r"-\w+", word)]
        given: dict[str, str] = {}
        while rest and (found := _ASSIGNED.fullmatch(rest[0])):
            given[found[1]] = Variable(found[3]) if isinstance(rest[0], Variable) else found[3]
            rest = rest[1:]
        if program != "env":
            self._assign(given)
        elif rest:
            yield from self._started(rest, {**environment, **given})

    def _started(self, words: list[str], environment: Mapping[str, str]) -> Iterator[StartedProcess]:
        inner = _inner_text(words)
        if inner is not None and self.depth < MOST_DEPTH:
            self.depth += 1
            yield from self.processes(inner)
            self.depth -= 1
            return
        count = 1
        for _, times in self.loops:
            count *= times
        around = {name: value for name, value in self.variables.values.items() if name not in self.variables.unknown}
        process = StartedProcess(
            words=tuple(words),
            where=self.where,
            environment={**around, **environment},
            count=count,
            alternative=bool(self.otherwise),
            files=dict(self.files),
        )
        yield container_of(process)


def _printed(words: list[str]) -> str | None:
    """What `echo TEXT` or `printf %s TEXT` writes; nothing of any other command."""
    if words[:1] == ["echo"] and not any(word.startswith("-") for word in words[1:]):
        made = " ".join(words[1:])
    elif words[:1] == ["printf"] and len(words) == 3 and words[1].removesuffix("\\n") == "%s":
        made = words[2]
    else:
        return None
    return Variable(made) if any(isinstance(word, Variable) for word in words) else made


def _inner_text(words: list[str]) -> str | None:
    """What `sh -c TEXT` runs, wherever it stands in a command."""
    for at, word in enumerate(words[:-1]):
        shell = any(_SHELLS.fullmatch(before.rpartition("=")[2]) for before in words[:at])
        if _TEXT_FOLLOWS.fullmatch(word) and shell and " " in words[at + 1]:
            return words[at + 1]
    return None


def _times(item: str) -> int:
    """How many items a word of a loop's list stands for; 0 where that is not known."""
    span = _RANGE.fullmatch(item)
    if span:
        return abs(int(span[2]) - int(span[1])) + 1
    sequence = _SEQUENCE.fullmatch(item)
    if sequence:
        first, last = (sequence[1], sequence[2]) if sequence[2] else ("1", sequence[1])
        return max(0, int(last) - int(first) + 1)
    return 0 if isinstance(item, Variable) else 1


def require_counted(process: StartedProcess) -> None:
    """Refuse a server in a loop that runs nobody knows how often, and one that is scaled down to nothing."""
    if process.count < 1 and process.counted:
        raise InputError("has no replicas", where=process.where, hint="Import it with one or more.")
    if process.count < 1:
        hint = "Write the loop's values out, or import one of its commands."
        raise InputError("a server is started in a loop of unknown length", where=process.where, hint=hint)
