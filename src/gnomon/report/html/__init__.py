"""An answer as HTML: a page that needs nothing beside it, and the piece of it that a notebook shows.

The same answer gives the same bytes: no time, no script, nothing from elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import replace
from html import escape
from importlib import import_module

from gnomon.report import render
from gnomon.report.figures import Headline
from gnomon.report.html.blocks import Listing, Page, notes, table
from gnomon.report.text import assumed, legible
from gnomon.spec.answers import Result
from gnomon.spec.plan_dict import as_json

PAGES = {
    "gnomon.predict/1": "gnomon.report.html.predict",
    "gnomon.fit/1": "gnomon.report.html.fit",
    "gnomon.simulate.serve/1": "gnomon.report.html.serve",
    "gnomon.simulate.train/1": "gnomon.report.html.train",
    "gnomon.plan.serve/1": "gnomon.report.html.plan",
    "gnomon.plan.train/1": "gnomon.report.html.plan_train",
    "gnomon.try/1": "gnomon.report.html.tried",
    "gnomon.sweep/1": "gnomon.report.html.sweep",
    "gnomon.compare/1": "gnomon.report.html.compare",
    "gnomon.verify/1": "gnomon.report.html.verify",
    "gnomon.explain/1": "gnomon.report.html.explain",
}
"""By schema. Each module has `page(answer)`; an answer without one is shown by its text."""
STYLE = """\
.gnomon { font: 15px/1.5 system-ui, sans-serif; color: inherit; max-width: 62rem }
.gnomon h1 { font-size: 1.35em; line-height: 1.3; margin: 0 0 .2em }
.gnomon h2 { font-size: 1.05em; margin: 1.6em 0 .4em }
.gnomon p { margin: .3em 0 }
.gnomon .faint, .gnomon .band { opacity: .75; font-size: .9em }
.gnomon .verdict { font-weight: 600; border-left: 4px solid #888; padding-left: .6em; margin: .8em 0 }
.gnomon .good { border-color: #3f9c6b } .gnomon .bad { border-color: #c0504d }
.gnomon dl { display: flex; flex-wrap: wrap; gap: .6em 2em; margin: .8em 0 }
.gnomon dt { opacity: .75; font-size: .85em } .gnomon dd { margin: 0; font-weight: 600 }
.gnomon dd .band { display: block; font-weight: 400 }
.gnomon table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto; background: none }
.gnomon th, .gnomon td { padding: 2px 10px 2px 0; border-bottom: 1px solid rgba(128, 128, 128, .35); text-align: left }
.gnomon th { font-weight: 600 } .gnomon tr { background: none }
.gnomon .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.gnomon pre { overflow-x: auto; font: 12px/1.45 ui-monospace, monospace; margin: .4em 0 }
.gnomon pre { background: none; color: inherit }
.gnomon svg { width: 100%; max-width: 840px; height: auto; display: block; font-family: system-ui, sans-serif }
.gnomon .panels { display: grid; gap: 1.1em 1.6em }
.gnomon .panels { grid-template-columns: repeat(auto-fit, minmax(min(25rem, 100%), 1fr)) }
.gnomon summary { cursor: pointer; margin: .3em 0 } .gnomon ul { margin: .2em 0; padding-left: 1.4em }
"""
ROOT = ":root { color-scheme: light dark }\nbody { margin: 2rem auto; max-width: 62rem; padding: 0 1rem }\n"
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser may load and run for the page: its own style, nothing else."""


def document(answer: Result, *, command: str = "") -> str:
    """One self-contained page: the answer, what it was asked with, its text and its JSON."""
    made, version = page_of(answer), f"gnomon {import_module('gnomon').__version__}"
    head = "\n".join(
        [
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta name="generator" content="{escape(version)}">',
            f"<title>{escape(made.title)}</title>",
            f"<style>\n{ROOT}{STYLE}</style>",
        ]
    )
    asked = [Listing("Command", legible(command)).html()] if command else []
    foot = ["<section>", "<h2>How this page was made</h2>", f"<p>{escape(version)}</p>", *asked, "</section>"]
    body = "\n".join([_body(made), *foot, *_text(answer), _data(answer)])
    inside = f'<body>\n<main class="gnomon">\n{body}\n</main>\n</body>'
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n{inside}\n</html>\n'


def fragment(answer: Result) -> str:
    """The piece that a notebook shows below a cell, in the colours it has there."""
    return f'<div class="gnomon">\n<style>\n{STYLE}</style>\n{_body(page_of(answer))}\n</div>'


def page_of(answer: Result) -> Page:
    """The answer in pieces, with what it assumes and does not model."""
    answer = legible(answer)
    if answer.schema not in PAGES:
        name = answer.schema.removeprefix("gnomon.").partition("/")[0].replace(".", " ")
        title = str(getattr(answer, "title", "")) or f"gnomon {name}"
        return Page(title=title, blocks=[Listing("", render(answer))])
    made: Page = import_module(PAGES[answer.schema]).page(answer)
    ignored = [(one.option, one.why) for one in getattr(answer, "not_modelled", ())]
    added = table("Not modelled", ("given", "why it has no effect"), ignored, "<<")
    return replace(made, blocks=[*made.blocks, *notes("Assumed", assumed(answer)), *added])


def _body(made: Page) -> str:
    lines = [f"<h1>{escape(made.title)}</h1>"]
    lines += [f'<p class="faint">{escape(made.subtitle)}</p>'] if made.subtitle else []
    mark = {True: " good", False: " bad"}.get(made.good, "") if made.good is not None else ""
    lines += [f'<p class="verdict{mark}">{escape(made.verdict)}</p>'] if made.verdict else []
    if made.figures:
        lines += ["<dl>", *map(_figure, made.figures), "</dl>"]
    for block in made.blocks:
        head = [f"<h2>{escape(block.title)}</h2>"] if block.title else []
        lines += ["<section>", *head, block.html(), "</section>"]
    return "\n".join(lines)


def _figure(figure: Headline) -> str:
    band = f' <span class="band">{escape(figure.band)}</span>' if figure.band else ""
    return f"<div><dt>{escape(figure.name)}</dt><dd>{escape(figure.value)}{band}</dd></div>"


def _text(answer: Result) -> list[str]:
    """What a terminal shows, folded; an answer that is shown by its text has it already."""
    if answer.schema not in PAGES:
        return []
    return [f"<details><summary>As text</summary>\n<pre>{escape(render(answer))}</pre>\n</details>"]


def _data(answer: Result) -> str:
    """The JSON of the answer, in which nothing can end the element it stands in."""
    text = json.dumps(as_json(answer.to_dict()), indent=1, allow_nan=False)
    text = text.replace("<", "\\u003c").replace(">", "\\u003e")
    return f'<script type="application/json" id="gnomon-answer">\n{text}\n</script>'
