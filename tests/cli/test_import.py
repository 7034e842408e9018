"""The public face: lazy, complete, and stable when packages of the same name are imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gnomon


def modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nsys.stderr.write('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stderr.splitlines()}


HEAVY = {"numpy", "pydantic", "rich", "yaml", "torch", "typer", "click"}


def test_importing_gnomon_imports_nothing_heavy() -> None:
    assert not modules_after("import gnomon") & HEAVY


def test_help_imports_nothing_heavy() -> None:
    code = "from gnomon.cli.run import run\nrun(['--help'])"
    assert not modules_after(code) & (HEAVY - {"typer", "click"})


def test_a_usage_error_imports_nothing_heavy() -> None:
    lines = ["from gnomon.cli.run import run", "sys.stderr = open('/dev/null', 'w')", "run(['predict'])"]
    code = "\n".join([*lines, "sys.stderr = sys.__stderr__"])
    assert not modules_after(code) & (HEAVY - {"typer", "click", "pydantic"})


def test_packages_do_not_hide_functions() -> None:
    from gnomon.export import target

    assert target("vllm").NAME == "vllm"
    assert gnomon.export.__module__ == "gnomon.api.export"
    assert callable(gnomon.export)


def test_unknown_attributes() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = gnomon.nonsense
    assert "predict" in dir(gnomon)
