"""A launch command of SGLang read back as a plan's degrees, formats and settings. Every flag acts, is listed as ignored
with the reason, or is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnomon.engines.command_line import Value, config_words, known_fields, names, option_text, read_arguments
from gnomon.engines.imported import (
    CommandImport,
    HumanNumbers,
    Launchers,
    SettingReader,
    WeightFormats,
    single,
    sizes,
)
from gnomon.engines.operations import CommandNames, EngineCommand, ImportedCommand
from gnomon.engines.sglang import ENGINE
from gnomon.engines.sglang.arguments import (
    CHOICES,
    EVERYWHERE,
    OTHER_BACKENDS,
    REFUSED_ABOVE_ONE,
    SETTINGS,
    TABLE,
    UNUSED,
)
from gnomon.engines.sglang.launch import FIRST_PORT
from gnomon.engines.sglang.options import BY_NAME, parsed
from gnomon.engines.sglang.roles import DYNAMO_MODULE, TRANSFER
from gnomon.errors import InputError, unknown_name
from gnomon.spec import Model, Strategy
from gnomon.spec.plan import BOTH, DECODE, PREFILL

IMAGES = ("lmsysorg/sglang", "sglang")
SERVE = Launchers(programs={"sglang": ("serve",)}, modules=(), scripts=(), images=IMAGES, entry_point=False)
"""The one form that names the model by its place."""
LAUNCH = Launchers(
    programs={}, modules=("sglang.launch_server", DYNAMO_MODULE), scripts=("sglang/launch_server.py",), images=IMAGES,
    entry_point=False,
)  # fmt: skip
FORMATS = WeightFormats(
    made=("fp8",),
    stored=names("""
    awq mxfp8 gptq gptq_marlin awq_marlin bitsandbytes gguf modelopt modelopt_fp8 modelopt_fp4 nvfp4_online
    modelopt_mixed petit_nvfp4 w8a8_int8 w8a8_fp8 moe_wna16 w4afp8 mxfp4 auto-round auto-round-int8
    compressed-tensors modelslim mxfp_w4a8 quark quark_int4fp8_moe quark_mxfp4 mlx_q4 mlx_q8 humming"""),
    widest="fp16",
    caches={"": "", "auto": "", "bf16": "bf16", "bfloat16": "bf16", "fp8_e4m3": "fp8"},
    nearly=("fp8_e5m2",),
    other_caches=("mxfp8", "nvfp4", "fp4_mx_block16"),
)
UNQUANTIZED = "unquant"
WIDER = "gemma"
"""Models whose 32 bits SGLang computes in bf16 by default, not in fp16 (`_get_and_verify_dtype`)."""
LARGEST = "cuda_graph_max_bs"
USUAL_GRAPHS = {"decode": "full", "prefill": "breakable"}
"""The CUDA graphs that SGLang captures by default, and Gnomon prices (`default_cuda_graph_config`)."""
GRAPHS = ("full", "breakable", "disabled")
_setting = SettingReader(
    parsed=lambda name, text: parsed(BY_NAME[name], text),
    numbers=HumanNumbers(decimal=("k", "M", "G", "T"), binary=("Ki", "Mi", "Gi", "Ti"), exact=True),
    human=("context_length", "max_total_tokens", "max_prefill_tokens"),
)
"""`32k` is 32,000 and `32Ki` 32,768, as SGLang has it."""


def own_command(words: Sequence[str], image: str = "") -> EngineCommand | None:
    """SGLang's part of a command line."""
    served = SERVE.own(words, image)
    if served is None:
        return LAUNCH.own(words, image)
    given = served.arguments
    placed = bool(given) and not given[0].startswith("-")
    return replace(served, arguments=("--model-path", *given)) if placed else served


def config_command(fields: Mapping[str, Any]) -> EngineCommand | None:
    """A file for `--config`: most of its fields are flags."""
    known = known_fields(fields, TABLE)
    if not known or 2 * known < len(fields):
        return None
    return EngineCommand(arguments=tuple(config_words(fields, TABLE)), known=known)


