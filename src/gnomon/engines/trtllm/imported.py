"""A command of `trtllm-serve` or `trtllm-bench`, with the YAML it reads, as a plan's degrees, formats and settings.
Every flag and field acts, is listed as ignored with the reason, or is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gnomon.engines.command_line import ReadArguments, Value, option_text, read_arguments, shown
from gnomon.engines.imported import COMPUTE, WIDE, CommandImport, Launchers, setting, single
from gnomon.engines.operations import CommandNames, EngineCommand, ImportedCommand
from gnomon.engines.trtllm import ENGINE
from gnomon.engines.trtllm.arguments import (
    BENCH,
    BENCH_FIELDS,
    BENCH_UNUSED,
    CHOICES,
    FIELDS,
    FLAGS_ALONE,
    GROUPS,
    REFUSED_ABOVE_ONE,
    SERVE,
    SERVE_FIELDS,
    SETTINGS,
    TITLE,
    UNUSED,
    WORKER,
    WORKER_FIELDS,
    WORKER_UNUSED,
)
from gnomon.engines.trtllm.launch import FIRST_PORT
from gnomon.engines.trtllm.options import BY_NAME, parsed
from gnomon.engines.trtllm.overheads import BENCH as CALLED
from gnomon.engines.trtllm.overheads import SERVE as SERVED
from gnomon.engines.trtllm.platforms import VISIBLE
from gnomon.engines.trtllm.roles import DISAGGREGATED, DYNAMO_MODULE, GRAPH_ROLE
from gnomon.errors import InputError, unknown_name
from gnomon.spec import Model, Strategy
from gnomon.spec.plan import BOTH, DECODE, PREFILL

IMAGES = ("nvidia/tensorrt-llm/release", "tensorrt-llm/release", "tensorrt_llm")
JOINING = ("trtllm-llmapi-launch",)
"""TensorRT-LLM's launcher for MPI: its first rank runs the server, all others work for it."""
SERVER = Launchers(
    programs={SERVED: ()}, modules=("tensorrt_llm.commands.serve",), scripts=("tensorrt_llm/commands/serve.py",),
    images=IMAGES, entry_point=False, joining=JOINING,
)  # fmt: skip
BENCHMARK = Launchers(
    programs={CALLED: ()}, modules=("tensorrt_llm.commands.bench",), scripts=("tensorrt_llm/commands/bench.py",),
    images=IMAGES, entry_point=False, joining=JOINING,
)  # fmt: skip
GRAPH = Launchers(programs={}, modules=(DYNAMO_MODULE,), scripts=(), images=(), entry_point=False)
OTHER_SERVERS = ("mm_embedding_serve", "grpc", "disaggregated_mpi_worker")
SERVER_ROLES = {"context": PREFILL, "generation": DECODE}
"""Of `ServerRole`, which also has encoders of images."""
GRAPH_ROLES = {"agg": BOTH, "pd": BOTH, "prefill_and_decode": BOTH, PREFILL: PREFILL, DECODE: DECODE}
"""What workers of Dynamo do beside encoding images."""
TRANSFER = {"backend": "DEFAULT"}
RUNS = ("throughput", "latency")
BACKENDS = ("pytorch", "tensorrt", "trt", "_autodeploy")
CACHES = {"auto": "", "fp8": "fp8", "bfloat16": "bf16", "float16": "fp16"}
NO_GRAPHS = {"cuda_graph_max_batch_size": 0}
OFF = "cuda_graph_config"
"""Null in a file where no step is captured."""
IN_FILES = FIELDS - FLAGS_ALONE


def own_command(words: Sequence[str], image: str = "") -> EngineCommand | None:
    """TensorRT-LLM's part of a command line."""
    for program, launchers in ((CALLED, BENCHMARK), (DYNAMO_MODULE, GRAPH)):
        found = launchers.own(words, image)
        if found is not None:
            return replace(found, program=program)
    served = SERVER.own(words, image)
    return None if served and served.arguments[:1] == (DISAGGREGATED,) else served


def config_command(fields: Mapping[str, Any]) -> EngineCommand | None:
    """A file for `--extra_llm_api_options`: most of its fields are those of LlmArgs."""
    known = sum(str(key) in IN_FILES or key in GROUPS for key in fields)
    if not known or 2 * known < len(fields):
        return None
    return EngineCommand(arguments=(), fields=fields, known=known)


def import_command(command: EngineCommand, names: CommandNames) -> ImportedCommand:
    words = list(command.arguments)
    if command.program == DYNAMO_MODULE:
        return _Import.of(read_arguments(words, WORKER), command, names, WORKER_FIELDS).made(SERVED)
    if command.program == CALLED:
        return _Import.of(_benchmark(words), command, names, BENCH_FIELDS).made(CALLED)
    words = words[1:] if words[:1] == ["serve"] else words
    if words and words[0] in OTHER_SERVERS:
        raise InputError(f"trtllm-serve {words[0]} is not read", hint="Import the command of one server.")
    return _Import.of(read_arguments(words, SERVE), command, names, SERVE_FIELDS).made(SERVED)


