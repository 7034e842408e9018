"""What reading a launch command back shares between engines: flags are taken one after another, and what is left has no
effect on a plan, for a reason that its table gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from gnomon.engines.command_line import ReadArguments, Unused, Value, option_text, unset
from gnomon.engines.operations import CommandNames, EngineCommand, Variable
from gnomon.errors import GnomonError, InputError, unknown_name
from gnomon.spec import Model
from gnomon.spec.imported import IgnoredOption

MOST_DEGREE = 100_000
WIDE = ("bf16", "fp16", "fp32")
COMPUTE = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
"""PyTorch's names of formats, as `--dtype` takes them."""
_VERSION = re.compile(r":v?(\d+\.\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launchers:
    """How an engine's server is started."""

    programs: Mapping[str, tuple[str, ...]]
    """Programs, with the words that have to follow."""
    modules: tuple[str, ...]
    """What `python -m` starts."""
    scripts: tuple[str, ...]
    """How paths of scripts end."""
    images: tuple[str, ...]
    """What its container images are called, in any registry."""
    entry_point: bool
    """Whether a container of such an image takes flags alone."""
    joining: tuple[str, ...] = ()
    """Programs in front of it that make one server of all tasks of `mpirun` or `srun`."""

    def own(self, words: Sequence[str], image: str = "") -> EngineCommand | None:
        """The engine's part of a command line; of a container that takes flags alone, all of it."""
        words = list(words)
        for at, word in enumerate(words):
            behind = self.programs.get(word.rpartition("/")[2])
            if behind is not None and tuple(words[at + 1 : at + 1 + len(behind)]) == behind:
                return self._made(words, at + 1 + len(behind), image)
            module = word if words[at - 1 : at] == ["-m"] else ""
            if module in self.modules or word.endswith(self.scripts):
                return self._made(words, at + 1 + (words[at + 1 : at + 2] == ["serve"]), image)
        if not self.entry_point:
            return None
        if image and self._is_own(image):
            return EngineCommand(arguments=tuple(words[1:] if words[:1] == ["serve"] else words), image=image)
        at_image = next((at for at, word in enumerate(words) if self._is_own(word)), None)
        if at_image is None or image:
            return None
        return EngineCommand(arguments=tuple(words[at_image + 1 :]), image=words[at_image])

    def _made(self, words: list[str], at: int, image: str) -> EngineCommand:
        before = next((word for word in words[:at] if self._is_own(word)), "")
        joined = any(word.rpartition("/")[2] in self.joining for word in words[:at])
        return EngineCommand(arguments=tuple(words[at:]), image=image or before, joined=joined)

    def _is_own(self, image: str) -> bool:
        path = re.split(r"[:@]", f"/{image}".rpartition("/")[2])[0]
        named = f"/{image}".rpartition("/")[0] + f"/{path}"
        return "/" in image and not image.startswith("-") and named.endswith(tuple(f"/{one}" for one in self.images))


@dataclass(slots=True)
class CommandImport:
    """The flags of one command, taken one after another."""

    read: ReadArguments
    command: EngineCommand
    names: CommandNames
    unused: Mapping[str, Unused]
    """Why flags that nobody takes change nothing."""
    ignored: list[IgnoredOption] = field(default_factory=list)

    def where(self, flag: str) -> str:
        """A flag as errors name it."""
        return f"--{flag}"

    def option(self, flag: str, value: Value) -> str:
        """A flag with its value, as it is listed."""
        return option_text(flag, value)

    def take(self, flag: str) -> Value | None:
        """A flag's value, once; nothing where it is not given."""
        return self.read.values.pop(flag, None)

    def text(self, flag: str) -> str:
        """A flag's value as one text; empty where it is not given."""
        value = self.take(flag)
        return "" if value is None else single(self.where(flag), value)

    def whole(self, flag: str, default: int) -> int:
        """A flag's value as a whole number above zero."""
        value = self.take(flag)
        if value is None:
            return default
        text = single(self.where(flag), value)
        if not re.fullmatch(r"[+]?\d{1,9}", text) or not 1 <= int(text) <= MOST_DEGREE:
            raise InputError(f"'{text}' is not a whole number above zero", where=self.where(flag))
        return int(text)

    def ignore(self, option: str, why: str, *, affects: bool) -> None:
        self.ignored.append(IgnoredOption(option=option, why=why, affects=affects))

    def model(self, flag: str, example: str) -> str:
        """The model, by its place or by its flag. Raises InputError where there is none, or two."""
        named, place = self.take(flag), self.read.model
        other = single(self.where(flag), named) if named is not None else ""
        if place and other and place != other:
            raise InputError(f"two models are named, '{place}' and '{other}'", hint="Name one.")
        if not place and not other:
            raise InputError("the command names no model", hint=f"`{example}` does.")
        return single(self.where(flag), place or other)

    def rank(self, flag: str) -> tuple[bool, bool]:
        """Whether a process is not the first of its replica, and whether its rank is the shell's to say."""
        value = self.take(flag)
        return value is not None and str(value) != "0", isinstance(value, Variable)

    def port(self, default: int) -> int:
        """Where the server takes requests; 0 where only the shell knows."""
        value = self.read.values.get("port", str(default))
        return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,5}", value) else 0

    def version(self, title: str, usual: str, *others: str) -> str:
        """The engine's version that an image names; nothing where it names none, or one without figures."""
        named = named_version(self.command.image, (usual, *others))
        if named is None:
            self.ignore(f"image {self.command.image}", f"the figures are those of {title} {usual}", affects=True)
        return named or ""

    def devices(self, variables: Sequence[str]) -> int:
        """Chips that the process may see by the first of these variables that is set."""
        for name in variables:
            text = self.command.environment.get(name, "")
            if text and not isinstance(text, Variable):
                return len([one for one in text.split(",") if one.strip()])
        return 0

    def left(self, title: str, prefixes: Sequence[str], taken: Sequence[str] = ()) -> Iterator[IgnoredOption]:
        """What nobody has taken: flags, arguments that a script hands on, and variables that the engine reads, by how
        their names begin."""
        for name, value in self.read.values.items():
            unused = self.unused[name]
            yield IgnoredOption(option=self.option(name, value), why=unused.why, affects=unused.affects)
        for word in self.read.handed_on:
            yield IgnoredOption(option=word, why="what the script is called with is not known", affects=True)
        for name, value in self.command.environment.items():
            if name.startswith(tuple(prefixes)) and not name.startswith(tuple(taken)):
                why = f"not modelled: what environment variables of {title} change"
                yield IgnoredOption(option=f"{name}={value}", why=why, affects=True)


