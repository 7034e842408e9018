"""What every technique of serving keeps to, whichever it is: a new one passes this battery by being registered.

Cases are a few networks and chips that differ in what techniques ask for: a dense decoder, a mixture, a latent one; a
chip with kernels for narrow weights, one without, one of another vendor. Where a technique refuses a case it says why;
where it applies it changes only what it declares, in words that a plan keeps.
"""

from __future__ import annotations

import json
from itertools import combinations, permutations

import numpy as np
import pytest
from tests.techniques.texts import changes, name_of, tried

import gnomon
from gnomon.cli.run import run
from gnomon.engines import Deployment, Engine
from gnomon.errors import InputError, UnknownNameError
from gnomon.export import target
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.load.plan import plan_from_dict
from gnomon.spec import Batch, EngineChoice, Plan, ServingLoad, Strategy
from gnomon.spec.plan_dict import plan_to_dict
from gnomon.techniques import CONSERVED, TRAINING, applied, canonical, techniques
from gnomon.techniques import SERVING as SERVES

SERVING = {name: one for name, one in techniques().items() if SERVES in one.work}
CASES = (
    ("llama-3.2-1b", "A100:1"),
    ("llama-3.2-1b", "H200:2"),
    ("llama-3.2-1b", "V100-32GB:1"),
    ("llama-3.2-1b", "MI300X:1"),
    ("llama-3.2-1b", "B200:2"),
    ("qwen1.5-moe-a2.7b", "H100:2"),
    ("deepseek-v2-lite", "H100:1"),
)
BATCHES = (Batch.decode(1, 100), Batch.decode(32, 1000), Batch.prefill(2, 300))
Pair = tuple[Engine, Deployment]


SIMULATED = [pair for pair in combinations(SERVING, 2) if all(SERVING[name].simulated for name in pair)]
TRIALS = [text for one in SERVING.values() for text in tried(one)]


def deployed(model: str, on: str, *names: str) -> Pair:
    pool = parse_pool(on)
    return deploy(load_model(model), pool, strategy=Strategy(tp=pool.count, techniques=names))


def usable(model: str, on: str, *names: str) -> Pair | None:
    """The deployment, or nothing where a technique refuses it, in which case it has said why."""
    try:
        return deployed(model, on, *names)
    except InputError as error:
        assert any(name.partition(":")[0] in str(error) or "do not run on" in str(error) for name in names), error
        assert len(str(error)) > 30, "a reason stands there"
        return None


def flops(pair: Pair) -> list[float]:
    engine, deployment = pair
    return [float(engine.graph(deployment).flops(batch).sum()) for batch in BATCHES]


@pytest.mark.parametrize("name", SERVING)
def test_it_says_what_it_is(name: str) -> None:
    one = SERVING[name]
    assert one.name == name and one.title and one.idea.endswith(".") and SERVES in one.work
    assert one.changes <= set(CONSERVED[SERVES])
    assert set(one.excludes) <= set(SERVING) - {name}
    assert all(name_of(trial.words) == name and trial.paper for trial in one.trials)
    for trial in one.trials:
        assert applied(SERVES, [trial.words])
        assert not trial.against or applied(SERVES, [trial.against])
    for parameter in one.parameters:
        for value in (parameter.default, *parameter.tried):
            assert parameter.read(str(value), "here") == value


@pytest.mark.parametrize("name", SERVING)
def test_names_it_had_before_mean_the_same(name: str) -> None:
    for alias in SERVING[name].aliases:
        assert alias not in techniques() and canonical(f"{alias}:x=1") == name
        assert applied(SERVES, [alias]) == applied(SERVES, [name])
        with pytest.raises(InputError, match="twice"):
            applied(SERVES, [alias, name])
        case = next((model, on) for model, on in CASES if usable(model, on, name))
        times = [
            gnomon.predict(case[0], on=case[1], phase="decode", batch=2, context=100, techniques=[text]).time_s.value
            for text in (alias, name)
        ]
        assert times[0] == times[1]


