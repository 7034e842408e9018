"""The page as one HTML file: the Markdown that `page` and its lists are written in, and nothing more of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape

STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; font-size: 12px; display: block; overflow-x: auto }
th, td { padding: 2px 8px; border-bottom: 1px solid #ddd; white-space: nowrap; text-align: left }
.n { text-align: right; font-variant-numeric: tabular-nums }
img { max-width: 100% } summary { cursor: pointer; font-weight: 600; margin: 1rem 0 }
"""
_INLINE = (
    (re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)"), r'<img src="\2" alt="\1">'),
    (re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)"), r'<a href="\2">\1</a>'),
    (re.compile(r"&lt;(https?://[^&\s]+)&gt;"), r'<a href="\1">\1</a>'),
    (re.compile(r"`([^`]+)`"), r"<code>\1</code>"),
    (re.compile(r"\*([^*\s][^*]*)\*"), r"<em>\1</em>"),
)


def document(title: str, page: str, lists: Mapping[str, str]) -> str:
    """The whole file; lists fold away below the page."""
    folded = "\n".join(
        f'<details id="{escape(name)}"><summary>{escape(name)}</summary>\n{body(text)}\n</details>'
        for name, text in lists.items()
    )
    head = f'<meta charset="utf-8">\n<title>{escape(title)}</title>\n<style>\n{STYLE}</style>'
    linked = body(page)
    for name in lists:
        linked = linked.replace(f'href="./{name}"', f'href="#{name}"')
    inside = f"<head>\n{head}\n</head>\n<body>\n{linked}\n{folded}\n</body>"
    return f'<!doctype html>\n<html lang="en">\n{inside}\n</html>\n'


def body(text: str) -> str:
    return "\n".join(_block(block) for block in text.strip().split("\n\n"))


def _block(block: str) -> str:
    level = len(block) - len(block.lstrip("#"))
    if level:
        return f"<h{level}>{_inline(block[level:].strip())}</h{level}>"
    lines = block.split("\n")
    if block.startswith("|"):
        return "\n".join(_table(lines))
    if block.startswith("- "):
        items = block[2:].split("\n- ")
        return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
    return f"<p>{_inline(block)}</p>"


def _table(lines: list[str]) -> Iterator[str]:
    sides = ["n" if cell.endswith(":") else "" for cell in _cells(lines[1])]
    yield "<table>"
    for line, tag in [(lines[0], "th"), *((line, "td") for line in lines[2:])]:
        pairs = zip(_cells(line), sides, strict=True)
        yield "<tr>" + "".join(f'<{tag} class="{side}">{_inline(cell)}</{tag}>' for cell, side in pairs) + "</tr>"
    yield "</table>"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _inline(text: str) -> str:
    text = escape(text, quote=False)
    for pattern, made in _INLINE:
        text = pattern.sub(made, text)
    return text
