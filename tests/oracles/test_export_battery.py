"""Sixty random plans, exported and read back as the real programs read them: vLLM's own parser, Megatron-LM's list of
options, and the schema of Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.export import read_back_training
from tests.export.battery import check_serving, check_training
from tests.export.megatron_options import parser_of, published
from tests.export.random_plans import serving_plans, training_plans

import gnomon
from gnomon.errors import InputError

pytest.importorskip("vllm", reason="vLLM is not installed; run `make test-oracles`")
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()

from vllm.entrypoints.openai.cli_args import make_arg_parser  # noqa: E402
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402

pytestmark = pytest.mark.oracle
SERVED, TRAINED, SEED = 36, 24, 2026


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return serving_plans(SEED, SERVED, tmp_path_factory.mktemp("named"))


@pytest.mark.parametrize("place", range(SERVED))
def test_what_vllm_reads_is_the_plan(place: int, served: list[Any], tmp_path: Path) -> None:
    parser = make_arg_parser(FlexibleArgumentParser())
    check_serving(served[place], tmp_path, parser.parse_args)


@pytest.mark.parametrize("place", range(SERVED))
def test_kubernetes_takes_the_manifest(place: int, served: list[Any]) -> None:
    schema = pytest.importorskip("kubernetes_validate", reason="not installed; run `make test-oracles`")
    try:
        text = gnomon.export(served[place], "kubernetes").files["deployment.yaml"]
    except InputError:
        pytest.skip("no manifest can say it")
    for document in yaml.safe_load_all(text):
        schema.validate(document, "1.32", strict=True)
    document["spec"]["port"] = 80
    with pytest.raises(schema.ValidationError):
        schema.validate(document, "1.32", strict=True)


@pytest.fixture(scope="module")
def trained() -> list[Any]:
    return training_plans(SEED, TRAINED)


@pytest.mark.parametrize("place", range(TRAINED))
def test_what_megatron_reads_is_the_plan(place: int, trained: list[Any], tmp_path: Path) -> None:
    check_training(trained[place], tmp_path, parser_of(published()).parse_args)


@pytest.mark.parametrize("place", range(TRAINED))
def test_our_own_reader_reads_what_megatrons_does(place: int, trained: list[Any], tmp_path: Path) -> None:
    check_training(trained[place], tmp_path, read_back_training.our_parser())
