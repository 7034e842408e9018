"""The contract of an engine, operations side: how its plans are written, started and run. Predictions never import it.

An engine's own is `operations.py` in its folder; `gnomon.engines.operations_of` finds it by the engine's name.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gnomon.spec import Model, Plan, Strategy
from gnomon.spec.imported import IgnoredOption
from gnomon.spec.plan import BOTH, ROUTERS

if TYPE_CHECKING:  # what runs an engine for real needs NumPy
    from gnomon.engines.replay import Runner


class Variable(str):
    """A word that the shell fills in; every other word is quoted."""

    __slots__ = ()


OWN_ADDRESS = Variable("$host")
"""Stands for the address by which other nodes reach a server."""


POOL_VARIABLE = "GNOMON_POOL"
"""In the environment of exported servers: the place of their pool in the plan, from 0."""


def shell_words(words: Sequence[str]) -> str:
    """Words as a shell reads them: variables in double quotes, all others as they are."""
    return " ".join(f'"{word}"' if isinstance(word, Variable) else shlex.quote(word) for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One process: the node it runs on, its chips there, its arguments and the variable that selects its chips."""

    node: int
    devices: tuple[int, ...]
    words: tuple[str, ...]
    visible: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that it needs beside."""

    @property
    def variables(self) -> dict[str, str]:
        """What shows the process its chips, where a variable is known to, and what else it needs."""
        chips = {self.visible: ",".join(map(str, self.devices))} if self.visible else {}
        return {**self.environment, **chips}

    @property
    def assignment(self) -> str:
        """Its variables as a shell reads them; empty where it has none."""
        return " ".join(f"{name}={value}" for name, value in self.variables.items())

    @property
    def command(self) -> str:
        """The words as a shell reads them; what only the node knows stays a variable."""
        return shell_words(self.words)

    @property
    def shell(self) -> str:
        return f"{self.assignment} {self.command}".lstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLayout:
    """Where replicas lie: several on a node, or one on several whole nodes."""

    replicas: int
    ranks: int
    per_node: int

    @property
    def nodes_each(self) -> int:
        """Nodes of one replica."""
        return max(1, self.ranks // self.per_node)

    @property
    def replicas_each(self) -> int:
        """Replicas of a full node."""
        return max(1, self.per_node // self.ranks)

    @property
    def nodes(self) -> int:
        return self.replicas * self.nodes_each if self.nodes_each > 1 else -(-self.replicas // self.replicas_each)

    @property
    def on_the_last(self) -> int:
        """Replicas of the last node."""
        return self.replicas - (self.nodes - 1) * self.replicas_each if self.nodes_each == 1 else 1


class Servers(Protocol):
    """All processes of a plan, node by node, each made on demand."""

    @property
    def where(self) -> NodeLayout: ...

    @property
    def visible(self) -> str:
        """The environment variable that selects the chips of a process; empty where none is known."""

    def __iter__(self) -> Iterator[Server]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One replica as a container: the image and its arguments, the device resource, and how it is probed."""

    image: str
    resource: str
    """What a pod asks Kubernetes for, one for each chip."""
    command: tuple[str, ...]
    args: tuple[str, ...]
    """With the port; as written, so that `$(NAME)` is not meant for Kubernetes."""
    weights: str
    """What the arguments name the model by: a hub id, or a folder that has to be mounted."""
    port: int
    health: str
    """The path that answers once the server does."""
    startup_probes: int
    """Probes, ten seconds apart, until a server that has not answered is started again."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the server needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReplica:
    """One replica of a pool, on one node that it may share with others."""

    plan: Plan
    """Of the pool alone."""
    role: str
    """One of `gnomon.spec.plan.ROLES`."""
    name: str
    """Of the pool, as its files are called."""
    router: str = ROUTERS[0]
    """How requests reach it; one of `gnomon.spec.plan.ROUTERS`."""
    slot: int = 0
    """Servers before it on its node."""
    devices: tuple[int, ...] = ()
    reached: bool = False
    """Whether it is reached from other nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolServer:
    """The process of one replica of a pool."""

    words: tuple[str, ...]
    program: int
    """Words that name the program."""
    port: int
    handover_port: int = 0
    """Where a prefill server is asked for KV caches, if a router has to know it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """A value may be `OWN_ADDRESS`."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What it reads from its working folder, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a router finds one server."""

    role: str
    host: str
    """A `Variable` where the shell fills it in."""
    port: int
    handover_port: int = 0
    weight: float = 1.0

    @property
    def place(self) -> str:
        text = f"{self.host}:{self.port}"
        return Variable(text) if isinstance(self.host, Variable) else text

    @property
    def url(self) -> str:
        text = f"http://{self.place}"
        return Variable(text) if isinstance(self.place, Variable) else text


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterServer:
    """What takes the requests of a plan and hands them on."""

    words: tuple[str, ...]
    port: int
    image: str
    health: str
    files: Mapping[str, str] = field(default_factory=dict)
    """What it reads from its working folder; `$` in them is the shell's."""
    left_out: tuple[str, ...] = ()
    """What of the plan's routing it does not do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphWorker:
    """One replica as a worker of NVIDIA Dynamo, in its runtime image."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    runtime: str
    """The name of Dynamo's image for the engine."""
    version: str
    """Of the engine in that image."""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCommand:
    """A command that starts an engine, as a user, a script or a manifest has it. What a shell would fill in, and
    nobody has, is a `Variable`."""

    arguments: tuple[str, ...]
    """Behind the program's name."""
    image: str = ""
    """The container image it runs in, where one is named."""
    environment: Mapping[str, str] = field(default_factory=dict)
    program: str = ""
    """Which of the engine's programs it is, where it has several."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Of a configuration file whose fields are no flags, the fields."""
    known: int = 0
    """Of a configuration file, how many fields are the engine's."""
    joined: bool = False
    """Whether the tasks that a launcher starts it as are the ranks of one server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedCommand:
    """One replica, or one process of it, as a command of its engine says it."""

    model: str
    """As it is written."""
    strategy: Strategy
    dtype: str
    kv_dtype: str
    settings: Mapping[str, Any]
    version: str
    nodes: int
    """Nodes of the replica."""
    worker: bool
    """Whether it is a process of a replica that another one takes the requests of."""
    devices: int
    """Chips that the process may see; 0 where nothing says so."""
    ignored: tuple[IgnoredOption, ...]
    replicas: int = 1
    """Replicas that this one command starts."""
    any_rank: bool = False
    """Whether only the shell says which process of its replica it is, so that it may be the first."""
    role: str = BOTH
    """Whether it computes prompts, answers or both; one of `gnomon.spec.plan.ROLES`."""
    port: int = 0
    """Where it takes requests; 0 where that is not known."""
    handover: str = ""
    """The option by which it sends KV caches or takes them, where only its router says which of the two."""

    @property
    def same(self) -> tuple[Any, ...]:
        """What all replicas of a pool share."""
        parts = self.model, self.strategy, self.dtype, self.kv_dtype, dict(self.settings), self.version, self.nodes
        return *parts, self.role


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """What the command of an engine's router says."""

    router: str
    """The plan's router that it stands for; empty where it is another one."""
    policy: str = ""
    """As the engine calls it."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """The roles of servers by their addresses, `host:port`, where it tells prefill and decode apart."""


class CommandNames(Protocol):
    """What a command names and an engine does not open itself."""

    @property
    def dtype(self) -> str:
        """The format of the weights, where the user says it; empty where the checkpoint does."""

    def model(self, name: str) -> Model:
        """The network behind a model's name or folder."""

    def other_model(self, name: str) -> Model:
        """A network beside the served one, such as a draft model, by its name or folder."""

    def config(self, path: str, *, partly: bool = False) -> Mapping[str, Any]:
        """The fields of a configuration file; `partly` where values that only the shell knows may stay as they are
        written."""


