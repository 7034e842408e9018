"""Arguments and options that several commands share. Numbers are read by `gnomon.units`, so `8k` works everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer


def whole(flag: str, *, least: int = 1) -> Callable[[Any], int]:
    """A reader of whole numbers that names its flag in errors."""

    def read(text: Any) -> int:
        from gnomon.units import parse_whole

        return parse_whole(text, flag, least=least)

    return read


def rate(flag: str) -> Callable[[Any], float]:
    def read(text: Any) -> float:
        from gnomon.units import parse_rate

        return parse_rate(text, flag)

    return read


def degree(flag: str, what: str) -> Any:
    return typer.Option(flag, parser=whole(flag), metavar="N", help=f"{what} parallel degree.")


Model = Annotated[str, typer.Argument(metavar="MODEL", help="A known name, a hub id, or a folder with a config.json.")]
On = Annotated[str, typer.Option("--on", metavar="CHIP[:N]", help="The chip, and how many of it.")]
Dtype = Annotated[str | None, typer.Option("--dtype", metavar="D", help="Number format of the weights, such as fp8.")]
KvDtype = Annotated[str | None, typer.Option("--kv-dtype", metavar="D", help="Number format of the KV cache.")]
Engine = Annotated[str, typer.Option("--engine", metavar="NAME[@VERSION]", help="The engine that runs it.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An engine setting; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
PlanRef = Annotated[str, typer.Argument(metavar="PLAN", help="A plan's file, a run's id, or `last`.")]

Tp = Annotated[int | None, degree("--tp", "Tensor")]
Pp = Annotated[int, degree("--pp", "Pipeline")]
Ep = Annotated[int, degree("--ep", "Expert")]
Cp = Annotated[int, degree("--cp", "Context")]
Dp = Annotated[int, degree("--dp", "Data")]

Trace = Annotated[str | None, typer.Option("--trace", metavar="FILE.csv", help="A trace of requests.")]
Rate = Annotated[
    float | None, typer.Option("--rate", parser=rate("--rate"), metavar="R", help="Requests a second to draw.")
]
Input = Annotated[
    int | None, typer.Option("--input", parser=whole("--input"), metavar="TOKENS", help="Mean prompt length.")
]
Output = Annotated[
    int | None, typer.Option("--output", parser=whole("--output"), metavar="TOKENS", help="Mean answer length.")
]
Seed = Annotated[int, typer.Option("--seed", parser=whole("--seed", least=0), metavar="S", help="Seed of the draw.")]


def requests(help: str = "How many requests; a trace is cut or repeated.") -> Any:
    return typer.Option("--requests", parser=whole("--requests"), metavar="N", help=help)


def settings(pairs: list[str] | None) -> dict[str, Any]:
    from gnomon.load import parse_settings

    return parse_settings(pairs or [], "--set")
