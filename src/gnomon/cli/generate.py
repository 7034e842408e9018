"""Commands generated from questions: a flag for every field, read by its kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from typing import Annotated, Any

import typer

from gnomon.cli import flags, names
from gnomon.spec.questions import Flag, Question
from gnomon.spec.questions.base import FLAG

Reader = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How values of one kind come from a command line."""

    type: Any = str
    parser: Callable[[Flag], Reader] | None = None
    completion: Callable[[str], list[str]] | None = None
    several: Callable[[list[str] | None], Any] | None = None
    """Of a flag that may be repeated: what its texts are together."""


def _word(flag: Flag) -> Reader:
    return flags.word(flag.where)


def _always(parser: Reader) -> Callable[[Flag], Reader]:
    return lambda flag: parser


KINDS = {
    "text": Kind(parser=_word),
    "plain": Kind(),
    "switch": Kind(type=bool),
    "whole": Kind(type=int, parser=lambda flag: flags.whole(flag.where, least=flag.least, most=flag.most)),
    "rate": Kind(type=float, parser=lambda flag: flags.rate(flag.where)),
    "size": Kind(type=int, parser=lambda flag: flags.whole(flag.where, least=flag.least, most=flag.most)),
    "length": Kind(parser=lambda flag: flags.length(flag.where, least=flag.least, most=flag.most)),
    "factor": Kind(type=float, parser=lambda flag: flags.factor(flag.where)),
    "count": Kind(type=float, parser=lambda flag: flags.count(flag.where)),
    "watts": Kind(type=float, parser=lambda flag: flags.watts(flag.where)),
    "money": Kind(type=float, parser=lambda flag: flags.money(flag.where)),
    "model": Kind(completion=names.models),
    "trace": Kind(parser=_word),
    "chips": Kind(completion=names.chips),
    "order": Kind(parser=_word, completion=names.words(names.orders)),
    "model_kind": Kind(parser=_word, completion=names.words(names.kinds)),
    "phase": Kind(completion=names.words(names.phases)),
    "dtype": Kind(parser=_always(flags.number_format), completion=names.words(names.formats)),
    "kv_dtype": Kind(parser=_word, completion=names.words(names.formats)),
    "engine": Kind(parser=_always(flags.serving_engine)),
    "any_engine": Kind(parser=_always(flags.any_engine)),
    "training_engine": Kind(parser=_always(flags.training_engine)),
    "dtypes": Kind(parser=_always(flags.formats)),
    "goals": Kind(type=list[str], several=lambda texts: ",".join(map(flags.word("--slo"), texts or ()))),
    "objective": Kind(parser=_always(flags.objective)),
    "router": Kind(parser=_word, completion=names.words(names.routers)),
    "target": Kind(parser=_always(flags.target), completion=names.words(names.targets)),
    "schedule": Kind(parser=_always(flags.schedule), completion=names.words(names.schedules)),
    "recompute": Kind(parser=_word, completion=names.words(names.recompute)),
    "checkpoint_mode": Kind(parser=_word, completion=names.words(names.checkpoint_modes)),
    "cp_comm": Kind(parser=_word, completion=names.words(names.cp_comms)),
    "dispatch": Kind(parser=_word, completion=names.words(names.dispatches)),
    "optimizer": Kind(parser=_word, completion=names.words(names.optimizers)),
    "packing": Kind(parser=_word, completion=names.words(names.packings)),
    "sampling": Kind(parser=_word, completion=names.words(names.samplings)),
    "settings": Kind(type=list[str], several=flags.settings),
    "techniques": Kind(type=list[str], several=lambda texts: tuple(texts or ())),
    "pools": Kind(type=list[str], several=lambda texts: tuple(map(flags.word("--pool"), texts or ()))),
    "pool_kinds": Kind(parser=_word, completion=names.words(names.pool_kinds)),
    "kv_transfer": Kind(parser=_word, completion=names.words(names.kv_transfers)),
    "plans": Kind(type=list[str], several=lambda texts: tuple(texts or ())),
    "duration": Kind(type=float, parser=lambda flag: flags.duration(flag.where)),
    "listed": Kind(parser=lambda flag: lambda text: tuple(name.strip() for name in str(text).split(","))),
    "rates": Kind(type=list[float], parser=lambda flag: flags.rate(flag.where), several=lambda rates: rates),
}


def asks(question: type[Question]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command of a question: `command(question, html=…, as_json=…)` gets a flag for every field, and its own
    parameters behind them."""

    def generated(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        ]
        asked = [_parameter(one) for one in fields(question) if FLAG in one.metadata]  # type: ignore[arg-type]
        order = question.flags()  # what has to be given first: arguments, then the chips
        asked.sort(
            key=lambda one: (one.default is not inspect.Parameter.empty, order[one.name].names != (),
                             order[one.name].kind != "chips", order[one.name].last)
        )  # fmt: skip

        def run(**given: Any) -> None:
            rest = {one.name: given.pop(one.name) for one in own}
            command(question(**{name: _value(question, name, value) for name, value in given.items()}), **rest)

        run.__doc__ = command.__doc__ or question.__doc__
        run.__signature__ = inspect.Signature([*asked, *own])  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in (*asked, *own)}
        return run

    return generated


def _parameter(one: Field[Any]) -> inspect.Parameter:
    flag: Flag = one.metadata[FLAG]
    kind = KINDS[flag.kind]
    words: dict[str, Any] = {"metavar": flag.metavar, "help": flag.help, "autocompletion": kind.completion}
    if kind.parser:
        words["parser"] = kind.parser(flag)
    if kind.type is bool:
        del words["metavar"]
    needed = one.default is MISSING and one.default_factory is MISSING
    default = inspect.Parameter.empty if needed else None if kind.several else one.default
    wanted = kind.type if default is not None else kind.type | None
    made = typer.Option(*flag.names, **words) if flag.names else typer.Argument(**words)
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[wanted, made]
    )


def _value(question: type[Question], name: str, value: Any) -> Any:
    several = KINDS[question.flags()[name].kind].several
    return several(value) if several else value
