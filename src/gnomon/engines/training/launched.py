"""What a command that launches training starts: the program behind torchrun, `deepspeed`, `accelerate launch`, `srun`
or `python`, its arguments, and on how many chips."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnomon.engines.operations import Variable

TORCHRUN, DEEPSPEED, ACCELERATE, PYTHON, SHELL = "torchrun", "deepspeed", "accelerate", "python", "sh"
TRL = "trl"
"""The command of Hugging Face's TRL, which starts a trainer of its own."""
_MODULES = {
    "torch.distributed.run": TORCHRUN,
    "torch.distributed.launch": TORCHRUN,
    "deepspeed.launcher.runner": DEEPSPEED,
    "accelerate.commands.launch": ACCELERATE,
}
_SWITCHES = {
    TORCHRUN: ("standalone", "no-python", "run-path", "use-env", "logs-specs"),
    DEEPSPEED: ("force-multi", "no-ssh", "no-ssh-check", "no-python", "no-local-rank", "enable-each-rank-log",
                "bind-cores-to-rank", "elastic-training"),
    ACCELERATE: ("multi-gpu", "use-fsdp", "use-deepspeed", "use-megatron-lm", "use-parallelism-config", "cpu", "tpu",
                 "same-network", "quiet", "debug", "no-python", "enable-cpu-affinity", "use-mps-device",
                 "dynamo-use-fullgraph", "dynamo-use-dynamic", "downcast-bf16", "tpu-use-cluster", "use-xpu"),
}  # fmt: skip
"""Options of launchers that take no value; `-m` and `--module` say that a module follows."""
_NODES = ("nnodes", "num-nodes", "num-machines")
_EACH = ("nproc-per-node", "num-gpus")
_ALL = ("num-processes",)
_INTERPRETER = re.compile(r"python(?:3(?:\.\d+)?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedProgram:
    """A program of a training run. What only a shell knows is a `Variable`."""

    program: str
    """The path of a script, or the name of a module."""
    arguments: tuple[str, ...] = ()
    launcher: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the launcher, without dashes, underscores as dashes; switches have an empty value."""
    nodes: int = 0
    """0 where nothing says so."""
    per_node: int = 0
    """Processes of a node; 0 where nothing says so."""
    ranks: int = 0
    """Processes in all; 0 where nothing says so."""
    alone: bool = False
    """Whether it is one process where nothing says how many: Python's own, that nothing else starts."""
    environment: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Of a configuration file that stands alone, its fields."""
    place: str = ""
    """The configuration file itself."""

    @property
    def name(self) -> str:
        """The program's own name, without its folder."""
        return self.program.rpartition("/")[2]


def launched_program(words: Sequence[str], environment: Mapping[str, str], tasks: int) -> LaunchedProgram | None:
    """The program that a command line launches: one that Python runs, or another script. `tasks` is what `srun` or
    `mpirun` start of it, 0 or 1 where they are not there."""
    found = _launcher(words)
    if found is None:
        at = next((place for place, word in enumerate(words) if word.endswith(".sh")), -1)
        if at < 0:
            return None
        return LaunchedProgram(
            program=words[at],
            arguments=tuple(words[at + 1 :]),
            launcher=SHELL,
            nodes=tasks if tasks > 1 else 1,
            environment=environment,
        )
    launcher, rest = found
    options, rest, module = _options(launcher, rest)
    if not rest:
        return None
    nodes, per_node, ranks = _counts(launcher, options, environment, tasks)
    return LaunchedProgram(
        program=rest[0] if not module else str(module),
        arguments=tuple(rest if module else rest[1:]),
        launcher=launcher,
        options=options,
        nodes=nodes,
        per_node=per_node,
        ranks=ranks,
        alone=launcher == PYTHON and tasks == 1 and not ranks and "WORLD_SIZE" not in environment,
        environment=environment,
    )


def _launcher(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The launcher of a command, and what stands behind it: the first, or the first that is no option's value, as the
    name of a job may be one."""
    found = [at for at in range(len(words)) if _launched_by(words, at)]
    plain = [at for at in found if not at or not words[at - 1].startswith("-") or "=" in words[at - 1]]
    return _launched_by(words, (plain or found)[0]) if found else None


def _launched_by(words: Sequence[str], at: int) -> tuple[str, list[str]] | None:
    """The launcher that stands at one place of a command."""
    name, behind = words[at].rpartition("/")[2], list(words[at + 1 :])
    if name in (TORCHRUN, DEEPSPEED):
        return name, behind
    if name == "accelerate-launch" or (name == ACCELERATE and behind[:1] == ["launch"]):
        return ACCELERATE, behind[1:] if name == ACCELERATE else behind
    if name == TRL:
        return TRL, list(words[at:])
    if _INTERPRETER.fullmatch(name):
        flags = next((place for place, one in enumerate(behind) if not one.startswith("-")), 0)
        named = _MODULES.get(behind[flags]) if flags and behind[flags - 1] == "-m" else None
        return (named, behind[flags + 1 :]) if named else (PYTHON, behind)
    return None


def _options(launcher: str, words: list[str]) -> tuple[dict[str, str], list[str], str]:
    """A launcher's options, the words behind them, and the module where one follows."""
    options: dict[str, str] = {}
    switches = _SWITCHES.get(launcher, ())
    at = 0
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        at += 1
        if word in ("-m", "--module"):
            options["module"] = ""
        elif equals:
            options[name] = Variable(value) if isinstance(word, Variable) else value
        elif launcher == PYTHON or name in switches:
            options[name] = ""
        else:
            options[name] = words[at] if at < len(words) else ""
            at += 1
    rest = words[at:]
    if "module" in options and rest:
        return options, rest[1:], rest[0]
    return options, rest, ""


def _counts(
    launcher: str, options: Mapping[str, str], environment: Mapping[str, str], tasks: int
) -> tuple[int, int, int]:
    """Nodes, processes of each, and processes in all; 0 what is not said."""
    nodes, each, every = (_number(options, names) for names in (_NODES, _EACH, _ALL))
    if launcher == PYTHON:
        return 0, 0, tasks if tasks != 1 else _world(environment)
    if launcher == DEEPSPEED and not each and (listed := options.get("include", "")):
        each = _included(listed)
    if not nodes and not any(name in options for name in _NODES):
        nodes = max(tasks, 1) if tasks else (1 if launcher != DEEPSPEED or "hostfile" not in options else 0)
    if not nodes and tasks > 1:
        nodes = tasks
    if launcher == TORCHRUN and not each and not any(name in options for name in _EACH):
        each = 1
    return nodes, each or (every // nodes if nodes and every else 0), every or nodes * each


def _world(environment: Mapping[str, str]) -> int:
    """`WORLD_SIZE`; 0 where it is not set to a number."""
    given = environment.get("WORLD_SIZE", "")
    return int(given) if re.fullmatch(r"\d{1,6}", str(given)) and not isinstance(given, Variable) else 0


def _number(options: Mapping[str, str], names: Sequence[str]) -> int:
    for name in names:
        value = options.get(name, "")
        if not isinstance(value, Variable) and re.fullmatch(r"\d{1,6}", value):
            return int(value)
    return 0


def _included(text: str) -> int:
    """Chips of one host in `host:0,1,2,3`; all of several have to be as many."""
    hosts = [part.partition(":")[2] for part in text.split("@")]
    counts = {len(host.split(",")) for host in hosts if host}
    return counts.pop() if len(counts) == 1 and not isinstance(text, Variable) else 0