@pytest.mark.parametrize("text", TRIALS)
def test_it_applies_somewhere(text: str) -> None:
    assert any(usable(model, on, text) for model, on in CASES)


@pytest.mark.parametrize("text", TRIALS)
@pytest.mark.parametrize(("model", "on"), CASES)
def test_it_leaves_what_it_does_not_declare(model: str, on: str, text: str) -> None:
    pair = usable(model, on, text)
    if pair is None:
        return
    plain, declared = deployed(model, on), changes(text)
    (engine, with_it), (_, without) = pair, plain
    assert with_it.techniques and with_it.strategy.techniques == (text,)
    if "flops" not in declared:
        assert flops(pair) == pytest.approx(flops(plain))
    if "parameters" not in declared:
        assert with_it.model.parameters == without.model.parameters
    if "precision" not in declared:
        assert (with_it.dtype, with_it.kv_dtype) == (without.dtype, without.kv_dtype)
    used, before = engine.memory(with_it), engine.memory(without)
    assert used.total_bytes == before.total_bytes
    if "weight bytes" not in declared:
        assert used.parts["weights"] == pytest.approx(before.parts["weights"])
    if "cache bytes" not in declared:
        assert used.sequence_bytes(1000, 1) == pytest.approx(before.sequence_bytes(1000, 1))
    taken = sum(used.parts.values())
    assert taken == pytest.approx(used.usable_bytes) or used.kv_blocks <= 0, "parts add up to what there is"


@pytest.mark.parametrize("text", TRIALS)
@pytest.mark.parametrize(("model", "on"), CASES)
def test_a_step_is_no_quicker_than_what_it_moves(model: str, on: str, text: str) -> None:
    pair = usable(model, on, text)
    if pair is None:
        return
    engine, deployment = pair
    for batch in BATCHES:
        moved = float(engine.graph(deployment).bytes(batch).sum())
        assert moved > 0 and np.isfinite(moved)
    found = gnomon.predict(model, on=on, phase="decode", batch=4, context=100, techniques=[text])
    assert found.inputs["techniques"] == [text] and text in found.title
    moved = float(engine.graph(deployment).bytes(Batch.decode(4, 100)).sum())
    assert found.time_s.value > 0.5 * moved / deployment.pool.chip.memory_bandwidth_bytes_s
    assert all(line.time_s.value >= 0 for line in found.breakdown)
    if "tokens" not in changes(text):
        assert found.tokens_per_s * found.time_s.value == pytest.approx(4)


@pytest.mark.parametrize("text", TRIALS)
def test_a_load_sees_the_step_that_is_predicted(text: str) -> None:
    """One request alone: its tokens come as far apart as steps of one sequence take."""
    model, on = next((model, on) for model, on in CASES if usable(model, on, text))
    load = {"on": on, "rate": 1e-3, "input": 64, "output": 64, "requests": 5, "techniques": [text]}
    if not SERVING[name_of(text)].simulated:
        with pytest.raises(InputError, match=f"{name_of(text)} cannot be simulated under load"):
            gnomon.simulate_serving(model, **load)
        return
    step = gnomon.predict(model, on=on, phase="decode", batch=1, context=96, techniques=[text]).time_s.value
    assert gnomon.simulate_serving(model, **load).tpot_s["p50"] == pytest.approx(step, rel=0.05)


