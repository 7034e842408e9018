"""Writes docs/cli.md and docs/api.md: `python -m tests.golden.references`. The test beside it keeps both true.

The first walks the app that the command line builds, the second `gnomon.__all__` and the answers its functions give.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

import gnomon
from gnomon.cli.app import build
from gnomon.cli.engine_words import told
from gnomon.spec.answers import NotModelled, Result
from gnomon.spec.estimate import Estimate

DOCS = Path(__file__).parents[2] / "docs"

CLI_INTRO = """# Command line reference

Written by `make references` from the commands themselves; `gnomon COMMAND --help` prints the same. [serving.md](serving.md) and [training.md](training.md) show the commands at work, [formats.md](formats.md) the files and values they take.

All answers go to stdout, progress and warnings to stderr. `--json` prints the answer as JSON (`"schema": "gnomon.COMMAND/1"`); an error is then also `{"error": {"message", "where", "hint"}}` on stdout. Counts take `8k`, `300B` and `300e9`. A flag of one value is given once; those that *may be repeated* are gathered.

| exit code | means |
|---|---|
| 0 | answered; `fit` and `predict` also answer that something does not fit |
| 1 | `gnomon launch` could not start the engine |
| 2 | the input is wrong: a misspelt name, a value out of range, a broken file |
| 3 | a fault of Gnomon; please report it |
| 4 | well-formed but infeasible: nothing fits, or no plan meets the goals; `--json` has what comes nearest |
| 130 | interrupted |
"""  # noqa: E501

API_INTRO = """# Python reference

Written by `make references` from `gnomon.__all__`. The functions are those behind the [commands](cli.md) and give the same figures. Each returns a frozen dataclass: `to_dict()` is the command's `--json`, `str()` what the command prints, `repr()` one line, `to_html()` a self-contained page, and a notebook shows tables and plots.

