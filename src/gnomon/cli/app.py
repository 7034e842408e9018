"""The commands by name. Only the one that was asked for is built; `--help` builds them all."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gnomon.errors import InputError

COMMANDS = {
    "predict": "gnomon.cli.predict",
    "fit": "gnomon.cli.fit",
    "ops": "gnomon.cli.ops",
    "simulate": "gnomon.cli.simulate",
    "plan": "gnomon.cli.plan",
    "try": "gnomon.cli.try_idea",
    "sweep": "gnomon.cli.sweep",
    "compare": "gnomon.cli.compare",
    "techniques": "gnomon.cli.techniques",
    "export": "gnomon.cli.export",
    "launch": "gnomon.cli.launch",
    "verify": "gnomon.cli.verify",
    "accuracy": "gnomon.cli.accuracy",
    "explain": "gnomon.cli.explain",
    "history": "gnomon.cli.history",
    "calibrate": "gnomon.cli.calibrate",
    "lab": "gnomon.cli.lab",
    "chips": "gnomon.cli.chips",
    "models": "gnomon.cli.models",
    "papers": "gnomon.cli.papers",
    "completion": "gnomon.cli.completion",
}
"""Modules in the order of the help. Each has `add(app)`, which adds its command or its group of them."""


def build(argv: Sequence[str]) -> typer.Typer:
    """The app for a command line."""
    app = App(
        cls=Ordered,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
        help="Predicts how long AI jobs take on GPUs, plans deployments, and writes their launch configs.",
        epilog="Start with: gnomon predict llama-3.1-8b --on H100 --phase decode --batch 32 --context 1024",
    )
    app.callback(invoke_without_command=False)(_root)
    asked = argv[0] if argv else ""
    for name in [asked] if asked in COMMANDS else list(COMMANDS):
        import_module(COMMANDS[name]).add(app)
    return app


class Group(TyperGroup):
    """Commands under one name."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [_read_plainly(param) for param in super().get_params(ctx)]


class Ordered(Group):
    """Lists commands and groups in the order of `COMMANDS`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in COMMANDS if name in self.commands]


class Once(TyperCommand):
    """A command that refuses a flag of one value given twice, instead of keeping the last."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [_read_plainly(param) for param in super().get_params(ctx)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from gnomon.cli.engine_words import fill

        for param in self.params:
            fill(param)
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(list(args))
            options = [param for param in given if param.param_type_name == "option"]
            for option in options:
                if options.count(option) > 1 and not (option.multiple or getattr(option, "is_flag", False)):
                    raise InputError("is given twice", where=option.opts[0], hint="Give it once.")
        return super().parse_args(ctx, args)


def _read_plainly(param: Any) -> Any:
    """The parameter, made to parse texts and values with a custom parser without pydantic, which some versions of typer
    import at the first value. Values of any other type are left to typer."""
    descriptor = getattr(param, "type_descriptor", None)
    if descriptor is None or "process_value" in vars(param):  # a typer that needs no pydantic, or done already
        return param
    parser = descriptor.parameter_info.parser or (str if descriptor.annotation in (str, list[str]) else None)
    usual, several = param.process_value, param.multiple or param.nargs == -1

    def process_value(ctx: Any, value: Any) -> Any:
        if value is None and not param.required:
            found: Any = () if several else None
        elif parser and value is not None and several is isinstance(value, (list, tuple)):
            found = [parser(item) for item in value] if several else parser(value)
        else:
            return usual(ctx, value)
        return param.callback(ctx, param, found) if param.callback else found

    param.process_value = process_value
    return param


class App(typer.Typer):
    """An app whose commands take each flag once."""

    def command(self, name: str | None = None, **words: Any) -> Any:
        return super().command(name, **({"cls": Once} | words))


def group(help: str) -> typer.Typer:
    """An app of subcommands."""
    return App(cls=Group, help=help, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        import gnomon

        print(f"gnomon {gnomon.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Predicts how long AI jobs take on GPUs, plans deployments, and writes their launch configs."""
