"""Arguments and options that several commands share. Numbers are read by `gnomon.units`, so `8k` works everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from gnomon.cli import names


def whole(flag: str, *, least: int = 1, most: int | None = None) -> Callable[[Any], int]:
    """A reader of whole numbers that names its flag in errors."""

    def read(text: Any) -> int:
        from gnomon.units import parse_whole

        return parse_whole(text, flag, least=least, most=most)

    return read


def rate(flag: str) -> Callable[[Any], float]:
    def read(text: Any) -> float:
        from gnomon.units import parse_rate

        return parse_rate(text, flag)

    return read


def duration(flag: str) -> Callable[[Any], float]:
    def read(text: Any) -> float:
        from gnomon.units import parse_duration

        return parse_duration(text, flag)

    return read


def word(flag: str) -> Callable[[Any], str]:
    """A reader of names and paths: anything but nothing."""

    def read(text: Any) -> str:
        from gnomon.errors import InputError

        if not str(text).strip():
            raise InputError("is empty", where=flag, hint="Give a value, or leave the flag out.")
        return str(text)

    return read


def count(flag: str) -> Callable[[Any], float]:
    """A reader of counts above zero, whole or not: `300e9`, `300B`."""

    def read(text: Any) -> float:
        from gnomon.errors import InputError
        from gnomon.units import parse_count

        found = parse_count(text, flag)
        if not found:
            raise InputError(f"'{text}' is not above zero", where=flag)
        return found

    return read


def serving_engine(text: Any) -> str:
    from gnomon.engines import engine
    from gnomon.errors import named_by

    label = word("--engine")(text)
    with named_by("--engine"):
        engine(label)
    return label


def training_engine(text: Any) -> str:
    from gnomon.engines import training_engine as found
    from gnomon.errors import named_by

    label = word("--engine")(text)
    with named_by("--engine"):
        found(label)
    return label


def any_engine(text: Any) -> str:
    from gnomon.engines import SERVING, TRAINING, engine, training_engine
    from gnomon.errors import named_by, unknown_name

    label = word("--engine")(text)
    name = label.partition("@")[0]
    if name not in (*SERVING, *TRAINING):
        raise unknown_name("engine", name, (*SERVING, *TRAINING), where="--engine")
    with named_by("--engine"):
        engine(label) if name in SERVING else training_engine(label)
    return label


def number_format(text: Any) -> str:
    from gnomon.errors import unknown_name
    from gnomon.spec.formats import NARROW, PLAIN_BITS

    name, known = word("--dtype")(text), (*PLAIN_BITS, *NARROW)
    if name not in known:
        raise unknown_name("number format", name, known, where="--dtype")
    return name


def formats(text: str, flag: str) -> list[str]:
    """Number formats, parted by commas."""
    from gnomon.errors import InputError, unknown_name
    from gnomon.graph.dtypes import WIDTH

    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"'{text}' names no number format", where=flag)
    for name in names:
        if name not in WIDTH:
            raise unknown_name("number format", name, WIDTH, where=flag)
    return names


def degree(flag: str, what: str, note: str) -> Any:
    return typer.Option(flag, parser=whole(flag), metavar="N", help=f"{what} parallel degree.{note}")


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A known name, a hub id, or a folder with a config.json.", autocompletion=names.models
    ),
]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="CHIP[:N]",
        autocompletion=names.chips,
        help="The chip, and how many of it; or a chip's or a cluster's YAML file.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        parser=number_format,
        autocompletion=names.words(names.formats),
        metavar="D",
        help="Number format of the weights, such as fp8.",
    ),
]
KvDtype = Annotated[
    str | None,
    typer.Option(
        "--kv-dtype",
        parser=word("--kv-dtype"),
        autocompletion=names.words(names.formats),
        metavar="D",
        help="Number format of the KV cache.",
    ),
]
Engine = Annotated[
    str, typer.Option("--engine", parser=serving_engine, metavar="NAME[@VERSION]", help="The engine that runs it.")
]
AnyEngine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        parser=any_engine,
        metavar="NAME[@VERSION]",
        help="The engine that runs it: vllm where it can, else torch.",
    ),
]
SETTINGS = (
    "Of vLLM: max_model_len, max_num_seqs, max_num_batched_tokens, gpu_memory_utilization, block_size, "
    "decode_context_parallel_size, all2all_backend, async_scheduling, enforce_eager, enable_prefix_caching, "
    "max_cudagraph_capture_size."
)
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help=f"An engine setting; may be repeated. {SETTINGS}"),
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="TECHNIQUE",
        help="A technique, such as int4-weights or offload-optimizer:stride=2; `gnomon techniques` lists them.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE.html", help="Write the answer as one page, with tables and plots."),
]
PlanRef = Annotated[str, typer.Argument(metavar="PLAN", help="A plan's file, a run's id, or `last`.")]

Tp = Annotated[int | None, degree("--tp", "Tensor", " All chips of --on where it is not given.")]
Pp = Annotated[int, degree("--pp", "Pipeline", " Stages that layers are shared among.")]
Ep = Annotated[int, degree("--ep", "Expert", " Ranks that whole experts are spread over.")]
Cp = Annotated[int, degree("--cp", "Context", " Ranks that share the tokens of a sequence.")]
Dp = Annotated[int, degree("--dp", "Data", " Ranks with sequences of their own.")]

Trace = Annotated[
    str | None, typer.Option("--trace", parser=word("--trace"), metavar="FILE.csv", help="A trace of requests.")
]
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
