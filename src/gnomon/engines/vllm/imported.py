"""A `vllm serve` command read back as a plan's degrees, formats and settings. Every flag acts, is listed as ignored
with the reason, or is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnomon.engines.operations import CommandNames, EngineCommand, ImportedCommand, Variable
from gnomon.engines.vllm import MEASURED
from gnomon.engines.vllm.arguments import ACTING, DEGREES, SETTINGS, FlagTable
from gnomon.engines.vllm.command_line import ReadArguments, Value, config_words, option_text, read_arguments, unset
from gnomon.engines.vllm.imported_weights import cache_format, weight_format
from gnomon.engines.vllm.later_arguments import every_flag, flag_table
from gnomon.engines.vllm.options import BY_NAME, parsed
from gnomon.engines.vllm.platforms import CUDA, ROCM, XPU
from gnomon.engines.vllm.releases import RELEASES
from gnomon.errors import GnomonError, InputError, unknown_name
from gnomon.spec import Strategy
from gnomon.spec.imported import IgnoredOption

MOST_DEGREE = 100_000
SERVERS = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main", "vllm.entrypoints.api_server")
IMAGES = ("vllm-openai", "vllm-openai-rocm", "vllm-openai-xpu")
"""What images are called whose entry point is `vllm serve`, in any registry."""
HUMAN = ("max_model_len", "max_num_batched_tokens")
"""Settings that take `32k` (32,000) and `32K` (32,768)."""
LARGEST_CAPTURE = "max_cudagraph_capture_size"
_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_POWERS = {letter: power for power, letter in enumerate("kmgt", 1)}
_VERSION = re.compile(r":v?(\d+\.\d+(?:\.\d+)?)")


def own_command(words: Sequence[str], image: str = "") -> EngineCommand | None:
    """vLLM's part of a command line; of a container of vLLM's own image, all of it."""
    words = list(words)
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        if name == "vllm" and words[at + 1 : at + 2] == ["serve"]:
            return EngineCommand(arguments=tuple(words[at + 2 :]), image=image or _image(words[:at]))
        module = word if words[at - 1 : at] == ["-m"] else ""
        if module in SERVERS or word.endswith("vllm/entrypoints/openai/api_server.py"):
            rest = words[at + 1 :]
            rest = rest[1:] if rest[:1] == ["serve"] else rest
            return EngineCommand(arguments=tuple(rest), image=image or _image(words[:at]))
    if image and _is_own(image):
        return EngineCommand(arguments=tuple(words[1:] if words[:1] == ["serve"] else words), image=image)
    at_image = next((at for at, word in enumerate(words) if _is_own(word)), None)
    if at_image is None or image:
        return None
    return EngineCommand(arguments=tuple(words[at_image + 1 :]), image=words[at_image])


def _is_own(image: str) -> bool:
    return not image.startswith("-") and re.split(r"[:@]", image.rpartition("/")[2])[0] in IMAGES and "/" in image


def _image(words: Sequence[str]) -> str:
    return next((word for word in words if _is_own(word)), "")


def config_command(fields: Mapping[str, Any]) -> EngineCommand | None:
    """A file for `vllm serve --config`: most of its fields are flags."""
    known = [key for key in fields if str(key).replace("_", "-").partition(".")[0] in every_flag()]
    if not known or 2 * len(known) < len(fields):
        return None
    return EngineCommand(arguments=tuple(config_words({str(key): value for key, value in fields.items()})))


def import_command(command: EngineCommand, names: CommandNames) -> ImportedCommand:
    version = _version(command.image)
    table = flag_table(version or MEASURED)
    read = read_arguments(command.arguments, table)
    config = read.values.pop("config", None)
    if config is not None:
        read = read_arguments(config_words(names.config(_text("config", config))), table).below(read)
    return _Import(read, command, names, table, version).made()


def _version(image: str) -> str:
    """The version that an image's tag names, of those that are known."""
    found = _VERSION.search(image)
    return next((known for known in RELEASES if found and known.startswith(found[1])), "")


