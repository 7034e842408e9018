"""`gnomon papers`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gnomon.cli import flags, names
from gnomon.cli.answered import answered
from gnomon.cli.pages import PageAsked
from gnomon.spec.questions.known import CODE_HELP, FOLDER_HELP
from gnomon.spec.questions.plans import ApplyQuestion

Slug = Annotated[
    str, typer.Argument(metavar="SLUG", autocompletion=names.papers, help="A paper's name in the list: zero-offload.")
]
Folder = Annotated[str | None, typer.Option("--papers", parser=flags.word("--papers"), metavar="DIR", help=FOLDER_HELP)]
AllowCode = Annotated[bool, typer.Option("--allow-code", help=CODE_HELP)]
FILTERS = ("topic", "status", "shelf", "cluster", "hardware", "since")


def add(app: typer.Typer) -> None:
    from gnomon.cli.app import group

    commands = group("Papers: what they claim, and what Gnomon computes.")
    commands.callback(invoke_without_command=True)(papers)
    for command in (search, show, run, cite, new):
        commands.command(command.__name__)(command)
    applying = answered(ApplyQuestion, "gnomon.api.apply_techniques", "planning with techniques")
    commands.command("apply", cls=PageAsked)(applying)
    app.add_typer(commands, name="papers")


def _filter(name: str, metavar: str, help: str, known: Any = None) -> Any:
    offered = names.words(known) if known else None
    return typer.Option(f"--{name}", parser=flags.word(f"--{name}"), autocompletion=offered, metavar=metavar, help=help)


def papers(
    context: typer.Context,
    topic: Annotated[
        str | None, _filter("topic", "TOPIC", "Only those on this topic: serving, offload, moe …", names.topics)
    ] = None,
    status: Annotated[
        str | None,
        _filter("status", "STATUS", "Only executed, predicted, identity, modelled or listed ones.", names.statuses),
    ] = None,
    shelf: Annotated[
        str | None, _filter("shelf", "SHELF", "Only those of this topic group.", names.topic_groups)
    ] = None,
    cluster: Annotated[
        str | None, _filter("cluster", "CLUSTER", "Only those that need the same of Gnomon.", names.paper_clusters)
    ] = None,
    hardware: Annotated[str | None, _filter("hardware", "NAME", "Only those that used this hardware: A100.")] = None,
    since: Annotated[
        int | None,
        typer.Option(
            "--since",
            parser=flags.whole("--since", least=1900, most=9999),
            metavar="YEAR",
            help="Only those of this year or later.",
        ),
    ] = None,
    folder: Folder = None,
    as_json: flags.Json = False,
) -> None:
    """The papers Gnomon knows: executed on a GPU, predicted by its own model, identities of a paper's own numbers,
    modelled but not reproduced, or listed.
    """
    if context.invoked_subcommand is None:
        from gnomon.papers.answers import listed

        given = {name: context.params.get(name) for name in FILTERS}
        _show(listed(**given, folder=folder), context, as_json)
        return
    for name in FILTERS:
        if context.params.get(name) is not None:
            from gnomon.errors import InputError

            hint = f"Leave it out, or leave out `{context.invoked_subcommand}`."
            raise InputError("narrows the list only", where=f"--{name}", hint=hint)


def search(
    context: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="WORDS", help="What it is about, an arXiv number, or an author's name.")
    ],
    limit: Annotated[
        int,
        typer.Option("--limit", parser=flags.whole("--limit", most=1_000_000), metavar="N", help="How many, at most."),
    ] = 10,
    folder: Folder = None,
    as_json: flags.Json = False,
) -> None:
    """Papers by what they say, the best match first."""
    from gnomon.papers.answers import search as answer

    _show(answer(" ".join(words), limit=limit, folder=_folder(context, folder)), context, as_json)


def show(
    context: typer.Context,
    slug: Slug,
    folder: Folder = None,
    allow_code: AllowCode = False,
    as_json: flags.Json = False,
) -> None:
    """One paper: its idea, its claims, what Gnomon computes of it, and what is missing."""
    from gnomon.cli.progress import Progress
    from gnomon.papers.answers import show as answer

    with Progress(slug):
        shown = answer(slug, folder=_folder(context, folder), allow_code=allow_code)
    _show(shown, context, as_json)


def run(
    context: typer.Context,
    slug: Annotated[
        str | None,
        typer.Argument(metavar="[SLUG]", autocompletion=names.reproduced, help="A reproduced paper."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All reproduced papers.")] = False,
    jobs: Annotated[
        int,
        typer.Option("--jobs", parser=flags.whole("--jobs", most=64), metavar="N", help="Processes that share --all."),
    ] = 1,
    folder: Folder = None,
    allow_code: AllowCode = False,
    as_json: flags.Json = False,
) -> None:
    """Reproduce the figures of a paper and compare them with its claims."""
    from gnomon.cli.progress import Progress
    from gnomon.errors import InputError
    from gnomon.papers.answers import run as answer

    if (slug is None) == (not every):
        hint = "Give one paper, as in `gnomon papers run SLUG`, or --all."
        message = "a paper and --all exclude each other" if every else "no paper is given"
        raise InputError(message, where="SLUG", hint=hint)
    if slug is not None and jobs > 1:
        raise InputError("one paper is computed by one process", where="--jobs", hint="Leave it out, or give --all.")
    with Progress("papers") as tick:
        done = answer(slug, progress=tick, jobs=jobs, folder=_folder(context, folder), allow_code=allow_code)
    _show(done, context, as_json)


def cite(context: typer.Context, slug: Slug, folder: Folder = None, as_json: flags.Json = False) -> None:
    """A paper as BibTeX, of what is known of it."""
    from gnomon.papers.answers import cite as answer

    _show(answer(slug, folder=_folder(context, folder)), context, as_json)


def new(
    context: typer.Context,
    slug: Annotated[str, typer.Argument(metavar="SLUG", help="A name for it: lowercase letters, digits and dashes.")],
    arxiv: Annotated[
        str | None,
        typer.Option("--arxiv", parser=flags.word("--arxiv"), metavar="ID", help="Its arXiv number: 2104.04473."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", parser=flags.word("--out"), metavar="DIR", help="Make it here, not in Gnomon's own folder."
        ),
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Begin a paper of your own: a folder with an entry to fill in."""
    from gnomon.papers.answers import new as answer

    _show(answer(slug, arxiv=arxiv, out=out), context, as_json)


def _folder(context: typer.Context, given: str | None) -> str | None:
    """`--papers` of a subcommand, or that before it, as in `gnomon papers --papers DIR show SLUG`."""
    before: str | None = context.parent.params.get("folder") if context.parent else None
    return given or before


def _show(answer: Any, context: typer.Context, as_json: bool) -> None:
    from gnomon.cli.output import show

    show(answer, context, as_json)
