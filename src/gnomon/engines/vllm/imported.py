"""A `vllm serve` command read back as a plan's degrees, formats and settings. Every flag acts, is listed as ignored
with the reason, or is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gnomon.engines.command_line import Value, config_words, option_text
from gnomon.engines.imported import (
    CommandImport,
    HumanNumbers,
    Launchers,
    SettingReader,
    named_version,
    single,
    sizes,
)
from gnomon.engines.operations import CommandNames, EngineCommand, ImportedCommand
from gnomon.engines.vllm import ENGINE, MEASURED
from gnomon.engines.vllm.arguments import ACTING, DEGREES, SETTINGS, TABLE
from gnomon.engines.vllm.command_line import read_arguments
from gnomon.engines.vllm.imported_drafts import draft_settings
from gnomon.engines.vllm.later_arguments import ReleaseFlags, most_known, release_flags
from gnomon.engines.vllm.launch import FIRST_PORT
from gnomon.engines.vllm.offloaders import RUNNER_VARIABLE
from gnomon.engines.vllm.offloaders import SETTINGS as OFFLOADING
from gnomon.engines.vllm.options import BY_NAME, parsed
from gnomon.engines.vllm.platforms import CUDA, ROCM, XPU
from gnomon.engines.vllm.releases import RELEASES, release
from gnomon.engines.vllm.roles import (
    DYNAMO_MODULE,
    GRAPH_ROLE,
    SIDE_CHANNEL,
    graph_role,
    role_of,
    without_graph_words,
)
from gnomon.errors import InputError, unknown_name
from gnomon.spec import Model, Strategy
from gnomon.spec.plan import BOTH, DECODE, PREFILL

LAUNCHERS = Launchers(
    programs={"vllm": ("serve",)},
    modules=(
        "vllm.entrypoints.openai.api_server",
        "vllm.entrypoints.cli.main",
        "vllm.entrypoints.api_server",
        DYNAMO_MODULE,
    ),
    scripts=("vllm/entrypoints/openai/api_server.py",),
    images=("vllm-openai", "vllm-openai-rocm", "vllm-openai-xpu"),
    entry_point=True,
)
HOST_CACHES = ("native", "lmcache")
"""What `--kv-offloading-backend` takes, vLLM's default first, which is the one priced."""
LARGEST_CAPTURE = "max_cudagraph_capture_size"
_setting = SettingReader(
    parsed=lambda name, text: parsed(BY_NAME[name], text),
    numbers=HumanNumbers(decimal=("k", "m", "g", "t"), binary=("K", "M", "G", "T"), exact=False),
    human=("max_model_len", "max_num_batched_tokens"),
)
"""`32k` is 32,000 and `32K` 32,768, as vLLM has it."""


def own_command(words: Sequence[str], image: str = "") -> EngineCommand | None:
    """vLLM's part of a command line; of a container of vLLM's own image, all of it."""
    found = LAUNCHERS.own(words, image)
    if found is None or DYNAMO_MODULE not in words:
        return found
    role = graph_role(found.arguments)
    return replace(found, arguments=tuple(without_graph_words(found.arguments)), program=role)


def config_command(fields: Mapping[str, Any]) -> EngineCommand | None:
    """A file for `vllm serve --config`: most of its fields are flags."""
    known = most_known(map(str, fields))
    if not known or 2 * known < len(fields):
        return None
    return EngineCommand(arguments=tuple(config_words(fields, TABLE)), known=known)


def import_command(command: EngineCommand, names: CommandNames) -> ImportedCommand:
    flags = release_flags(named_version(command.image, tuple(RELEASES)) or MEASURED)
    table = flags.table
    read = read_arguments(command.arguments, table)
    config = read.values.pop("config", None)
    if config is not None:
        read = read_arguments(config_words(names.config(single("--config", config)), table), table).below(read)
    return _Import(read, command, names, flags.unused, flags=flags).made()