@dataclass(slots=True)
class _Import:
    """Flags that are taken one after another; what is left has no effect on a plan."""

    read: ReadArguments
    command: EngineCommand
    names: CommandNames
    table: FlagTable
    version: str
    ignored: list[IgnoredOption] = field(default_factory=list)

    def made(self) -> ImportedCommand:
        name = self._model()
        model = self.names.model(name)
        degrees = {degree: self._whole(flag, 1) for flag, degree in DEGREES.items()}
        dtype, quantization = (self._take(flag) for flag in ("dtype", "quantization"))
        nodes, worker = self._layout(degrees["dp"])
        expert = self._take("enable-expert-parallel") is True
        self._refuse_context()
        tp, pp, dp, cp = (degrees[name] for name in ("tp", "pp", "dp", "cp"))
        strategy = Strategy(tp=tp, pp=pp, dp=dp, cp=cp, ep=tp * dp if expert else 1)
        settings = self._settings()
        self._beside(settings)
        kv_dtype, note = cache_format(_plain("kv-cache-dtype", self._take("kv-cache-dtype")), self.table)
        if note:
            self._ignore(option_text("kv-cache-dtype", note), "priced as fp8", affects=True)
        return ImportedCommand(
            model=name,
            strategy=strategy,
            dtype=weight_format(
                _plain("dtype", dtype), _plain("quantization", quantization), model, self.names.dtype, self.table
            ),
            kv_dtype=kv_dtype,
            settings=settings,
            version=self._checked_version(),
            nodes=nodes,
            worker=worker,
            devices=self._devices(),
            ignored=(*self.ignored, *self._left()),
        )

    def _take(self, flag: str) -> Value | None:
        return self.read.values.pop(flag, None)

    def _ignore(self, option: str, why: str, *, affects: bool) -> None:
        self.ignored.append(IgnoredOption(option=option, why=why, affects=affects))

    def _model(self) -> str:
        named = self._take("model")
        place = self.read.model
        other = _text("model", named) if named is not None else ""
        if place and other and place != other:
            raise InputError(f"two models are named, '{place}' and '{other}'", hint="Name one.")
        if not place and not other:
            raise InputError("the command names no model", hint="`vllm serve MODEL …` does.")
        return _text("model", place or other)

    def _whole(self, flag: str, default: int) -> int:
        value = self._take(flag)
        if value is None:
            return default
        text = _text(flag, value)
        if not re.fullmatch(r"[+]?\d{1,9}", text) or not 1 <= int(text) <= MOST_DEGREE:
            raise InputError(f"'{text}' is not a whole number above zero", where=f"--{flag}")
        return int(text)

    def _layout(self, dp: int) -> tuple[int, bool]:
        """The nodes of a replica, and whether this process only works for another one of it."""
        nodes, local = self._whole("nnodes", 1), self._whole("data-parallel-size-local", dp)
        worker = self._take("headless") is True
        for flag in ("node-rank", "data-parallel-rank", "data-parallel-start-rank"):
            value = self._take(flag)
            worker = worker or (value is not None and str(value) != "0")
        for flag in ("data-parallel-hybrid-lb", "data-parallel-external-lb"):
            if self._take(flag) is True:
                self._ignore(f"--{flag}", "not modelled: who assigns requests to data-parallel ranks", affects=True)
        if dp % local or local > dp:
            raise InputError(
                f"{local} is not a share of the {dp} data-parallel ranks", where="--data-parallel-size-local"
            )
        return max(nodes, dp // local), worker

    def _refuse_context(self) -> None:
        flag = "prefill-context-parallel-size"
        if self._whole(flag, 1) > 1:
            raise InputError("context parallelism of prompts is not modelled", where=f"--{flag}")

    def _settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for flag, name in SETTINGS.items():
            value = self._take(flag) if flag in ACTING else None
            if value is None:
                continue
            if flag in self.table.choices and not self._priced(flag, name, value):
                continue
            if name == "max_model_len" and str(value).lower() in ("auto", "-1"):
                why = "vLLM takes the longest that fits; the plan takes the model's own"
                self._ignore(option_text(flag, value), why, affects=True)
                continue
            found[name] = _setting(flag, name, value)
        return found

    def _priced(self, flag: str, name: str, value: Value) -> bool:
        """Whether a choice of vLLM's is one that Gnomon has figures for."""
        text = _text(flag, value)
        if text not in self.table.choices[flag]:
            raise unknown_name("value", text, self.table.choices[flag], where=f"--{flag}")
        if text in BY_NAME[name].choices:
            return True
        self._ignore(option_text(flag, value), f"not modelled: priced as {BY_NAME[name].default}", affects=True)
        return False

    def _beside(self, settings: dict[str, Any]) -> None:
        """Flags that say a setting in other words."""
        self._quantization_config(settings)
        config = self._take("compilation-config") or {}
        sizes = self._take("cudagraph-capture-sizes")
        if isinstance(config, dict):
            inside = dict(config)
            sizes = sizes or inside.pop("cudagraph_capture_sizes", None)
            if (most := inside.pop(LARGEST_CAPTURE, None)) is not None:
                settings.setdefault(LARGEST_CAPTURE, _setting("compilation-config", LARGEST_CAPTURE, str(most)))
            config = inside
        if config:
            self._ignore(
                option_text("compilation-config", config), "not modelled: how graphs are compiled", affects=True
            )
        if sizes:
            self._captured(sizes, settings)
        if (level := self._take("optimization-level")) is not None:
            usual = str(level).lower().lstrip("o") == "2"
            why = "vLLM's default" if usual else "not modelled: how graphs are compiled"
            self._ignore(option_text("optimization-level", level), why, affects=not usual)
        if (chunked := self._take("enable-chunked-prefill")) is not None:
            why = "vLLM's default" if chunked else "not modelled: prompts that are never cut into chunks"
            self._ignore(option_text("enable-chunked-prefill", chunked), why, affects=not chunked)
        if (policy := self._take("scheduling-policy")) is not None:
            usual = policy == "fcfs"
            why = "vLLM's default" if usual else "not modelled: requests by priority"
            self._ignore(option_text("scheduling-policy", policy), why, affects=not usual)

    def _captured(self, sizes: Any, settings: dict[str, Any]) -> None:
        name, flag = LARGEST_CAPTURE, "cudagraph-capture-sizes"
        given = sizes if isinstance(sizes, (list, tuple)) else [sizes]
        whole = [int(str(one)) for one in given if re.fullmatch(r"\d{1,7}", str(one))]
        if len(whole) != len(given) or not whole:
            raise InputError(f"'{' '.join(map(str, given))}' are not whole numbers", where=f"--{flag}")
        settings.setdefault(name, _setting(flag, name, str(max(whole))))
        why = f"the largest, {max(whole)}, acts; vLLM's usual sizes are taken below it"
        self._ignore(f"--{flag} {' '.join(map(str, given))}", why, affects=False)

    def _quantization_config(self, settings: dict[str, Any]) -> None:
        flag, name = "quantization-config", "moe_activation"
        given = self._take(flag)
        if given is None:
            return
        inside = dict(given) if isinstance(given, dict) else {}
        moe = inside.get("moe")
        if isinstance(moe, dict) and set(inside) == {"moe"} and set(moe) == {"activation"}:
            settings[name] = _setting(f"{flag}.moe.activation", name, str(moe["activation"]))
            return
        self._ignore(option_text(flag, given), "not modelled: formats by layer", affects=True)

    def _checked_version(self) -> str:
        if _VERSION.search(self.command.image) and not self.version:
            why = f"the figures are those of vLLM {MEASURED}"
            self._ignore(f"image {self.command.image}", why, affects=True)
        return self.version

    def _devices(self) -> int:
        given = self.command.environment
        for name in (CUDA.visible, ROCM.visible, XPU.visible):
            text = given.get(name, "")
            if text and not isinstance(text, Variable):
                return len([one for one in text.split(",") if one.strip()])
        return 0

    def _left(self) -> Iterator[IgnoredOption]:
        for name, value in self.read.values.items():
            unused = self.table.unused[name]
            yield IgnoredOption(option=option_text(name, value), why=unused.why, affects=unused.affects)
        for word in self.read.handed_on:
            yield IgnoredOption(option=word, why="what the script is called with is not known", affects=True)
        for name, value in self.command.environment.items():
            if name.startswith("VLLM_"):
                why = "not modelled: what environment variables of vLLM change"
                yield IgnoredOption(option=f"{name}={value}", why=why, affects=True)


def _text(flag: str, value: Value) -> str:
    """A value that acts, and so has to be known."""
    if isinstance(value, Variable):
        raise unset(value, f"--{flag}")
    if not isinstance(value, str):
        raise InputError(f"'{value}' is not a single value", where=f"--{flag}")
    return value


def _plain(flag: str, value: Value | None) -> str:
    return "" if value is None else _text(flag, value)


def _setting(flag: str, name: str, value: Value) -> Any:
    """A setting of a flag; what is wrong with it is said of the flag."""
    if isinstance(value, bool):
        return value
    text = _text(flag, value)
    if name in HUMAN:
        text = _human(text, flag)
    try:
        return parsed(BY_NAME[name], text)
    except GnomonError as error:
        error.where = f"--{flag}"
        raise


def _human(text: str, flag: str) -> str:
    """`1k` is 1,000 and `1K` 1,024, as vLLM has it (`human_readable_int`)."""
    found = _SUFFIXED.fullmatch(text.strip())
    if not found:
        return text
    number, suffix = found.groups()
    power = _POWERS[suffix.lower()]
    if suffix.islower():
        return str(int(float(number) * 1000**power))
    if "." in number:
        hint = f"Did you mean {number}{suffix.lower()}?"
        raise InputError(f"'{text}': a binary suffix takes whole numbers", where=f"--{flag}", hint=hint)
    return str(int(number) * 1024**power)
