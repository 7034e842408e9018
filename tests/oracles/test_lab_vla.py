"""The lab's vision-language-action network: what is folded wrongly is seen, and what is predicted is what runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from gnomon.lab import vla  # noqa: E402
from gnomon.lab.bench import Bench  # noqa: E402
from gnomon.lab.experiments import running_vlas_at_real_time_speed as experiment  # noqa: E402
from gnomon.lab.priced import torch_machine  # noqa: E402
from gnomon.load.chips import chip  # noqa: E402

pytestmark = pytest.mark.oracle


def bench() -> Bench:
    return Bench(torch, "cpu", lambda _: None)


class Shapes(Bench):
    """Tensors without values, whose attention is GEMMs that are counted."""

    def __init__(self) -> None:
        super().__init__(torch, "meta", lambda _: None)

    def generator(self, seed: int = 0) -> Any:
        return None


@pytest.mark.parametrize("joined", [False, True])
def test_flops_that_are_predicted_are_those_that_run(joined: bool) -> None:
    for shape in (replace(vla.SMALL, views=3, steps=4), replace(vla.VlaShape(), vision_layers=2, layers=2)):
        network = vla.drawn(Shapes(), shape, torch.bfloat16)
        network = vla.joined(network) if joined else network
        with FlopCounterMode(display=False) as counted, torch.no_grad():
            network(*experiment._inputs(Shapes(), shape, torch.bfloat16))
        tally = vla.Counted(torch_machine(chip("H200")), shape, joined, False).total()
        assert tally.flops == counted.get_total_flops()


def failed(made: Any) -> set[str]:
    return {check.what.split(",")[0] for check in made if not check.ok}


@pytest.mark.parametrize(
    ("part", "name"),
    [("vision", "norm"), ("vision", "norm_shift"), ("vision", "second_norm_shift"), ("language", "norm"),
     ("language", "second_norm"), ("expert", "norm"), ("expert", "second_norm")],
)  # fmt: skip
def test_a_norm_that_is_not_folded_is_seen(part: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not failed(experiment._against_fp64(bench(), vla.SMALL))
    whole = vla.joined

    def careless(network: vla.Vla) -> vla.Vla:
        plain = torch.zeros_like if "shift" in name else torch.ones_like
        layers = [{**w, name: plain(w[name])} for w in network.weights[part]]
        return whole(replace(network, weights={**network.weights, part: layers}))

    monkeypatch.setattr(experiment, "joined", careless)
    assert failed(experiment._against_fp64(bench(), vla.SMALL)) == {"joined in fp64"}


def test_a_rotation_left_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = vla.Layers.turned
    monkeypatch.setattr(
        vla.Layers, "turned", lambda self, x, angles: whole(self, x, angles) if x.dtype == torch.float64 else x
    )
    assert failed(experiment._against_fp64(bench(), vla.SMALL)) == {"two layers of each part in bf16 against fp64"}


def test_layers_are_captured_whole_by_the_compiler() -> None:
    """Without a break in the graph, one compilation for all layers that are alike."""
    network = vla.drawn(bench(), vla.SMALL, torch.bfloat16)
    inputs = experiment._inputs(bench(), vla.SMALL, torch.bfloat16)
    for form in (network, vla.joined(network)):
        torch._dynamo.reset()
        built: list[int] = []

        def counted(module: Any, _: Any, built: list[int] = built) -> Any:
            built.append(1)
            return module

        made = replace(
            form,
            vision=torch.compile(form.vision, backend=counted, fullgraph=True, dynamic=False),
            gemma=torch.compile(form.gemma, backend=counted, fullgraph=True, dynamic=False),
        )
        with torch.no_grad():
            found, truth = made(*inputs), form(*inputs)
        assert all(torch.equal(mine, right) for mine, right in zip(found, truth, strict=True))
        assert len(built) == 3
