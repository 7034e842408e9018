"""SGLang's own scheduling classes on a CPU: the few files that decide, with everything else of it stubbed.

The package needs CUDA libraries to be imported in full. Here the folder of an unpacked wheel of 0.5.23 is enough, which
`GNOMON_SGLANG` names, or an installed package.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import Any

REAL = {
    "sglang.srt.environ",
    "sglang.srt.mem_cache.base_prefix_cache",
    "sglang.srt.mem_cache.cache_init_params",
    "sglang.srt.mem_cache.evict_policy",
    "sglang.srt.mem_cache.prefill_budget",
    "sglang.srt.mem_cache.radix_cache",
    "sglang.srt.managers.schedule_policy",
}
PACKAGES = {"sglang", "sglang.srt", "sglang.srt.mem_cache", "sglang.srt.managers"}


class Anything:
    """Stands for whatever a stubbed module has: a decorator, a class to derive from, a type, a flag that is off."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        return given[0] if len(given) == 1 and callable(given[0]) and not named else Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        return (Stubbed,)

    def __getitem__(self, key: object) -> Any:
        return Anything()

    def __or__(self, other: object) -> Any:
        return Anything()

    __ror__ = __or__

    def __bool__(self) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return True


class Stubbed:
    """What classes of stubbed modules are."""

    def __init__(self, *given: Any, **named: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class StubModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name[:1].isupper() and not name.isupper():
            made = type(name, (Stubbed,), {})
            setattr(self, name, made)
            return made
        return Anything()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, root: Path) -> None:
        self.root = root

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "sglang":
            return None
        if name in REAL:
            return importlib.util.spec_from_file_location(name, self.root / f"{name.replace('.', '/')}.py")
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        made = types.ModuleType(spec.name) if spec.name in PACKAGES else StubModule(spec.name)
        made.__path__ = []
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def source() -> Path | None:
    """The folder that holds the package; none where it is not on this machine."""
    given = os.environ.get("GNOMON_SGLANG")
    if given:
        return Path(given)
    found = importlib.util.find_spec("sglang")
    return Path(found.origin).parent.parent if found and found.origin else None


def load(name: str) -> Any:
    """One of the files that are real."""
    root = source()
    assert root is not None
    if not any(isinstance(each, Finder) for each in sys.meta_path):
        for known in [each for each in sys.modules if each.partition(".")[0] == "sglang"]:
            del sys.modules[known]
        sys.meta_path.insert(0, Finder(root))
    return importlib.import_module(name)
