"""Configs from the model hub: one file is fetched, and every way to fail is one line. The hub here is a stand-in."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gnomon import catalog, load
from gnomon.errors import InputError
from gnomon.load import hub

ERRORS = (
    "EntryNotFoundError",
    "GatedRepoError",
    "HfHubHTTPError",
    "LocalEntryNotFoundError",
    "RepositoryNotFoundError",
)

CACHED: dict[tuple[str, str], object] = {("some/seen", "config.json"): str(catalog.model_config_path("llama-3.2-1b"))}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., str]], Any]:
    """Puts a module in huggingface_hub's place, whose download is the one given; gives back its errors."""

    def install(download: Callable[..., str]) -> Any:
        module, errors = ModuleType("huggingface_hub"), ModuleType("huggingface_hub.errors")
        for name in ERRORS:
            setattr(errors, name, type(name, (Exception,), {}))
        compute_only = SimpleNamespace(set_verbosity_error=lambda: None)
        parts = {
            "hf_hub_download": download,
            "errors": errors,
            "try_to_load_from_cache": lambda address, file: CACHED.get((address, file)),
            "constants": SimpleNamespace(ENDPOINT="https://hub.example"),
            "utils": SimpleNamespace(logging=compute_only, disable_progress_bars=lambda: None),
        }
        for name, part in parts.items():
            setattr(module, name, part)
        monkeypatch.setattr(hub, "resolvable", lambda endpoint: True)
        monkeypatch.setitem(sys.modules, "huggingface_hub", module)
        monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
        monkeypatch.setattr(hub, "installed", lambda: True)
        return errors

    return install


def test_the_config_is_fetched_and_nothing_else(tmp_path: Path, fake: Any) -> None:
    asked = []
    place = tmp_path / "models--some--small-llama" / "snapshots" / "1" / "config.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(load.config_of("llama-3.2-1b")))

    def download(address: str, file: str, **_: Any) -> str:
        asked.append((address, file))
        return str(place)

    fake(download)
    model = load.model("some/small-llama")
    assert (model.name, model.hub_id, model.parameters) == ("small-llama", "some/small-llama", 1_235_814_400)
    assert asked == [("some/small-llama", "config.json")]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("LocalEntryNotFoundError", "cannot be reached"),
        ("HfHubHTTPError", "cannot be reached"),
        ("GatedRepoError", "only to those who accepted its terms"),
        ("RepositoryNotFoundError", "has no such model"),
        ("EntryNotFoundError", "has no config.json on the model hub"),
    ],
)
def test_ways_to_fail(fake: Any, error: str, said: str) -> None:
    def download(*_: Any, **__: Any) -> str:
        raise getattr(errors, error)

    errors = fake(download)
    with pytest.raises(InputError, match=said) as caught:
        load.model("some/model")
    assert str(caught.value).startswith("some/model: ")
    assert caught.value.hint


def test_what_is_in_the_cache_is_not_asked_for(fake: Any) -> None:
    fake(lambda *_, **__: pytest.fail("asked"))
    assert load.model("some/seen").parameters == 1_235_814_400


def test_no_network_is_noticed_at_once(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    real = hub.resolvable
    fake(lambda *_, **__: pytest.fail("asked"))
    monkeypatch.setattr(hub, "resolvable", real)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(InputError, match="cannot be reached"):
        load.model("some/model")
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "proxy"})
    assert hub.resolvable("https://hub.example"), "a proxy may know the way"


def test_a_network_that_is_not_there(fake: Any) -> None:
    def download(*_: Any, **__: Any) -> str:
        raise OSError("no route to host")

    fake(download)
    with pytest.raises(InputError, match="cannot be reached"):
        load.model("some/model")


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "installed", lambda: False)
    with pytest.raises(InputError, match=r"unknown model 'some/model'.*pip install 'gnomon\[hub\]'"):
        load.model("some/model")


@pytest.mark.parametrize("text", ["a/b", "Qwen/Qwen3-8B", "01-ai/Yi-34B", "x_y/z.1"])
def test_addresses(text: str) -> None:
    assert hub.is_address(text)


@pytest.mark.parametrize(
    "text", ["a", "a/b/c", "../b", "a/..", "/etc/passwd", "a/", "-a/b", "a b/c", "a/b\n", "é/b", ""]
)
def test_what_is_no_address_is_never_asked_for(text: str, fake: Any) -> None:
    fake(lambda *_, **__: pytest.fail("asked"))
    assert not hub.is_address(text)
    with pytest.raises(InputError):
        load.model(text)


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    fake(lambda *_, **__: pytest.fail("asked"))
    folder = tmp_path / "some" / "model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(load.config_of("llama-3.2-1b")))
    monkeypatch.chdir(tmp_path)
    model = load.model("some/model")
    assert (model.hub_id, model.source) == ("", str(Path("some/model/config.json")))


def test_a_pipeline_keeps_its_transformer_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "config.json").write_text(json.dumps(load.config_of("dit-xl-2-256")))
    assert load.model(tmp_path).family == "dit"
