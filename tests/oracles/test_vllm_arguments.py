"""Every flag of vLLM's own parser acts in an import, or is listed with the reason why it does not."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from gnomon.engines.imported import COMPUTE
from gnomon.engines.operations import EngineCommand
from gnomon.engines.vllm import arguments
from gnomon.engines.vllm.command_line import read_arguments
from gnomon.engines.vllm.imported import HOST_CACHES, import_command
from gnomon.engines.vllm.imported_weights import CACHES, MADE, NEARLY
from gnomon.engines.vllm.later_arguments import release_flags
from gnomon.load import model as load_model

pytest.importorskip("torch", reason="vLLM is not installed; run `make test-oracles`")
from tests.oracles.vllm_release import RELEASE, make_arg_parser  # isort: skip

from vllm.config.cache import CacheDType
from vllm.config.speculative import MTPModelTypes, SpeculativeConfig, SpeculativeMethod
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
from vllm.utils.argparse_utils import FlexibleArgumentParser

pytestmark = pytest.mark.oracle
FLAGS = release_flags(RELEASE.version)
TABLE = FLAGS.table
OLD = {name for name, why in FLAGS.unused.items() if "of earlier versions" in why.why}


@pytest.fixture(scope="module")
def parser() -> Any:
    return make_arg_parser(FlexibleArgumentParser())


@pytest.fixture(scope="module")
def flags(parser: Any) -> dict[str, argparse.Action]:
    """By the first long name, without dashes."""
    found = {}
    for action in parser._actions:
        long = [name[2:] for name in action.option_strings if name.startswith("--") and not name.startswith("--no-")]
        if long and long[0] != "help":
            found[long[0]] = action
    return found


def test_every_flag_acts_or_is_listed(flags: dict[str, argparse.Action]) -> None:
    assert set(flags) == TABLE.known - OLD
    assert not arguments.ACTING & FLAGS.unused.keys()


def test_flags_take_as_many_values_as_vllm_gives_them(flags: dict[str, argparse.Action]) -> None:
    assert {name for name, action in flags.items() if action.nargs == 0} == TABLE.switches - OLD
    assert {name for name, action in flags.items() if action.nargs == "+"} == TABLE.several
    assert {name for name, action in flags.items() if action.nargs == "?"} == set(arguments.OPTIONAL)
    stored = {name for name, action in flags.items() if isinstance(action, argparse._StoreTrueAction)}
    assert stored == set(arguments.ONE_WAY)
    short = {short: name for name, action in flags.items() for short in action.option_strings if short[1] != "-"}
    assert short == arguments.SHORT


def test_choices_are_vllms(flags: dict[str, argparse.Action]) -> None:
    for name, ours in FLAGS.choices.items():
        assert sorted(ours) == sorted(flags[name].choices or ())
    assert {"auto", *COMPUTE} == set(flags["dtype"].choices or ())
    assert {*CACHES, *NEARLY, *FLAGS.formats.other_caches} - {""} == set(get_args(CacheDType))
    assert {*MADE, *FLAGS.formats.stored} == set(QUANTIZATION_METHODS)


def test_methods_and_fields_of_drafts_are_vllms(flags: dict[str, argparse.Action]) -> None:
    made = {"target_model_config", "target_parallel_config", "draft_model_config", "draft_parallel_config"}
    own = {"method", "model", "num_speculative_tokens"}
    assert set(FLAGS.drafts.known) == set(_texts(SpeculativeMethod))
    assert {*FLAGS.drafts.beside, *own} == {one.name for one in dataclasses.fields(SpeculativeConfig)} - made
    assert set(FLAGS.drafts.heads) == set(get_args(MTPModelTypes))
    assert {*HOST_CACHES} == set(flags["kv-offloading-backend"].choices or ())


def _texts(kind: Any) -> Iterator[str]:
    for one in get_args(kind):
        yield from [one] if isinstance(one, str) else _texts(one)


COMMANDS = [
    "llama-3.1-8b -tp 2 --max-model-len 32k --max_num_batched_tokens=4K --no-async-scheduling",
    "--model llama-3.1-8b --max-num-seqs 64 --gpu-memory 0.85 --block-size 32 --enforce-eager -pp 2",
    "llama-3.1-8b -dp 2 --kv-cache-dtype fp8 -q fp8 --served-model-name a b c --port 9000",
    "llama-3.1-8b --cudagraph-capture-sizes 1 2 4 -dcp 1 --api-key x y --enable-lora --max-loras 4 --max-lora-rank 32",
    "llama-3.1-8b --kv-offloading-size 4.0 --kv-offloading-backend native --scheduling-policy priority",
    "llama-3.1-8b --dtype half --enable-prefix-caching --max-cudagraph-capture-size 128 -O3",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_are_read_as_vllm_reads_them(parser: Any, words: str) -> None:
    theirs = parser.parse_args(shlex.split(words))
    ours = read_arguments(shlex.split(words), TABLE)
    for name, value in ours.values.items():
        found = getattr(theirs, name.replace("-", "_"))
        if isinstance(value, tuple):
            assert [str(one) for one in found] == list(value)
        elif not isinstance(value, dict) and name not in ("max-model-len", "max-num-batched-tokens"):
            assert str(found).lower().endswith(str(value).lower())
    names = SimpleNamespace(dtype="", model=load_model, config=dict)
    image = f"vllm/vllm-openai:v{RELEASE.version}"
    read = import_command(EngineCommand(arguments=tuple(shlex.split(words)), image=image), names)
    assert read.strategy.tp == theirs.tensor_parallel_size
    assert read.strategy.pp == theirs.pipeline_parallel_size
    assert read.strategy.dp == theirs.data_parallel_size
    for name, value in read.settings.items():
        if not (name == "max_cudagraph_capture_size" and theirs.cudagraph_capture_sizes):
            assert getattr(theirs, name) == value, name