def named_version(image: str, known: Sequence[str]) -> str | None:
    """The version that an image's tag names, of those that are known: empty where it names none, nothing where it is
    another."""
    found = _VERSION.search(image)
    if not found:
        return ""
    return next((one for one in known if f"{one}.".startswith(f"{found[1]}.")), None)


def single(where: str, value: Value) -> str:
    """A value that acts, and so has to be known."""
    if isinstance(value, Variable):
        raise unset(value, where)
    if not isinstance(value, str):
        raise InputError(f"'{value}' is not a single value", where=where)
    return value


def setting(where: str, value: Value, parsed: Callable[[str], Any]) -> Any:
    """A setting of a flag; what is wrong with it is said of the flag."""
    if isinstance(value, bool):
        return value
    text = single(where, value)
    try:
        return parsed(text)
    except GnomonError as error:
        error.where = where
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanNumbers:
    """Whole numbers with letters behind them, as an engine's `human_readable_int` reads them."""

    decimal: tuple[str, ...]
    """What stands for 1,000, its square and so on."""
    binary: tuple[str, ...]
    """What stands for 1,024, its square and so on: only behind whole numbers."""
    exact: bool
    """Whether fractions are read as decimals, and not as floats."""

    def plain(self, where: str, text: str) -> str:
        """The number without letters; the text as it is where it has none."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]+)", text.strip())
        number, suffix = found.groups() if found else ("", "")
        if suffix in self.decimal:
            scale = 1000 ** (self.decimal.index(suffix) + 1)
            return str(int(Decimal(number) * scale if self.exact else float(number) * scale))
        if suffix not in self.binary:
            return text
        power = self.binary.index(suffix)
        if "." in number:
            hint = f"Did you mean {number}{self.decimal[power]}?"
            raise InputError(f"'{text}': a binary suffix takes whole numbers", where=where, hint=hint)
        return str(int(number) * 1024 ** (power + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingReader:
    """Reads an engine's settings from the values of its flags."""

    parsed: Callable[[str, str], Any]
    """The value of a setting, by its name and its text."""
    numbers: HumanNumbers
    human: tuple[str, ...]
    """Settings that take numbers with letters."""

    def __call__(self, flag: str, name: str, value: Value) -> Any:
        where = f"--{flag}"

        def read(text: str) -> Any:
            return self.parsed(name, self.numbers.plain(where, text) if name in self.human else text)

        return setting(where, value, read)


def sizes(where: str, value: Any) -> list[int]:
    """A list of whole numbers."""
    given = value if isinstance(value, (list, tuple)) else [value]
    whole = [int(str(one)) for one in given if re.fullmatch(r"\d{1,7}", str(one))]
    if len(whole) != len(given) or not whole:
        raise InputError(f"'{' '.join(map(str, given))}' are not whole numbers", where=where)
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormats:
    """What an engine's flags say of the format of weights and cache."""

    made: tuple[str, ...]
    """Methods of `--quantization` by which it makes eight bits of wide weights while it loads them."""
    stored: tuple[str, ...]
    """Other methods, most of which say how a checkpoint is stored."""
    widest: str
    """The format of 16 bits that it computes in by default where a checkpoint holds 32."""
    caches: Mapping[str, str]
    """Formats of the cache by the engine's names."""
    nearly: tuple[str, ...] = ()
    """Caches of eight bits in other ways."""
    other_caches: tuple[str, ...] = ()

    def weights(self, dtype: str, quantization: str, model: Model, said: str) -> str:
        """The format of the weights: what the user says, what the engine makes while it loads, or the checkpoint's."""
        if dtype not in ("", "auto", *COMPUTE):
            raise unknown_name("format", dtype, ("auto", *COMPUTE), where="--dtype")
        if quantization not in ("", "None", *self.made, *self.stored):
            raise unknown_name("method", quantization, (*self.made, *self.stored), where="--quantization")
        if said:
            return said
        if model.dtype not in WIDE:
            return model.dtype
        if quantization in self.made:
            return "fp8"
        if quantization in self.stored:
            raise InputError(
                f"{quantization} needs a checkpoint that is quantized so, and {model.name} holds {model.dtype}",
                where="--quantization",
                hint="Say which format the weights have: gnomon import … --dtype int4.",
            )
        narrowed = self.widest if model.dtype == "fp32" else model.dtype  # auto never computes in 32 bits
        return COMPUTE.get(dtype, narrowed)

    def cache(self, text: str) -> tuple[str, str]:
        """The format of the cache, and the engine's own that it stands for where that is another."""
        if text in self.caches:
            return self.caches[text], ""
        if text in self.nearly:
            return "fp8", text
        known = (*self.caches, *self.nearly, *self.other_caches)
        if text not in known:
            raise unknown_name("format of the cache", text, known[1:], where="--kv-cache-dtype")
        raise InputError(f"a cache in {text} is not modelled", where="--kv-cache-dtype")
