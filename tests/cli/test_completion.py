"""What a shell is told while a command is typed."""

from __future__ import annotations

import pytest

from gnomon.cli.run import COMPLETE, run


def _offered(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv(COMPLETE, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    run([])
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("words", "offered", "not_offered"),
    [
        ("gnomon pl", ["plan"], ["predict"]),
        ("gnomon models show qwen3-0", ["qwen3-0.6b"], ["qwen3-8b"]),
        ("gnomon predict llama-3.1-", ["llama-3.1-8b", "llama-3.1-405b"], ["llama-2-7b"]),
        ("gnomon fit llama-3.1-8b --on H1", ["H100-SXM-80GB"], ["H200-SXM-141GB"]),
        ("gnomon fit llama-3.1-8b --on h1", ["h100-SXM-80GB", "h100"], ["h200-SXM-141GB"]),
        ("gnomon predict LLAMA-3.1-", ["LLAMA-3.1-8b"], ["LLAMA-2-7b"]),
        ("gnomon predict llama-3.1-8b --phase p", ["prefill"], ["decode"]),
        ("gnomon fit llama-3.1-8b --dtype f", ["fp8"], ["int4"]),
        ("gnomon chips --sort p", ["price", "power"], ["name"]),
        ("gnomon models --kind m", ["moe"], ["dense"]),
        ("gnomon papers show zero-", ["zero-offload", "zero-infinity"], ["zo2"]),
        ("gnomon papers --topic kv", ["kv-cache"], ["kernel"]),
        ("gnomon papers --status p", ["predicted"], ["listed"]),
        ("gnomon papers --shelf mo", ["moe"], ["kernel"]),
        ("gnomon export last --to k", ["kubernetes"], ["vllm"]),
        ("gnomon plan train gpt3-175b --optimizer adam", ["adamw-bf16", "adam8bit"], ["sgd"]),
        ("gnomon fit llama-3.1-8b --dty", ["--dtype"], ["--on"]),
    ],
)
def test_names(
    words: str,
    offered: list[str],
    not_offered: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = _offered(words, monkeypatch, capsys)
    assert set(offered) <= set(found)
    assert not set(not_offered) & set(found)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert COMPLETE in text
    assert f"complete_{shell}" in text


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "unknown shell 'tcsh'" in capsys.readouterr().err