def import_command(command: EngineCommand, names: CommandNames) -> ImportedCommand:
    read = read_arguments(command.arguments, TABLE)
    config = read.values.pop("config", None)
    if config is not None:
        fields = names.config(single("--config", config))
        read = read_arguments(config_words(fields, TABLE), TABLE).below(read)
    return _Import(read, command, names, UNUSED).made()


@dataclass(slots=True)
class _Import(CommandImport):
    """Flags that are taken one after another; what is left has no effect on a plan."""

    def made(self) -> ImportedCommand:
        name = self.model("model-path", "python -m sglang.launch_server --model-path MODEL …")
        model = self.names.model(name)
        self._refuse()
        strategy, replicas = self._degrees()
        nodes = self.whole("nnodes", 1)
        worker, any_rank = self.rank("node-rank")
        settings = self._settings()
        self._graphs(settings)
        role, port = self._role(), self.port(FIRST_PORT)
        kv_dtype, note = FORMATS.cache(self.text("kv-cache-dtype"))
        if note:
            self.ignore(option_text("kv-cache-dtype", note), "priced as fp8", affects=True)
        return ImportedCommand(
            model=name,
            strategy=strategy,
            dtype=self._weights(model),
            kv_dtype=kv_dtype,
            settings=settings,
            version=self.version(ENGINE.title, ENGINE.versions[-1]),
            nodes=nodes,
            worker=worker,
            any_rank=any_rank,
            devices=self.devices(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")),
            ignored=(*self.ignored, *self.left(ENGINE.title, ("SGLANG_", "SGL_"))),
            replicas=replicas,
            role=role,
            port=port,
        )

    def _refuse(self) -> None:
        """What would make another deployment of it than a plan can say."""
        for flag, why in REFUSED_ABOVE_ONE.items():
            if self.whole(flag, 1) > 1:
                raise InputError(why, where=f"--{flag}", hint="Leave it out.")
        kind = self.text("model-type")
        if kind not in ("", "auto", "llm"):
            raise InputError(f"a server of {kind} models is not read", where="--model-type")

    def _role(self) -> str:
        """What a server of a pool does, with the transport of KV caches that its exports name."""
        mode = self.text("disaggregation-mode")
        if mode not in ("", "null", PREFILL, DECODE):
            raise unknown_name("mode", mode, ("null", PREFILL, DECODE), where="--disaggregation-mode")
        if mode not in (PREFILL, DECODE):
            return BOTH
        if self.read.values.get("disaggregation-transfer-backend") == TRANSFER:
            self.take("disaggregation-transfer-backend")
        return mode

    def _degrees(self) -> tuple[Strategy, int]:
        """Degrees of one replica, and the replicas: `--dp-size` counts them, but for attention whose ranks share one
        server, which `--attn-dp-size` counts, or `--dp-size` with `--enable-dp-attention`."""
        tp, pp, dp, shared, ep = (
            self.whole(flag, 1) for flag in ("tp-size", "pp-size", "dp-size", "attn-dp-size", "ep-size")
        )
        if self.take("enable-dp-attention") and shared == 1:
            dp, shared = 1, dp
        if dp > 1 and shared > 1:
            message = f"{dp} replicas whose attention is data-parallel over {shared} ranks are refused by SGLang"
            raise InputError(message, where="--dp-size", hint="Start one server for each replica.")
        if tp % shared:
            raise InputError(f"{shared} ranks do not divide the {tp} of --tp-size", where="--attn-dp-size")
        backend = self.text("moe-a2a-backend")
        if backend not in ("", *EVERYWHERE, *OTHER_BACKENDS):
            raise unknown_name("value", backend, (*OTHER_BACKENDS, *EVERYWHERE), where="--moe-a2a-backend")
        if backend in EVERYWHERE:
            ep = tp
        if backend not in ("", "none"):
            why = "not modelled: tokens for experts of other ranks are priced as SGLang's default sends them"
            self.ignore(option_text("moe-a2a-backend", backend), why, affects=True)
        balanced = self.take("load-balance-method")
        if balanced is not None:
            self.ignore(option_text("load-balance-method", balanced), "the plan's router decides it", affects=dp > 1)
        return Strategy(tp=tp // shared, pp=pp, dp=shared, ep=ep), dp

    def _weights(self, model: Model) -> str:
        method = self.text("quantization")
        formats = replace(FORMATS, widest="bf16") if model.name.lower().startswith(WIDER) else FORMATS
        return formats.weights(self.text("dtype"), "" if method == UNQUANTIZED else method, model, self.names.dtype)

    def _settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for flag, name in SETTINGS.items():
            value = self.take(flag)
            if value is None or (flag in CHOICES and not self._known(flag, name, value)):
                continue
            found[name] = _setting(flag, name, value)
        return found

    def _known(self, flag: str, name: str, value: Value) -> bool:
        """Whether a choice of SGLang's is one of the setting's."""
        text = single(f"--{flag}", value)
        if text in BY_NAME[name].choices:
            return True
        if text not in CHOICES[flag]:
            raise unknown_name("value", text, CHOICES[flag], where=f"--{flag}")
        self.ignore(option_text(flag, value), f"not modelled: priced as {BY_NAME[name].default}", affects=True)
        return False

    def _graphs(self, settings: dict[str, Any]) -> None:
        """Which steps are captured, and the largest: by switches, by backends, or by one JSON value."""
        off = {phase: self._off(phase, settings) for phase in USUAL_GRAPHS}
        if off["decode"] and off["prefill"]:
            settings.pop("disable_prefill_cuda_graph", None)
            settings["disable_cuda_graph"] = True
        elif off["prefill"]:
            settings["disable_prefill_cuda_graph"] = True
        elif off["decode"]:
            why = "not modelled: CUDA graphs of steps with prompts alone; decode steps are priced with theirs"
            self.ignore(f"--{off['decode']}", why, affects=True)
        captured = self.take("cuda-graph-bs-decode")
        if captured is not None:
            self._captured("cuda-graph-bs-decode", captured, settings)

    def _off(self, phase: str, settings: dict[str, Any]) -> str:
        """What says that a phase is not captured; empty where nothing does."""
        flag, inside = f"cuda-graph-backend-{phase}", self._inside(phase, settings)
        backend = self.text(flag) or str(inside.pop("backend", ""))
        if backend not in ("", *GRAPHS):
            raise unknown_name("backend", backend, GRAPHS, where=f"--{flag}")
        if inside:
            self.ignore(f"--cuda-graph-config {phase} {inside}", "not modelled: how graphs are captured", affects=True)
        if backend not in ("", "disabled"):
            usual = backend == USUAL_GRAPHS[phase]
            why = "SGLang's default" if usual else "not modelled: how graphs are captured"
            self.ignore(f"--{flag} {backend}", why, affects=not usual)
        if phase == "decode" and self.take("disable-decode-cuda-graph"):
            return "disable-decode-cuda-graph"
        if phase == "prefill" and settings.get("disable_prefill_cuda_graph"):
            return "disable-prefill-cuda-graph"
        return f"{flag} disabled" if backend == "disabled" else ""

    def _inside(self, phase: str, settings: dict[str, Any]) -> dict[str, Any]:
        """What `--cuda-graph-config` says of one phase, without the largest decode step, which is a setting."""
        flag = "cuda-graph-config"
        given = self.read.values.get(flag)
        if given is None:
            return {}
        if not isinstance(given, dict) or not all(isinstance(one, dict) for one in given.values()):
            raise InputError("is no JSON object of the phases decode and prefill", where=f"--{flag}")
        for name in given:
            if name not in USUAL_GRAPHS:
                raise unknown_name("phase", name, USUAL_GRAPHS, where=f"--{flag}")
        inside = dict(given.get(phase, {}))
        if phase == "prefill":
            self.take(flag)
            return inside
        if (most := inside.pop("max_bs", None)) is not None:
            settings.setdefault(LARGEST, _setting(flag, LARGEST, str(most)))
        if (listed := inside.pop("bs", None)) is not None:
            self._captured(flag, listed, settings)
        return inside

    def _captured(self, flag: str, given: Any, settings: dict[str, Any]) -> None:
        whole = sizes(f"--{flag}", given)
        settings.setdefault(LARGEST, _setting(flag, LARGEST, str(max(whole))))
        why = f"the largest, {max(whole)}, acts; SGLang's usual sizes are taken below it"
        self.ignore(f"--{flag} {' '.join(map(str, whole))}", why, affects=False)
