"""Reads the HTML of answers as a browser would: elements, what they would load, and the text that is seen."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "br", "hr", "img", "input", "link"}
LOADING = {"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href", "formaction"}
"""Attributes that make a browser fetch something."""


class Read(HTMLParser):
    """Every element, with the text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.faults: list[str] = []
        self.seen: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if len(dict(attrs)) != len(attrs):
            self.faults.append(f"<{tag}> has an attribute twice")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        {"script": self.scripts, "style": self.styles}.get(inside, self.seen).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.seen).split())

    @property
    def answer(self) -> dict[str, Any]:
        """The JSON that the page holds."""
        (script,) = self.scripts
        found: dict[str, Any] = json.loads(script)
        return found

    def problems(self) -> list[str]:
        """What is not well-formed, would run, or would be loaded."""
        found = [*self.faults, *(f"<{tag}> is not closed" for tag in self.open)]
        for tag, attributes in self.tags:
            found += [f"<{tag} {name}>" for name in attributes if name in LOADING or name.startswith("on")]
            if tag == "script" and attributes.get("type") != "application/json":
                found.append("a script that runs")
            if tag in {"img", "link", "iframe", "object", "embed", "base", "form", "audio", "video", "image", "use"}:
                found.append(f"<{tag}>")
        return found + re.findall(r"url\(|@import|expression\(", " ".join(self.styles))
