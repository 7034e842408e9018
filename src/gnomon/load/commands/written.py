"""Files that a shell text writes, with what is in them, as far as the text itself says it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from posixpath import normpath

from gnomon.engines import command_readers
from gnomon.engines.operations import Variable

UNTOLD = Variable("")
"""What is in a file that something else writes or changes."""
READS = (
    "cat", "echo", "printf", "ls", "test", "[", "[[", "head", "tail", "wc", "grep", "chmod", "chown", "diff", "stat",
    "export", "trap", "less", "more", "md5sum", "sha256sum", "file", "mkdir", "cd", "set", "local", "readonly", "tee",
)  # fmt: skip
"""Programs that leave the files they name as they are."""
IN_PLACE = {"sed": r"-\w*i.*|--in-place.*", "perl": r"-\w*i.*", "yq": r"-\w*i|--inplace"}
"""Programs that change files where they lie, and the options that say so."""


class WrittenFiles:
    """Texts by path; a `Variable` where only a shell knows it, an empty one where nothing of it is known."""

    def __init__(self, files: Mapping[str, str] | None = None) -> None:
        self._texts = dict(files or {})

    def texts(self) -> dict[str, str]:
        return dict(self._texts)

    def write(self, path: str, text: str | None, *, append: bool, sure: bool) -> None:
        """`sure` says whether the command runs once, and in any case."""
        name = normpath(path)
        before = self._texts.get(name)
        if text is None or (append and (before is None or before is UNTOLD or not sure)):
            self._texts[name] = UNTOLD
        elif append and before is not None:
            known = not isinstance(before, Variable) and not isinstance(text, Variable)
            self._texts[name] = f"{before}{text}" if known else Variable(f"{before}{text}")
        elif not sure and before is not None and before != text:
            self._texts[name] = UNTOLD
        else:
            self._texts[name] = text

    def touched_by(self, words: Sequence[str], *, sure: bool) -> None:
        """Take note of a command that may change files which it names."""
        program, named = words[0].rpartition("/")[2], [word for word in words[1:] if not word.startswith("-")]
        if program in IN_PLACE:
            changes = any(re.fullmatch(IN_PLACE[program], word) for word in words[1:])
            self._forget(named if changes else ())
        elif program in ("cp", "mv") and len(named) == 2 and sure:
            self._texts[normpath(named[1])] = self._texts.get(normpath(named[0]), UNTOLD)
        elif program == "rm" and sure:
            self._texts |= {normpath(name): "" for name in named}
        elif program not in READS and any(normpath(name) in self._texts for name in named) and not _serves(words):
            self._forget([name for name in named if normpath(name) in self._texts])

    def _forget(self, names: Sequence[str]) -> None:
        self._texts |= {normpath(name): UNTOLD for name in names}


def _serves(words: Sequence[str]) -> bool:
    """Whether a command starts an engine, which only reads its files."""
    return any(reader.own_command(words, "") is not None for _, reader in command_readers())


def printed(words: Sequence[str]) -> str | None:
    """What `echo TEXT` or `printf %s TEXT` writes, and `:` and `true`, which write nothing; not known of any other
    command."""
    if words[:1] == ["echo"] and not any(word.startswith("-") for word in words[1:]):
        made = f"{' '.join(words[1:])}\n"
    elif words[:1] == ["printf"] and len(words) == 3 and words[1].removesuffix("\\n") == "%s":
        made = words[2] + ("\n" if words[1].endswith("\\n") else "")
    elif not words or list(words) in ([":"], ["true"]):
        made = ""
    else:
        return None
    return Variable(made) if any(isinstance(word, Variable) for word in words) else made
