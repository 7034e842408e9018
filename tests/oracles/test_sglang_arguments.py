"""The list of SGLang's flags that its table is checked against is the one that SGLang's own parser has.

Run with the package installed, or with `GNOMON_SGLANG` naming the folder of an unpacked wheel; the parser needs PyTorch
and a few small packages beside it.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.oracles.sglang_source import source

from gnomon.engines.operations import EngineCommand
from gnomon.engines.sglang.arguments import CHOICES, EVERYWHERE, OTHER_BACKENDS
from gnomon.engines.sglang.imported import FORMATS, UNQUANTIZED, import_command
from gnomon.load.commands.plan import NamesOf

pytestmark = pytest.mark.oracle
DATA = Path(__file__).parents[1] / "engines" / "data" / "sglang_flags.txt"
SHOWN = """
import argparse, json, sys
sys.path.insert(0, sys.argv[1])
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
if len(sys.argv) > 2:
    print(json.dumps({name: repr(value) for name, value in vars(parser.parse_args(sys.argv[2:])).items()}))
else:
    print(json.dumps([
        [type(one).__name__, one.nargs, one.option_strings, sorted(map(str, one.choices or ()))]
        for one in parser._actions
    ]))
"""
"""In a process of its own: other tests put stubs in the place of most of SGLang."""
KINDS = {0: "switch", None: "one", "+": "some", "*": "any", "?": "maybe"}


def asked(*words: str) -> Any:
    folder = source()
    if folder is None:
        pytest.skip("SGLang is not here; set GNOMON_SGLANG")
    done = subprocess.run(
        [sys.executable, "-c", SHOWN, str(folder), *words], capture_output=True, text=True, timeout=300, check=False
    )
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def actions() -> list[Any]:
    return [one for one in asked() if one[0] != "_HelpAction"]


def test_the_list_is_that_of_the_parser(actions: list[Any]) -> None:
    theirs = [
        " ".join(
            [
                "negatable" if kind == "BooleanOptionalAction" else KINDS[values],
                *(name.removeprefix("--") for name in names if not name.startswith("--no-")),
            ]
        )
        for kind, values, names, _ in actions
    ]
    assert [line for line in DATA.read_text().splitlines() if not line.startswith("#")] == theirs


def test_choices_are_sglangs(actions: list[Any]) -> None:
    choices = {names[0].removeprefix("--"): found for _, _, names, found in actions}
    for name, ours in CHOICES.items():
        assert sorted(ours) == choices[name]
    assert sorted((*EVERYWHERE, *OTHER_BACKENDS)) == choices["moe-a2a-backend"]
    assert sorted((*FORMATS.made, *FORMATS.stored, UNQUANTIZED)) == choices["quantization"]
    assert sorted({*FORMATS.caches, *FORMATS.nearly, *FORMATS.other_caches} - {""}) == choices["kv-cache-dtype"]


@pytest.mark.parametrize(
    "words",
    [
        "--model llama-3.1-8b --tp 2 --context-length 32Ki --max-total-tokens 1.5k --chunked-prefill-size -1",
        "--model-path llama-3.1-8b --mem-fraction 0.8 --cuda-graph-max-bs-decode 64 --disable-radix --stream-i 4",
        "--model-path llama-3.1-8b --pipeline-parallel-size 2 --schedule-policy lpm --schedule-cons 0.7 --page-size=16",
    ],
)
def test_commands_are_read_as_sglang_reads_them(words: str) -> None:
    theirs = asked(*shlex.split(words))
    names = NamesOf(folder=Path(), known="", dtype="")
    read = import_command(EngineCommand(arguments=tuple(shlex.split(words))), names)
    assert repr(read.model) == theirs["model_path"]
    assert repr(read.strategy.tp) == theirs["tp_size"]
    assert repr(read.strategy.pp) == theirs["pp_size"]
    for name, value in read.settings.items():
        assert repr(value) == theirs["cuda_graph_max_bs_decode" if name == "cuda_graph_max_bs" else name], name