Units are in the names: `_s` seconds, `_bytes`, `_flops`, `_j` joules, `_usd` dollars, `_w` watts. An [`Estimate`](#estimate) carries its 90% interval and where it comes from.

```python
import gnomon

step = gnomon.predict("llama-3.1-8b", on="H200", phase="decode", batch=32, context=1024)
print(step)  # as the command line prints it
print(step.time_s.value, step.time_s.low, step.time_s.high)  # seconds

plan = gnomon.plan_serving("llama-3.1-8b", fleet="H200:8", rate=20, input=1024, output=256, slo="tpot_p90=25ms")
print(plan.best.label, plan.command)

run = gnomon.plan_training("llama-3.1-70b", cluster="H100:64", seq=8192, global_batch=128, tokens=15e12)
print(run.best.plan.strategy, run.best.step_time_s.value)
```
"""  # noqa: E501


def cli_page() -> str:
    return "\n".join([CLI_INTRO, *_command(typer.main.get_command(build([])), ("gnomon",))])


def _command(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    """A section for each command, groups before what is in them."""
    context = typer.Context(command, info_name=" ".join(path))
    inner = [command.get_command(context, name) for name in getattr(command, "list_commands", lambda _: [])(context)]
    params = [param for param in command.get_params(context) if param.name != "help"]
    yield f"{'#' * min(len(path) + 1, 4)} {' '.join(path)}\n"
    yield f"{_plain(command.help or '')}\n"
    if inner:
        yield "Commands: " + ", ".join(f"[`{one.name}`](#{'-'.join((*path, str(one.name)))})" for one in inner) + "\n"
    else:
        named = [_value(param) for param in params if param.param_type_name == "argument"]
        yield f"`{' '.join((*path, *named))} [OPTIONS]`\n"
    rows = [_param(param) for param in params]
    if rows:
        yield _table(("flag", "value", "default", "meaning"), rows)
    for one in inner:
        yield from _command(one, (*path, str(one.name)))


def _param(param: Any) -> Sequence[str]:
    is_flag = param.param_type_name == "option"
    names = [*param.opts, *param.secondary_opts] if is_flag else [_metavar(param)]
    shown = ", ".join(f"`{name}`" for name in names)
    value = f"`{_value(param)}`" if is_flag and not getattr(param, "is_flag", False) else ""
    default = "required" if param.required else _default(param)
    return shown, value, default, _plain(told(getattr(param, "help", "") or ""))


def _metavar(param: Any) -> str:
    name = str(param.metavar or param.name.upper())
    return name if param.param_type_name == "option" else name.removeprefix("[").removesuffix("]")


def _value(param: Any) -> str:
    optional = param.param_type_name == "argument" and not param.required
    return f"[{_metavar(param)}]" if optional else _metavar(param)


def _default(param: Any) -> str:
    value = param.default() if callable(param.default) else param.default
    if value in (None, (), [], "") or (getattr(param, "is_flag", False) and not param.secondary_opts):
        return ""
    if isinstance(value, bool):
        return f"`{(param.opts if value else param.secondary_opts)[0]}`"
    return f"`{value}`"


def api_page() -> str:
    functions = [name for name in gnomon.__all__ if inspect.isfunction(getattr(gnomon, name))]
    public = {f"gnomon.{name}": getattr(gnomon, name) for name in functions}
    papers = {f"gnomon.papers.{name}": getattr(gnomon.papers, name) for name in gnomon.papers.__all__}
    parts = [API_INTRO, "## Functions\n"]
    for name, function in public.items():
        parts += _function(name, function)
    parts += ["## Papers\n", "```text", inspect.getdoc(gnomon.papers) or "", "```\n"]
    for name, function in papers.items():
        parts += _function(name, function)
    given = [str(inspect.signature(one).return_annotation) for one in (*public.values(), *papers.values())]
    parts += ["## Answers\n"]
    for kind in _all(inner for annotation in given for inner in _answers(annotation)):
        parts += _class(kind)
    parts += ["## Errors\n", *_class(gnomon.GnomonError)]
    return "\n".join(parts)


def _function(name: str, function: Any) -> Iterator[str]:
    signature = inspect.signature(function)
    lines, bare = [], True
    for param in signature.parameters.values():
        if param.kind is param.KEYWORD_ONLY and bare:
            lines.append("*,")
        bare = bare and param.kind is not param.KEYWORD_ONLY and param.kind is not param.VAR_POSITIONAL
        lines.append(f"{str(param).replace(chr(39), '') if isinstance(param.annotation, str) else param},")
    gives = str(signature.return_annotation).strip("'")
    body = "\n".join(f"    {_quotes(line, signature)}" for line in lines)
    yield f"### {name}\n"
    yield f"```python\n{name}(\n{body}\n) -> {gives}\n```\n" if lines else f"```python\n{name}() -> {gives}\n```\n"
    yield f"{inspect.getdoc(function) or ''}\n"
    known = [f"[`{kind.__name__}`](#{kind.__name__.lower()})" for kind in _answers(gives)]
    if known:
        yield f"Returns {' or '.join(known)}.\n"


def _quotes(line: str, signature: inspect.Signature) -> str:
    """Defaults that are texts get their quotes back, which annotations lost."""
    name = line.rstrip(",").lstrip("*").partition(":")[0]
    param = signature.parameters.get(name)
    if param is None or not isinstance(param.default, str):
        return line
    return f"{line.rpartition(' = ')[0]} = {param.default!r},"


def _answers(annotation: str) -> list[type]:
    """The dataclasses of ours that an annotation names."""
    homes = _homes()
    return [getattr(import_module(homes[name]), name) for name in re.findall(r"\w+", annotation) if name in homes]


@cache
def _homes() -> dict[str, str]:
    """The modules of all answers by name, found without importing them: a class has a name of its own."""
    root = Path(gnomon.__file__).parent
    bases, modules = {}, {kind.__name__: kind.__module__ for kind in (Estimate, NotModelled)}
    for path in sorted(root.rglob("*.py")):
        for name, base in re.findall(r"^class (\w+)\((\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            bases[name] = (base, ".".join(("gnomon", *path.relative_to(root).with_suffix("").parts)))
    for name, (base, module) in bases.items():
        while base in bases and base != Result.__name__:
            base = bases[base][0]
        if base == Result.__name__:
            modules[name] = module.removesuffix(".__init__")
    return modules


def _all(kinds: Iterable[type]) -> list[type]:
    """These and those in their fields, each once."""
    queue, found = list(kinds), {}
    while queue:
        kind = queue.pop(0)
        if kind not in found:
            found[kind] = True
            if is_dataclass(kind):
                queue += [inner for field in fields(kind) for inner in _answers(str(field.type))]
    return list(found)


def _class(kind: type) -> Iterator[str]:
    yield f"### {kind.__name__}\n"
    doc = kind.__dict__.get("__doc__") or ""
    if doc and not doc.startswith(f"{kind.__name__}("):
        yield f"{inspect.cleandoc(doc)}\n"
    said = _said(kind)
    hidden: frozenset[str] = getattr(kind, "HIDDEN", frozenset())
    if is_dataclass(kind):
        rows = [
            (f"`{field.name}`", f"`{field.type}`", said.get(field.name, ""))
            for field in fields(kind)
            if field.name not in hidden and not field.name.startswith("_")
        ]
        yield _table(("field", "type", "meaning"), rows)
    properties = [
        (f"`{name}`", inspect.getdoc(value) or "") for name, value in vars(kind).items() if isinstance(value, property)
    ]
    if properties:
        yield _table(("property", "meaning"), properties)


def _said(kind: type) -> dict[str, str]:
    """What stands below each field, of the class and those it extends."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("gnomon"):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for before, after in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
                text = after.value if isinstance(after, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    found[before.target.id] = _plain(text.value)
    return found


def _plain(text: str) -> str:
    return " ".join(text.replace("\b", "").split())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return (
        "\n".join(f"| {' | '.join(_plain(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
        + "\n"
    )


PAGES = {"cli.md": cli_page, "api.md": api_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"docs/{name} written")
