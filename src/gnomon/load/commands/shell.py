"""The simple commands of a shell text, in order, with what it says about how often each is started."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gnomon.engines.operations import Variable
from gnomon.errors import InputError
from gnomon.load.commands.counts import array_jobs, batch_options, launched_tasks, loop_times
from gnomon.load.commands.docker import container_of
from gnomon.load.commands.found import StartedProcess
from gnomon.load.commands.scan import HereDocument, here_documents, literal, quoted, tokens
from gnomon.load.commands.variables import ShellVariables
from gnomon.load.commands.written import WrittenFiles, printed

_OPERATOR = re.compile(r"[;&|()]+")
_REDIRECTION = re.compile(r"[<>&|]*[<>][<>&|]*")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_SHELLS = re.compile(r"(?:.*/)?(?:ba|da|z|k)?sh")
_TEXT_FOLLOWS = re.compile(r"-\w*c")
OPENING = {"if": "fi", "case": "esac", "for": "done", "while": "done", "until": "done", "select": "done"}
BESIDE = ("then", "do", "else", "elif", "{", "}", "!", "time", "exec", "command", "builtin", "nohup", "in")
DECLARES = ("export", "readonly", "local", "declare", "typeset", "set", "unset", "env")
TALKS = ("echo", "printf", "pkill", "pgrep", "killall", "grep", "trap", "pip", "uv-pip", "which", "cd", "source")
"""Programs that may name a server without starting it."""
RUNS_TEXT = ("ssh", "tmux", "screen", "eval")
"""Programs that hand a text to a shell."""
MOST_DEPTH = 8
_GRAMMAR = ("then", "do", "else", "{", "!", "time", "nohup", "sudo")
_AFTER_GROUP = "a server is started only where a group of commands fails"
_INTO = (">", ">|", ">>", "&>", ">&", "&>>")


@dataclass(slots=True)
class _Block:
    """`if`, `case` or a loop."""

    end: str
    """The word that ends it."""
    choice: int
    """Its number."""
    branch: int = 0
    leaves: bool = False
    """Whether the first branch ends the script."""


@dataclass(slots=True)
class _Run:
    """Where we are in a list of commands."""

    before: str = ""
    """The operators around the command that is read."""
    after: str = ""
    inside: int = 0
    """How many brackets of subshells we are in."""
    ended: bool = False
    choice: int = 0
    """Of `||`, its number and how many of its commands were met."""
    tried: int = 0
    written: str | None = None
    """What the last command writes, and its words."""
    words: list[str] = field(default_factory=list)
    input_words: list[str] = field(default_factory=list)
    """Those of the command that writes the input of this one."""

    grouped: bool = False
    """Whether `||` stands behind a block or a subshell."""
    given: Sequence[str] = ()
    at: int = 0
    """Where in the tokens we are."""

    def each(self, given: Sequence[str]) -> Iterator[str]:
        self.given = given
        for self.at, token in enumerate(given):
            yield token

    def meets(self, operator: str, current: Sequence[str], choice: int) -> bool:
        """Take the operator behind a command; whether a new choice begins with it."""
        self.after = operator.strip("()") or operator[:1]
        self.input_words = self.words if self.before == "|" else []
        begins = self.after == "||" and self.before != "||"
        if begins:
            self.choice, self.tried = choice, 0
            self.grouped = operator != "||" or not current or current[0] in ("}", "fi", "done", "esac")
        return begins

    def passes(self, operator: str) -> None:
        self.tried += self.after == "||"
        self.before = self.after
        self.inside = max(0, self.inside + operator.count("(") - operator.count(")"))

    def breaks(self) -> bool:
        """Whether the loop whose head was just read may end before its list does."""
        depth, opens = 1, True
        for token in self.given[self.at :]:
            if opens:
                depth += OPENING.get(token) == "done"
                depth -= token == "done"
                if not depth or (depth == 1 and token in ("break", "continue")):
                    return bool(depth)
            opens = bool(_OPERATOR.fullmatch(token)) or token in BESIDE
        return False


@dataclass(slots=True)
class ShellReader:
    """Reads the commands of one text; those inside of `sh -c` too."""

    where: str
    variables: ShellVariables
    blocks: list[_Block] = field(default_factory=list)
    """The blocks we are in."""
    loops: list[tuple[str, int]] = field(default_factory=list)
    """The loops we are in: the variable, and how often; 0 where that is not known."""
    depth: int = 0
    files: WrittenFiles = field(default_factory=WrittenFiles)
    """Files that the text writes, with what is in them."""
    functions: dict[str, tuple[tuple[str, ...], tuple[HereDocument, ...]]] = field(default_factory=dict)
    """What the functions of the text run, and the here documents of each."""
    batch: list[str] = field(default_factory=list)
    """Options of its `#SBATCH` lines."""
    tasks: int = 1
    """How many processes what we are in is launched as; 0 where that is not known."""
    choices: int = 0
    """How many choices were met."""
    sometimes: bool = False
    """Whether the function or text that we are in may not run, or several times."""
    either: tuple[tuple[int, int], ...] = ()
    """Branches that all that follows is in: the other one ends the script."""
    _run: _Run = field(default_factory=lambda: _Run())

    def processes(self, text: str) -> Iterator[StartedProcess]:
        """Every command of the text with the variables that it is called with."""
        if not self.depth and not self.batch:
            self.batch = batch_options(text)
            if (jobs := array_jobs(self.batch)) != 1:
                self.loops.append(("", jobs))
        yield from self._tokens(tokens(text, self.where), here_documents(text))

    def _tokens(self, given: Sequence[str], documents: list[HereDocument]) -> Iterator[StartedProcess]:
        current: list[str] = []
        handed: list[tuple[str, str]] = []
        outer, self._run = self._run, _Run()
        found = self._run.each([*given, ";"])
        for token in found:
            if _REDIRECTION.fullmatch(token):
                handed.append((token, next(found, "")))
            elif token == "(" and current and re.fullmatch(r"[A-Za-z_]\w*\+?=", current[-1]):
                self._list(current.pop(), found)
            elif named := _function_name(current, token):
                body = _body(found, opened=token == "{")
                self.functions[named] = body, tuple(_taken(body, documents))
                current = []
            elif _OPERATOR.fullmatch(token):
                self.choices += self._run.meets(token, current, self.choices + 1)
                self._write(current, handed, documents)
                words = self._run.words
                yield from self._command(current)
                if words and words[0] not in self.functions:
                    self.files.touched_by(words, sure=self._sure)
                current, handed = [], []
                self._run.passes(token)
                if token.startswith((";;", ";&")) and self.blocks and self.blocks[-1].end == "esac":
                    self.blocks[-1].branch += 1
                if self._run.ended:
                    break
            else:
                current.append(token)
        self._run = outer

    def _write(self, raw: list[str], handed: list[tuple[str, str]], documents: list[HereDocument]) -> None:
        """Keep what a command writes into a file: a here document, or the text of `echo` and `printf %s`."""
        while raw and raw[0] in _GRAMMAR:
            raw = raw[1:]
        words = [word for token in raw for word in self.variables.words(token)]
        ends = [literal(word).lstrip("-") for operator, word in handed if operator == "<<"]
        into = [(self.variables.text(word), operator == ">>") for operator, word in handed if operator in _INTO]
        text, before = printed(words), self._run.written
        if words[:1] == ["tee"]:
            into += [(word, "-a" in words or "--append" in words) for word in words[1:] if not word.startswith("-")]
        if words[:1] == ["tee"] or words == ["cat"]:
            text = before if self._run.before == "|" else None
        for end in ends:
            document = next((one for one in documents if one.until == end), None)
            if document is not None:
                documents.remove(document)
                text = self._filled(document) if words[:1] == ["tee"] or words in (["cat"], ["cat", "-"]) else None
        self._run.written, self._run.words = text, words
        for name, append in into:
            self.files.write(name, text, append=append, sure=self._sure)

    @property
    def _sure(self) -> bool:
        """Whether the command here runs, and once."""
        return not self.blocks and not self.sometimes and self._run.before not in ("&&", "||")

    def _filled(self, document: HereDocument) -> str:
        """A here document with what the script itself sets; a `Variable` where something in it is not known."""
        if not document.filled or not re.search(r"[$`\\]", document.text):
            return document.text
        return self.variables.text("".join(tokens(quoted(document.text), self.where)))

    def _list(self, assigned: str, found: Iterator[str]) -> None:
        """`NAME=(words)` and `NAME+=(words)`."""
        name, added = assigned.rstrip("=").rstrip("+"), assigned.endswith("+=")
        words: list[str] = []
        loose = False
        for token in found:
            if token.startswith(")"):
                break
            filled = self.variables.words(token) if token != ";" else []
            loose = loose or ("$" in token and any(isinstance(word, Variable) for word in filled))
            words += filled
        if (self.blocks or self.sometimes or (name in self.variables.lists and not added)) and not self.loops:
            self.variables.forget(name)
        if loose and not added:  # a quoted variable is one word, whatever it holds
            self.variables.forget(name)
        self.variables.lists[name] = [*(self.variables.lists.get(name, []) if added else []), *words]

    def _command(self, raw: list[str]) -> Iterator[StartedProcess]:
        raw, last = list(raw), False
        while raw and self._keyword(raw):
            last = last or raw[0] == "exec"
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
        if words[0] == "shift":
            self.variables.shift(sure=not self.blocks)
        if last or words[0] in ("exit", "return"):
            self._leave()
        if words[0] in DECLARES:
            yield from self._declared(words, environment)
        elif words[0] not in TALKS:
            yield from self._started(words, environment)

    def _keyword(self, raw: list[str]) -> bool:
        """Take a word of the shell's grammar off the front of a command; a loop takes the full head."""
        word = raw[0]
        if self.blocks and word == self.blocks[-1].end:
            ended = self.blocks.pop()
            if ended.end == "done":
                self.loops.pop()
            if ended.leaves and ended.branch == 0:
                self.either = (*self.either, (ended.choice, 1))
            return True
        if word in OPENING:
            self.choices += 1
            self.blocks.append(_Block(OPENING[word], self.choices))
            if OPENING[word] == "done":
                self._loop(raw)
            return True
        if self.blocks and word in ("else", "elif"):
            self.blocks[-1].branch += 1
        return word in BESIDE

    def _leave(self) -> None:
        """`exit`, and what `exec` runs: nothing that follows is run, or only where the branch we are in is not."""
        if self._run.inside or self._run.before in ("&&", "||", "|") or self._run.after not in (";", ")", ""):
            return
        if not self.blocks:
            self._run.ended = True
        elif len(self.blocks) == 1 and self.blocks[-1].end == "fi":
            self.blocks[-1].leaves = True

    def _branches(self) -> tuple[tuple[int, int], ...]:
        """The branches that we are in, outermost first."""
        inside = [(block.choice, block.branch) for block in self.blocks if block.end != "done"]
        if "||" in (self._run.after, self._run.before):
            inside.append((self._run.choice, self._run.tried))
        return (*self.either, *inside)

    def _loop(self, raw: list[str]) -> None:
        """`for NAME in WORDS`; a loop of another kind runs nobody knows how often."""
        name, times = raw[1] if len(raw) > 1 else "", 0
        if raw[0] == "for" and raw[2:3] == ["in"]:
            each = [loop_times(token, self.variables.words(token)) for token in raw[3:]]
            times = sum(each) if all(each) and not self._run.breaks() else 0
        self.variables.forget(name)
        self.loops.append((name, times))
        del raw[1:]

    def _assign(self, environment: Mapping[str, str]) -> None:
        for name, value in environment.items():
            self.variables.set(name, value, sure=not self.blocks and not self.sometimes)

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
        inner, body, before = _inner_text(words), self.functions.get(words[0]), self.tasks
        self.tasks *= launched_tasks(words, self.batch, self._run.input_words)
        branches = self._branches()
        if body is not None and self.depth >= MOST_DEPTH:
            raise InputError(f"its functions call each other more than {MOST_DEPTH} deep", where=self.where)
        if (inner is not None or body is not None) and self.depth < MOST_DEPTH:
            outer = self.either, self.blocks, self.sometimes
            self.either, self.blocks, self.sometimes = branches, [], not self._sure
            self.depth += 1
            if inner is not None:
                yield from self.processes(inner)
            elif body is not None:
                arguments, self.variables.arguments = self.variables.arguments, words[1:]
                yield from self._tokens(body[0], list(body[1]))
                self.variables.arguments = arguments
            self.depth -= 1
            self.tasks, (self.either, self.blocks, self.sometimes) = before, outer
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
            tasks=self.tasks,
            branches=branches,
            unknown=_AFTER_GROUP if self._run.before == "||" and self._run.grouped else "",
            files=self.files.texts(),
        )
        self.tasks = before
        yield container_of(process)