def _benchmark(words: Sequence[str]) -> ReadArguments:
    """The words behind `trtllm-bench`; the one that is no flag says what it runs."""
    read = read_arguments(words, BENCH)
    run, read.model = read.model, ""
    if run not in RUNS:
        raise InputError(f"trtllm-bench {run or 'alone'} starts no engine", hint=f"{' and '.join(RUNS)} do.")
    return read


@dataclass(slots=True)
class _Import(CommandImport):
    """Fields that are taken one after another; what is left has no effect on a plan."""

    flags: dict[str, str] = field(default_factory=dict)
    """The flag that says a field, where it is not the file."""

    @classmethod
    def of(
        cls, read: ReadArguments, command: EngineCommand, names: CommandNames, renamed: Mapping[str, str]
    ) -> _Import:
        """Flags as the fields that they set. A file comes before them, as in TensorRT-LLM."""
        config = read.values.pop("config", None)
        file = "" if config is None else single("--config", config)
        given = names.config(file) if file else command.fields
        said = {renamed.get(flag, flag): (flag, value) for flag, value in read.values.items()}
        read.values = {name: value for name, (_, value) in said.items()}
        made = cls(read, command, names, {**BENCH_UNUSED, **WORKER_UNUSED, **UNUSED})
        made.flags = {name: flag for name, (flag, _) in said.items()}
        for name, value in _flat(given, file).items():
            before = read.values.get(name)
            if before is not None and before != value:
                made.ignore(made.option(name, before), f"the YAML says {shown(value)}, and it wins", affects=False)
            read.values[name] = value
            made.flags.pop(name, None)
        return made

    def where(self, flag: str) -> str:
        return f"--{self.flags[flag]}" if flag in self.flags else flag

    def option(self, flag: str, value: Value) -> str:
        if flag in self.flags:
            return option_text(self.flags[flag], value)
        return f"{flag}: {str(value).lower() if isinstance(value, bool) else shown(value)}"

    def made(self, served_by: str) -> ImportedCommand:
        if served_by == CALLED:
            self._bench()
        name = self.model("model", "trtllm-serve MODEL …")
        model = self.names.model(name)
        self._refuse()
        strategy = self._degrees()
        (role, handover), port = self._role(), self.port(FIRST_PORT)
        settings = self._settings()
        settings |= {"served_by": served_by} if served_by != SERVED else {}
        return ImportedCommand(
            model=name,
            strategy=strategy,
            dtype=self._weights(model),
            kv_dtype=self._cache(),
            settings=settings,
            version=self.version(ENGINE.title, ENGINE.versions[-1]),
            nodes=1,
            worker=False,
            devices=self.devices((VISIBLE,)),
            ignored=(*self.ignored, *self.left(ENGINE.title, ("TRTLLM_", "TLLM_"))),
            role=role,
            port=port,
            handover=handover,
        )

    def _bench(self) -> None:
        """What `trtllm-bench` says in words of its own, and sets where it is not told otherwise
        (`tensorrt_llm/bench/benchmark/utils/general.py: get_settings`, `ExecutorSettingsConfig`)."""
        values, engine = self.read.values, self.text("engine_dir")
        if engine:
            raise InputError("an engine of the TensorRT backend is not priced", where="--engine_dir")
        folder = self.text("model_path")
        if folder:
            self.ignore(f"--model_path {folder}", "the model's name says which network it is", affects=False)
        cut, whole = self.take("enable_chunked_context"), self.take("disable_chunked_context")
        if cut and whole:
            raise InputError("prompts are both cut and not cut", where="--enable_chunked_context")
        if cut:
            values.setdefault("enable_chunked_prefill", True)
        elif not whole and "enable_chunked_prefill" not in values:
            why = "versions of trtllm-bench differ in whether they cut long prompts; here none is cut"
            self.ignore("--enable_chunked_context", why, affects=True)
        policy = self.text("scheduler_policy")
        if policy:
            values.setdefault("scheduler_config.capacity_scheduler_policy", policy.upper())
        values.setdefault("kv_cache_config.enable_block_reuse", False)
        largest = values.get("max_batch_size")
        graphs = any(name.startswith("cuda_graph_config") for name in values)
        if not graphs and isinstance(largest, str):
            values |= {"cuda_graph_config.max_batch_size": largest, "cuda_graph_config.enable_padding": True}
        for name in ("max_batch_size", "max_num_tokens", "max_seq_len"):
            if name not in values:
                why = "trtllm-bench finds it from the dataset; the plan takes TensorRT-LLM's default"
                self.ignore(f"--{name}", why, affects=True)

    def _refuse(self) -> None:
        """What would make another deployment of it than a plan can say."""
        backend = self.text("backend") or BACKENDS[0]
        if backend not in BACKENDS:
            raise unknown_name("backend", backend, BACKENDS, where=self.where("backend"))
        if backend != BACKENDS[0]:
            message = f"the figures are those of the PyTorch backend, not of {backend}"
            raise InputError(message, where=self.where("backend"), hint="Leave it out, or say pytorch.")
        for name, why in REFUSED_ABOVE_ONE.items():
            if self.whole(name, 1) > 1:
                raise InputError(why, where=self.where(name), hint="Leave it out.")

    def _role(self) -> tuple[str, str]:
        """What a server of a pool does, and the option by which it hands KV caches over where only its router says
        what it does."""
        name, own = "server_role", self.text("server_role").lower()
        if own not in ("", *SERVER_ROLES):
            raise unknown_name("role", own, tuple(SERVER_ROLES), where=self.where(name))
        mode = self.text(GRAPH_ROLE.lstrip("-"))
        if mode not in ("", *GRAPH_ROLES):
            raise unknown_name("mode", mode, tuple(GRAPH_ROLES), where=GRAPH_ROLE)
        role = SERVER_ROLES.get(own) or GRAPH_ROLES.get(mode, BOTH)
        value, name = self.take("cache_transceiver_config"), "cache_transceiver_config"
        if value is None:
            return role, ""
        option = self.option(name, value)
        if not isinstance(value, dict) or not value.get("backend"):
            self.ignore(option, "nothing is sent without a backend", affects=False)
            return role, ""
        if value != TRANSFER:
            self.ignore(option, "not modelled: another way to send KV caches than TensorRT-LLM's default", affects=True)
        return role, option if not mode else ""

    def _degrees(self) -> Strategy:
        tp, pp = self.whole("tensor_parallel_size", 1), self.whole("pipeline_parallel_size", 1)
        cut = self.whole("moe_tensor_parallel_size", 0)
        if cut and tp % cut:
            message = f"{cut} ranks do not divide the {tp} of tensor_parallel_size"
            raise InputError(message, where=self.where("moe_tensor_parallel_size"))
        ep = self.whole("moe_expert_parallel_size", tp // cut if cut else 1)
        if cut and cut * ep != tp:
            message = f"{cut} x {ep} ranks of experts are not the {tp} of tensor_parallel_size"
            raise InputError(message, where=self.where("moe_tensor_parallel_size"))
        shared = _switch(self.take("enable_attention_dp"), "enable_attention_dp")
        return Strategy(tp=1 if shared else tp, pp=pp, dp=tp if shared else 1, ep=ep)

    def _weights(self, model: Model) -> str:
        dtype = self.text("dtype")
        if dtype not in ("", "auto", *COMPUTE):
            raise unknown_name("format", dtype, ("auto", *COMPUTE), where="dtype")
        if self.names.dtype or model.dtype not in WIDE:
            return self.names.dtype or model.dtype
        return COMPUTE.get(dtype, "bf16" if model.dtype == "fp32" else model.dtype)

    def _cache(self) -> str:
        name = "kv_cache_config.dtype"
        text = self.text(name) or "auto"
        if text == "nvfp4":
            raise InputError("a cache in nvfp4 is not modelled", where=name)
        if text not in CACHES:
            raise unknown_name("format of the cache", text, (*CACHES, "nvfp4"), where=name)
        return CACHES[text]

    def _settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.take("cuda_graph_config") is not None:
            found |= NO_GRAPHS
        for path, name in SETTINGS.items():
            value = self.take(path)
            if value is None or (path in CHOICES and not self._priced(path, name, value)):
                continue
            if name in NO_GRAPHS and value == "0":
                continue  # TensorRT-LLM's own default, which is not zero
            found[name] = setting(self.where(path), _plain(value), partial(parsed, BY_NAME[name]))
        return found

    def _priced(self, path: str, name: str, value: Value) -> bool:
        """Whether a choice of TensorRT-LLM's is one that Gnomon has figures for."""
        text = single(self.where(path), value)
        if text in BY_NAME[name].choices:
            return True
        if text not in CHOICES[path]:
            raise unknown_name("value", text, CHOICES[path], where=self.where(path))
        self.ignore(self.option(path, value), f"not modelled: priced as {BY_NAME[name].default}", affects=True)
        return False


def _plain(value: Value) -> Value:
    """A list as the text that a setting takes."""
    return " ".join(value) if isinstance(value, tuple) else value


def _switch(value: Value | None, where: str) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InputError(f"'{shown(value)}' is not true or false", where=where)


def _flat(fields: Mapping[str, Any], file: str) -> dict[str, Value]:
    """The fields of a file by their paths, each as a flag's value would be; what is null is not said, but for CUDA
    graphs, which it switches off."""
    found: dict[str, Value] = {}
    for key, value in fields.items():
        name = str(key)
        if name in GROUPS and isinstance(value, Mapping):
            found |= _flat({f"{name}.{inner}": one for inner, one in value.items()}, file)
            continue
        if name in GROUPS and not (value is None and name == OFF):
            raise InputError("holds no fields of its own", where=name, hint="It is a mapping.")
        if name not in IN_FILES:
            raise unknown_name(f"field of {TITLE}'s LlmArgs", name, sorted(IN_FILES), where=file)
        if value is not None or name == OFF:
            found[name] = _value(value)
    return found


def _value(value: Any) -> Value:
    if isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): one for key, one in value.items()}
    if isinstance(value, list):
        return tuple(map(str, value))
    return "" if value is None else str(value)