@pytest.mark.parametrize("pair", list(combinations(SERVING, 2)), ids="+".join)
def test_two_follow_one_another_in_either_order_or_exclude_each_other(pair: tuple[str, str]) -> None:
    excluded = any(other in SERVING[name].excludes for name, other in permutations(pair))
    if excluded:
        for order in permutations(pair):
            with pytest.raises(InputError, match="cannot be combined"):
                applied(SERVES, order)
        return
    joined = [(model, on) for model, on in CASES if all(usable(model, on, name) for name in pair)]
    assert joined, f"{pair} are never used together, and do not say that they exclude each other"
    for model, on in joined:
        found = [deployed(model, on, *order) for order in permutations(pair)]
        if "flops" not in changes(*pair):
            assert flops(found[0]) == pytest.approx(flops(deployed(model, on)))
        times = [
            gnomon.predict(model, on=on, phase="decode", batch=2, context=100, techniques=order).time_s.value
            for order in permutations(pair)
        ]
        assert times[0] == times[1]
        memories = [engine.memory(deployment).parts for engine, deployment in found]
        assert memories[0] == memories[1]
        assert memories[0]["weights"] >= 0, "no weight leaves the chip twice"


@pytest.mark.battery(6)
@pytest.mark.parametrize("pair", SIMULATED, ids="+".join)
def test_a_load_sees_the_step_of_two(pair: tuple[str, str]) -> None:
    if any(other in SERVING[name].excludes for name, other in permutations(pair)):
        return
    model, on = next((model, on) for model, on in CASES if usable(model, on, *pair))
    step = gnomon.predict(model, on=on, phase="decode", batch=1, context=96, techniques=pair).time_s.value
    load = gnomon.simulate_serving(model, on=on, rate=1e-3, input=64, output=64, requests=5, techniques=pair)
    assert load.tpot_s["p50"] == pytest.approx(step, rel=0.05)


@pytest.mark.parametrize("text", TRIALS)
def test_a_plan_keeps_it_and_says_what_it_leaves_to_others(text: str) -> None:
    model, on = next((model, on) for model, on in CASES if usable(model, on, text))
    _, deployment = deployed(model, on, text)
    plan = Plan(
        model=model,
        chip=deployment.pool.chip.name,
        replicas=1,
        strategy=deployment.strategy,
        dtype=deployment.dtype,
        kv_dtype=deployment.kv_dtype,
        engine=EngineChoice(name="vllm"),
        load=ServingLoad(input_tokens=64, output_tokens=64, rate_per_s=1.0, requests=10),
    )
    again = plan_from_dict(json.loads(json.dumps(plan_to_dict(plan))), "here")
    assert again.strategy.techniques == (text,)
    _, same = deploy(
        load_model(again.model), deployment.pool, strategy=again.strategy, dtype=again.dtype, kv_dtype=again.kv_dtype
    )
    assert same.model == deployment.model and same.settings == deployment.settings
    one, values = applied(SERVES, [text]).pairs[0]
    left = target("vllm").render(again).not_expressed
    assert any(f"the technique {text}" in line for line in left) is not one.expressed_by_config(values)


@pytest.mark.parametrize("name", SERVING)
def test_slips_are_answered(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownNameError, match=name):
        applied(SERVES, [name[:-1] + "x"])
    with pytest.raises(InputError, match="is not a parameter of"):
        applied(SERVES, [f"{name}:nonsense=1"])
    with pytest.raises(InputError, match="is given twice"):
        applied(SERVES, [name, name])
    with pytest.raises(InputError, match=f"{name} is a serving technique, not a training technique"):
        applied(TRAINING, [name])
    for parameter in SERVING[name].parameters:
        with pytest.raises(InputError, match=parameter.choices[0] if parameter.choices else "is not a number"):
            applied(SERVES, [f"{name}:{parameter.name}=nonsense"])
        if not parameter.choices:
            with pytest.raises(InputError, match=f"{parameter.low:g} to"):
                applied(SERVES, [f"{name}:{parameter.name}={parameter.low - 1}"])
    assert run(["predict", "llama-3.2-1b", "--on", "H100", "--with", f"{name}:nonsense=1"]) == 2
    assert "--with" in capsys.readouterr().err


def test_techniques_of_training_are_refused() -> None:
    for name, one in techniques().items():
        if one.work == (TRAINING,):
            with pytest.raises(InputError, match=f"{name} is a training technique, not a serving technique"):
                deployed("llama-3.2-1b", "H100", name)