def _function_name(current: Sequence[str], token: str) -> str:
    """The name of a function that is defined here; none where none is."""
    if token == "()" and len(current) in (1, 2) and current[:-1] in ([], ["function"]):
        return current[-1]
    return current[1] if token == "{" and len(current) == 2 and current[0] == "function" else ""


def _taken(body: Sequence[str], documents: list[HereDocument]) -> Iterator[HereDocument]:
    """The here documents of a function, taken out of those of the text."""
    ends = [literal(end).lstrip("-") for at, end in enumerate(body) if body[at - 1 : at] == ("<<",)]
    for end in ends:
        found = next((one for one in documents if one.until == end), None)
        if found is not None:
            documents.remove(found)
            yield found


def _body(found: Iterator[str], *, opened: bool) -> tuple[str, ...]:
    """The tokens of a function, up to the brace, or the bracket, that closes it."""
    depth, pair = int(opened), "{}"
    body: list[str] = []
    for token in found:
        if not depth and token == "(":
            pair = "()"
        opens, closes = (token.count(one) if pair == "()" else token == one for one in pair)
        depth += opens - closes
        if depth <= 0 and closes:
            break
        if depth > 0 and (body or not opens):
            body.append(token)
    return tuple(body)


def _inner_text(words: list[str]) -> str | None:
    """What `sh -c TEXT` runs, wherever it stands in a command, and `ssh HOST TEXT`, `tmux … TEXT` and `eval TEXT`."""
    if words[0].rpartition("/")[2] in RUNS_TEXT:
        return next((word for word in words[1:] if " " in word and not word.startswith("$(")), None)
    for at, word in enumerate(words[:-1]):
        shell = any(_SHELLS.fullmatch(before.rpartition("=")[2]) for before in words[:at])
        if _TEXT_FOLLOWS.fullmatch(word) and shell and " " in words[at + 1]:
            return words[at + 1]
    return None


def require_counted(process: StartedProcess) -> None:
    """Refuse a server that runs nobody knows how often, and one that is scaled down to nothing."""
    if process.unknown:
        raise InputError(process.unknown, where=process.where, hint="Import the server's command alone.")
    if process.count < 1 and process.counted:
        raise InputError("has no replicas", where=process.where, hint="Import it with one or more.")
    if process.count < 1:
        hint = "Write the loop's values out, or import one of its commands."
        raise InputError("a server is started in a loop of unknown length", where=process.where, hint=hint)