@dataclass(slots=True)
class _Import(CommandImport):
    """Flags that are taken one after another; what is left has no effect on a plan."""

    flags: ReleaseFlags = field(kw_only=True)

    def made(self) -> ImportedCommand:
        name = self.model("model", "vllm serve MODEL …")
        model = self.names.model(name)
        degrees = {degree: self.whole(flag, 1) for flag, degree in DEGREES.items()}
        dtype, quantization = (self.take(flag) for flag in ("dtype", "quantization"))
        nodes, worker = self._layout(degrees["dp"])
        expert = self.take("enable-expert-parallel") is True
        self._refuse_context()
        tp, pp, dp, cp = (degrees[name] for name in ("tp", "pp", "dp", "cp"))
        strategy = Strategy(tp=tp, pp=pp, dp=dp, cp=cp, ep=tp * dp if expert else 1)
        settings = self._settings()
        self._beside(settings)
        read = (SIDE_CHANNEL, *self._offloading(settings, model))
        settings |= draft_settings(self, self.flags.drafts)
        role = self._role()
        kv_dtype, note = self.flags.formats.cache(self.text("kv-cache-dtype"))
        if note:
            self.ignore(option_text("kv-cache-dtype", note), "priced as fp8", affects=True)
        return ImportedCommand(
            model=name,
            strategy=strategy,
            dtype=self.flags.formats.weights(
                _plain("dtype", dtype), _plain("quantization", quantization), model, self.names.dtype
            ),
            kv_dtype=kv_dtype,
            settings=settings,
            version=self.version(ENGINE.title, MEASURED, *RELEASES),
            nodes=nodes,
            worker=worker,
            devices=self.devices((CUDA.visible, ROCM.visible, XPU.visible)),
            ignored=(*self.ignored, *self.left(ENGINE.title, ("VLLM_",), read)),
            role=role,
            port=self.port(FIRST_PORT),
        )

    def _layout(self, dp: int) -> tuple[int, bool]:
        """The nodes of a replica, and whether this process only works for another one of it."""
        nodes, local = self.whole("nnodes", 1), self.whole("data-parallel-size-local", dp)
        worker = self.take("headless") is True
        for flag in ("node-rank", "data-parallel-rank", "data-parallel-start-rank"):
            worker = self.rank(flag)[0] or worker
        for flag in ("data-parallel-hybrid-lb", "data-parallel-external-lb"):
            if self.take(flag) is True:
                self.ignore(f"--{flag}", "not modelled: who assigns requests to data-parallel ranks", affects=True)
        if dp % local or local > dp:
            raise InputError(
                f"{local} is not a share of the {dp} data-parallel ranks", where="--data-parallel-size-local"
            )
        return max(nodes, dp // local), worker

    def _role(self) -> str:
        """What a server of a pool does, by what it does with KV caches; another use of them is not modelled."""
        role, told = role_of(self.read.values.get("kv-transfer-config")), self.command.program
        if role:
            self.take("kv-transfer-config")
        if role and told in (PREFILL, DECODE) and told != role:
            message = f"Dynamo starts the worker for {told}, and its KV transfer is that of {role}"
            raise InputError(message, where=GRAPH_ROLE, hint="Give it one of the two roles.")
        return role or (told if told in (PREFILL, DECODE) else BOTH)

    def _refuse_context(self) -> None:
        flag = "prefill-context-parallel-size"
        if self.whole(flag, 1) > 1:
            raise InputError("context parallelism of prompts is not modelled", where=f"--{flag}")

    def _settings(self) -> dict[str, Any]:
        self._adapters()
        found: dict[str, Any] = {}
        for flag, name in SETTINGS.items():
            value = self.take(flag) if flag in ACTING else None
            if value is None:
                continue
            if flag in self.flags.choices and not self._priced(flag, name, value):
                continue
            if name == "max_model_len" and str(value).lower() in ("auto", "-1"):
                why = "vLLM takes the longest that fits; the plan takes the model's own"
                self.ignore(option_text(flag, value), why, affects=True)
                continue
            found[name] = _setting(flag, name, value)
        return found

    def _priced(self, flag: str, name: str, value: Value) -> bool:
        """Whether a choice of vLLM's is one that Gnomon has figures for."""
        text, choices = single(f"--{flag}", value), self.flags.choices[flag]
        if text not in choices:
            raise unknown_name("value", text, choices, where=f"--{flag}")
        if text in BY_NAME[name].choices:
            return True
        self.ignore(option_text(flag, value), f"not modelled: priced as {BY_NAME[name].default}", affects=True)
        return False

    def _beside(self, settings: dict[str, Any]) -> None:
        """Flags that say a setting in other words."""
        self._quantization_config(settings)
        config = self.take("compilation-config") or {}
        captured = self.take("cudagraph-capture-sizes")
        if isinstance(config, dict):
            inside = dict(config)
            captured = captured or inside.pop("cudagraph_capture_sizes", None)
            if (most := inside.pop(LARGEST_CAPTURE, None)) is not None:
                settings.setdefault(LARGEST_CAPTURE, _setting("compilation-config", LARGEST_CAPTURE, str(most)))
            config = inside
        if config:
            self.ignore(
                option_text("compilation-config", config), "not modelled: how graphs are compiled", affects=True
            )
        if captured:
            self._captured(captured, settings)
        if (level := self.take("optimization-level")) is not None:
            usual = str(level).lower().lstrip("o") == "2"
            why = "vLLM's default" if usual else "not modelled: how graphs are compiled"
            self.ignore(option_text("optimization-level", level), why, affects=not usual)
        if (chunked := self.take("enable-chunked-prefill")) is not None:
            why = "vLLM's default" if chunked else "not modelled: prompts that are never cut into chunks"
            self.ignore(option_text("enable-chunked-prefill", chunked), why, affects=not chunked)
        self._host_cache(settings)

    def _offloading(self, settings: dict[str, Any], model: Model) -> tuple[str, ...]:
        """Weights on the host, which a release may keep there on its first model runner alone; the variable that then
        decides whether it does."""
        given = [name for name in OFFLOADING if name in settings]
        of, runner = (
            release(named_version(self.command.image, tuple(RELEASES)) or MEASURED),
            self.command.environment.get(RUNNER_VARIABLE),
        )
        second = of.second_runner is None or model.family in of.second_runner if runner is None else runner != "0"
        if of.second_offloads or not given:
            return ()
        why = f"{of.title} ignores it on its second model runner, which it takes here: {RUNNER_VARIABLE}=0 is not set"
        for name in given if second else ():
            value = settings.pop(name)
            text = f"{value:g}" if isinstance(value, float) else str(value)
            self.ignore(option_text(name.replace("_", "-"), text), why, affects=False)
        return (RUNNER_VARIABLE,)

    def _adapters(self) -> None:
        """Sizes of adapters without `--enable-lora`, which vLLM does not look at."""
        if self.read.values.get("enable-lora") is True:
            return
        for flag in ("max-loras", "max-lora-rank", "max-cpu-loras"):
            if (value := self.take(flag)) is not None:
                self.ignore(option_text(flag, value), "there are no adapters without --enable-lora", affects=False)

    def _host_cache(self, settings: dict[str, Any]) -> None:
        flag = "kv-offloading-backend"
        backend = self.text(flag)
        if backend not in ("", *HOST_CACHES):
            raise unknown_name("backend", backend, HOST_CACHES, where=f"--{flag}")
        if backend and (backend == HOST_CACHES[0] or not settings.get("kv_offloading_size")):
            why = (
                "vLLM's default" if backend == HOST_CACHES[0] else "nothing is kept there without --kv-offloading-size"
            )
            self.ignore(option_text(flag, backend), why, affects=False)
        elif backend:
            self.ignore(option_text(flag, backend), f"not modelled: priced as {HOST_CACHES[0]}", affects=True)

    def _captured(self, given: Any, settings: dict[str, Any]) -> None:
        name, flag = LARGEST_CAPTURE, "cudagraph-capture-sizes"
        whole = sizes(f"--{flag}", given)
        settings.setdefault(name, _setting(flag, name, str(max(whole))))
        why = f"the largest, {max(whole)}, acts; vLLM's usual sizes are taken below it"
        self.ignore(f"--{flag} {' '.join(map(str, whole))}", why, affects=False)

    def _quantization_config(self, settings: dict[str, Any]) -> None:
        flag, name = "quantization-config", "moe_activation"
        given = self.take(flag)
        if given is None:
            return
        inside = dict(given) if isinstance(given, dict) else {}
        moe = inside.get("moe")
        if isinstance(moe, dict) and set(inside) == {"moe"} and set(moe) == {"activation"}:
            settings[name] = _setting(f"{flag}.moe.activation", name, str(moe["activation"]))
            return
        self.ignore(option_text(flag, given), "not modelled: formats by layer", affects=True)


def _plain(flag: str, value: Value | None) -> str:
    return "" if value is None else single(f"--{flag}", value)