class CommandReader(Protocol):
    """The part of an engine's operations that reads what already runs: launch commands and configuration files."""

    def own_command(self, words: Sequence[str], image: str = "") -> EngineCommand | None:
        """The engine's part of a command line, whatever stands before it; nothing where it starts something else. With
        an `image` the words are arguments of what a container of it starts by itself."""

    def config_command(self, fields: Mapping[str, Any]) -> EngineCommand | None:
        """The command that a configuration file of the engine stands for; nothing where it is none."""

    def import_command(self, command: EngineCommand, names: CommandNames) -> ImportedCommand:
        """Degrees, formats and settings of a command. Nothing is run and nothing filled in: every option acts, is
        listed as ignored with the reason, or raises InputError."""


class Operations(Protocol):
    """What writes, starts, reads back and runs serving plans of one engine: the module `operations` of its folder."""

    NAME: str
    TITLE: str
    """As its users write it."""
    INSTALL: str
    """What installs it where it is missing."""

    def version_of(self, plan: Plan) -> str:
        """The plan's version in full; one whose options are not known is refused."""

    def check(self, plan: Plan) -> None:
        """Raise InputError where the engine would not run on the plan's chips, in its format, or has no weights."""

    def layout(self, plan: Plan) -> NodeLayout:
        """The nodes of a plan. Raises InputError where the engine cannot lay its replicas out."""

    def command(self, plan: Plan) -> list[str]:
        """The words of the command that starts one replica, without its port."""

    def file_options(self, plan: Plan) -> list[str]:
        """What the command reads from a file instead, each as `name: value`."""

    def servers(self, plan: Plan) -> Servers:
        """Every process of the plan."""

    def script(self, plan: Plan, notes: Sequence[str] = ()) -> str:
        """The shell script that starts all of them; notes stand in its header."""

    def headline(self, plan: Plan) -> str:
        """A comment that says which plan a file starts."""

    def container(self, plan: Plan) -> Container:
        """One replica on one node. Raises InputError where no image runs on the plan's chips."""

    def not_expressed(self, plan: Plan) -> list[str]:
        """What of the plan the engine's options cannot express."""

    def pool_server(self, replica: PoolReplica) -> PoolServer:
        """The server of one replica of a pool: its command with its role, its port and what it sends KV caches by."""

    def pools_not_expressed(self, plan: Plan) -> list[str]:
        """What of pools, and of what they send each other, the engine cannot express."""

    def router(self, plan: Plan, addresses: Sequence[Address], reached: bool) -> RouterServer | None:
        """The engine's own router in front of all servers, which takes requests from other machines where it is
        `reached`; nothing where it has none for the plan."""

    def router_policies(self, plan: Plan) -> Mapping[str, str]:
        """What the engine's own router calls the plan's routers that it has."""

    def routed_by(self, words: Sequence[str], names: CommandNames) -> Routing | None:
        """What a command that starts the engine's router says; nothing where it starts something else."""

    def graph_worker(self, replica: PoolReplica) -> GraphWorker:
        """The same replica as a worker of NVIDIA Dynamo."""

    def own_checkpoint(self, model: Model, dtype: str) -> str:
        """The checkpoint to create before the engine can load the model in a format; empty where none is needed."""

    def program(self) -> list[str]:
        """What starts the engine on this machine, in the place of a command's first word; empty where it is not
        installed."""

    def check_measured(self, plan: Plan) -> None:
        """Raise InputError where the engine, run with dummy weights, would not be what the plan says."""

    def runner(self, plan: Plan, config: Mapping[str, Any]) -> Runner:
        """The engine started for one replica of the plan, with dummy weights of a config.json."""

    def as_measured(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings as the runner has them in force, whatever a plan says of its front end."""

    def versions(self) -> dict[str, str]:
        """Software and hardware that a measurement is made with."""
