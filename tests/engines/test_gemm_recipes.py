"""Recipes of eight bits and fewer in training: what casts move and what is saved by formula, who has which, and that a
recipe without costs of its own is plain fp8."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import gnomon
from gnomon.engines import training_engine, training_engines
from gnomon.engines.training import Traits
from gnomon.engines.training.layer_cost import cut_of, tapes_of
from gnomon.errors import InputError
from gnomon.graph.dtypes import GEMM_FORMATS, gemm_format
from gnomon.graph.gemm_recipes import BLOCKS, CURRENT, DELAYED, GEMM_RECIPES, MXFP8, NVFP4, ROWS, ROWS_WIDE_WGRAD
from gnomon.graph.ops import Gemm, Op
from gnomon.graph.style import KernelStyle
from gnomon.graph.tape import Tape, TapeNode
from gnomon.load import model as load_model
from gnomon.load.chips import chip as load_chip
from gnomon.spec import Batch

MODEL, SEQ = "llama-3.1-8b", 1024
HIDDEN, INNER = 4096, 14336
BATCH = Batch.prefill([1], SEQ)
STEP: dict[str, Any] = {"seq": 4096, "global_batch": 32, "zero": 1}
OWN = {
    name: [one.name for one in training_engine(name).traits(load_model(MODEL)).recipes] for name in training_engines()
}


def step(dtype: str, engine: str = "megatron", on: str = "B200:8", model: str = MODEL, **given: Any) -> Any:
    return gnomon.simulate_training(model, on=on, dtype=dtype, engine=engine, **(STEP | given))


def traits(engine: str, dtype: str, model: str = MODEL) -> Traits:
    return training_engine(engine).traits(load_model(model), "adamw", dtype)


def layer(engine: str, dtype: str, style: KernelStyle | None = None) -> Tape:
    own = traits(engine, dtype)
    return tapes_of(load_model(MODEL), cut_of(SEQ, dtype, {}), replace(own, style=style or own.style))["layer"]


def down(tape: Tape) -> TapeNode:
    return next(node for node in tape.nodes if node.name == "ffn.down")


def casts(node: TapeNode) -> dict[str, float]:
    """Bytes per token of what a matrix's casts move."""
    ops = (*node.forward, *node.dgrad, *node.wgrad)
    return {op.name: float(op.count * op.bytes(BATCH)[0]) / SEQ for op in ops if op.kind == "elementwise"}


def gemms(ops: tuple[Op, ...]) -> list[str]:
    return [op.dtype for op in ops if isinstance(op, Gemm)]


def test_every_recipe_runs_somewhere_and_names_formats_there_are() -> None:
    assert {name for names in OWN.values() for name in names} == set(GEMM_RECIPES)
    for one in GEMM_RECIPES.values():
        assert {one.fprop, one.dgrad, one.wgrad} <= {"fp8", "bf16", *GEMM_FORMATS}
        assert any(not one.obstacle(load_chip(name)) for name in ("H100", "B200"))


@pytest.mark.parametrize("name", sorted(GEMM_RECIPES))
def test_gemms_are_in_the_formats_of_their_pass_and_all_else_is_wide(name: str) -> None:
    engine = next(engine for engine, names in OWN.items() if name in names)
    recipe, model = GEMM_RECIPES[name], load_model(MODEL)
    made = tapes_of(model, cut_of(SEQ, name, {}), traits(engine, name))
    for node in made["layer"].nodes:
        weighted = bool(node.parameters) and bool(gemms(node.forward))
        found = (gemms(node.forward), gemms(node.dgrad), gemms(node.wgrad))
        assert not weighted or found == ([recipe.fprop], [recipe.dgrad], [recipe.wgrad])
        others = (op for op in node.forward if not isinstance(op, Gemm))
        assert all(getattr(op, "dtype", "bf16") == "bf16" for op in others)
    assert set(gemms(made["head"].forward_ops())) == {"bf16"}
    assert made["layer"].narrow_parameters == sum(
        one.rows * one.columns for one in model.blocks[0].tensors(model.hidden) if one.columns > 1
    )


def test_casts_that_write_both_copies_move_bytes_by_formula() -> None:
    """Transformer Engine: 16 bits are read once, or once more for a largest value, and for rows and columns apart in
    nvfp4; scales are a 32nd of mxfp8's values and an eighth of nvfp4's."""
    both = {
        "fp8": 2 + 2 * 1.0,
        "fp8-current": 2 * 2 + 2 * 1.0,
        "fp8-blocks": 2 + 2 * (1 + 4 / 128),
        "mxfp8": 2 + 2 * (1 + 1 / 32),
        "nvfp4": 3 * 2 + 2 * (0.5 + 1 / 16),
    }
    assert list(both) == OWN["megatron"]
    for name, value in both.items():
        found = casts(down(layer("megatron", name)))
        assert found == pytest.approx({"ffn.down.cast": value * INNER, "ffn.down.cast.by_input": value * HIDDEN})


def test_casts_in_kernels_of_their_own_move_bytes_by_formula() -> None:
    """torchao: the columns are the copy of a scaled tensor transposed, else cast from 16 bits again; with the gradient
    of the weight in bf16 there are none."""
    found = {name: casts(down(layer("torchtitan", name))) for name in OWN["torchtitan"]}
    late = {"fp8": 2.0, "fp8-rows": 2 * 2 + 1.0, "mxfp8": 2 + (1 + 1 / 32)}
    first = {"fp8": 2 * 2 + 1.0, "fp8-rows": 2 + 1.0, "mxfp8": 2 + (1 + 1 / 32)}
    for name, value in first.items():
        assert found[name] == pytest.approx(
            {
                "ffn.down.cast": value * INNER,
                "ffn.down.cast.by_input": (value + late[name]) * HIDDEN,
                "ffn.down.transpose": late[name] * INNER,
            }
        )
    assert found["fp8-rows-hp"] == pytest.approx({"ffn.down.cast": 3 * INNER, "ffn.down.cast.by_input": 3 * HIDDEN})


def test_what_the_gradient_of_a_weight_reads_is_saved() -> None:
    """The copy along columns with its scales; 16 bits where that is made later, or is not narrow."""

    def saved(engine: str, name: str) -> float:
        tape = layer(engine, name)
        return sum(tape.sizes[tensor] for tensor in down(tape).keeps)

    for name, value in {"fp8": 1.0, "fp8-blocks": 1 + 4 / 128, "mxfp8": 1 + 1 / 32, "nvfp4": 0.5 + 1 / 16}.items():
        assert saved("megatron", name) == pytest.approx(value * INNER)
    for name, value in {"fp8": 1.0, "fp8-rows": 2.0, "fp8-rows-hp": 2.0, "mxfp8": 2.0}.items():
        assert saved("torchtitan", name) == pytest.approx(value * INNER)


def test_weights_are_kept_along_both_sides() -> None:
    """Beside the working weights: mxfp8's scales are a 32nd, nvfp4 takes 9/16 of fp8's bytes; a B200 reads the copy of
    fp8 along either side."""
    parts = {name: step(name).memory_parts[0]["weights"] for name in ("bf16", *OWN["megatron"])}
    tape = layer("megatron", "fp8")
    narrow = tape.narrow_parameters * load_model(MODEL).layers
    each = {name: (weights - parts["bf16"]) / narrow for name, weights in parts.items()}
    assert each == pytest.approx(
        {
            "bf16": 0.0, "fp8": 1.0, "fp8-current": 1.0, "fp8-blocks": 2 * (1 + 4 / 128**2), "mxfp8": 2 * (1 + 1 / 32),
            "nvfp4": 2 * (0.5 + 1 / 16),
        }
    )  # fmt: skip
    assert MXFP8.weight_bytes / DELAYED.weight_bytes == 1 + 1 / 32


@pytest.mark.parametrize("engine", ["megatron", "torchtitan"])
@pytest.mark.parametrize("recipe", [BLOCKS, MXFP8, NVFP4], ids=lambda one: one.name)
def test_a_recipe_without_costs_of_its_own_is_plain_fp8(engine: str, recipe: Any) -> None:
    """With fp8's operands, one reading, and columns that are transposed, all operators are those of fp8."""
    plain = replace(recipe, fprop="fp8", dgrad="fp8", wgrad="fp8", amax_passes=0, transposes=True, single_pass=True)
    own = traits(engine, "fp8").style
    found, wanted = (layer(engine, "fp8", replace(own, recipe=one)) for one in (plain, DELAYED))
    assert found == wanted


@pytest.mark.parametrize(("engine", "on"), [("megatron", "H100:8"), ("megatron", "B200:8"), ("torchtitan", "B200:8")])
def test_more_to_cast_is_no_faster(engine: str, on: str) -> None:
    time = {name: step(name, engine, on).step_time_s.value for name in OWN[engine] if not _obstacle(name, on)}
    assert max(time.values()) < step("bf16", engine, on).step_time_s.value
    order = [("fp8", "fp8-current"), ("fp8", "fp8-blocks"), ("fp8-rows", "fp8-rows-hp"), ("nvfp4", "mxfp8")]
    for less, more in order:
        assert less not in time or more not in time or time[less] <= time[more]


def _obstacle(name: str, on: str) -> str:
    return GEMM_RECIPES[name].obstacle(load_chip(on.partition(":")[0]))


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v2-lite"])
def test_experts_and_latent_attention_take_them_too(name: str) -> None:
    static = {"capacity_factor": 1.0, "pad_to_capacity": True, "cuda_graphs": True}  # no host that launches casts
    formats = ("bf16", "fp8", "mxfp8", "nvfp4")
    time = {dtype: step(dtype, model=name, ep=8, **static).step_time_s.value for dtype in formats}
    assert time["fp8"] <= time["mxfp8"] < time["bf16"]
    if name == "mixtral-8x7b":  # small experts are cast for longer than they are multiplied
        assert time["nvfp4"] < time["bf16"]


def test_utilisation_is_of_the_rate_that_is_multiplied_at() -> None:
    chip = load_chip("B200")
    for name in ("bf16", "mxfp8", "nvfp4"):
        found, recipe = step(name), GEMM_RECIPES.get(name)
        rate = chip.rate(gemm_format(recipe.fprop).compute_dtype if recipe else name)
        flops = 8 * rate * found.step_time_s.value * found.mfu
        assert flops == pytest.approx(6 * 32 * 4096 * load_model(MODEL).parameters, rel=0.1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dtype": "mxfp8", "on": "H100:8"}, "does not multiply with a scale of 8 bits per 32 values"),
        ({"dtype": "nvfp4", "on": "H100:8"}, "has no fp4"),
        ({"dtype": "nvfp4", "on": "MI355X:8"}, "does not multiply with a scale of 8 bits per 16 values"),
        ({"dtype": "fp8-blocks", "on": "MI300X:8"}, "does not multiply with a scale per 128 values"),
        ({"dtype": "fp8-current", "on": "A100:8"}, "has no fp8"),
        ({"dtype": "fp8-rows"}, "the engine has no recipe fp8-rows"),
        ({"dtype": "fp8-blocks", "engine": "torchtitan"}, "the engine has no recipe fp8-blocks"),
        ({"dtype": "mxfp8", "engine": "torchtitan@2024-eager"}, "mxfp8 needs torch.compile"),
        ({"dtype": "mxfp8", "engine": "torch"}, "does not train in mxfp8"),
        ({"dtype": "mxfp8", "engine": "deepspeed"}, "mxfp8 is not priced under DeepSpeed"),
        ({"dtype": "mxfp8", "engine": "transformers", "zero": 0}, "mxfp8 is not priced"),
        ({"dtype": "mxfp8", "engine": "megatron@3.0"}, "GEMMs are in mxfp8, which is not priced"),
    ],
)
def test_what_has_none_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        step(**given)


def test_hints_name_formats_that_work() -> None:
    with pytest.raises(InputError) as error:
        step("mxfp8", on="H100:8")
    assert "fp8-blocks" in error.value.hint
    assert "mxfp8" not in error.value.hint
    with pytest.raises(InputError, match="no recipe") as error:
        step("fp8-rows")
    assert "mxfp8" in error.value.hint


def test_a_search_takes_them() -> None:
    found = gnomon.plan_training(MODEL, cluster="B200:8", seq=4096, global_batch=32, dtype="mxfp8")
    assert found.best.plan.dtype == "mxfp8"
    with pytest.raises(InputError, match="does not multiply"):
        gnomon.plan_training(MODEL, cluster="H100:8", seq=4096, global_batch=32, dtype="mxfp8")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("dtype", ["mxfp8", "fp8-rows", "fp8-current"])
def test_serving_has_none_of_them(engine: str, dtype: str) -> None:
    with pytest.raises(InputError):
        gnomon.predict(MODEL, on="B200", phase="decode", batch=1, context=100, dtype=dtype, engine=engine)


def test_rows_without_columns_are_cast_once() -> None:
    assert (ROWS.column_bytes, ROWS_WIDE_WGRAD.column_bytes) == (1.0, 0.0)
    assert CURRENT.reads == 2 * DELAYED.reads


def gathered(engine: str, dtype: str, **given: Any) -> tuple[Any, Any]:
    """A step with its weights gathered as they are multiplied, and without."""
    with_it, without = (step(dtype, engine, fp8_param_gather=asked, **given) for asked in (True, False))
    return with_it, without


@pytest.mark.parametrize("dtype", ["fp8", "fp8-current", "fp8-blocks", "mxfp8"])
def test_weights_gathered_narrow_have_no_copy_of_16_bits(dtype: str) -> None:
    with_it, without = gathered("megatron", dtype)
    narrow = layer("megatron", dtype).narrow_parameters * load_model(MODEL).layers
    saved = without.memory_parts[0]["weights"] - with_it.memory_parts[0]["weights"]
    assert saved == pytest.approx(2 * narrow)
    assert with_it.step_time_s.value <= without.step_time_s.value


@pytest.mark.parametrize(("engine", "zero"), [("megatron", 1), ("megatron", 2), ("megatron", 3), ("torchtitan", 3)])
def test_gathers_take_half_the_bytes_of_layers(engine: str, zero: int) -> None:
    """Over slow links a step is gathers: those of layers halve, those of embedding and head stay."""
    both = gathered(engine, "fp8", on="H100:64", zero=zero, seq=1024, global_batch=64)
    tables = [one.step.figures for one in both]
    gathers = [table.gather_s[0] if zero == 1 else table.chunks.kinds[0].forward_s[0] for table in tables]
    model = load_model(MODEL)
    narrow, all_of = layer(engine, "fp8").narrow_parameters * model.layers, model.parameters
    if zero == 1:
        assert gathers[0] / gathers[1] == pytest.approx(1 - narrow / all_of / 2, rel=0.05)
    if engine == "torchtitan":
        assert 0.5 <= gathers[0] / gathers[1] < 0.55  # latency does not halve
    assert both[0].step_time_s.value < both[1].step_time_s.value


def test_mxfp8_is_gathered_in_16_bits() -> None:
    with_it, without = gathered("megatron", "mxfp8", on="B200:64", seq=1024, global_batch=64)
    assert with_it.step.figures.gather_s[0] == without.step.figures.gather_s[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dtype": "bf16"}, "GEMMs in bf16 read weights as they are kept"),
        ({"dtype": "nvfp4"}, "weights are not gathered in nvfp4"),
        ({"dtype": "fp8", "zero": 0}, "and zero is 0"),
        ({"dtype": "mxfp8", "engine": "torchtitan", "zero": 3}, "gathers no weights in mxfp8"),
        ({"dtype": "fp8-rows", "engine": "torchtitan", "zero": 3}, "weights are not gathered in fp8-rows"),
    ],
)
def test_what_is_not_gathered_narrow_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        step(fp8_param_gather=True, **given)


def test_layers_in_bf16_are_those_of_bf16() -> None:
    """None of them is the recipe alone, all of them are bf16; more of them is no faster and no smaller in activations,
    on whichever stage they are."""
    ends = ("0,0", "1,1", "2,8", "16,16")
    found = [step("mxfp8", pp=2, bf16_layers=one) for one in ends]
    none, wide = step("mxfp8", pp=2), step("bf16", pp=2)
    for one, same in ((found[0], none), (found[-1], wide)):
        assert (one.step_time_s.value, one.memory_parts) == (same.step_time_s.value, same.memory_parts)
    times = [one.step_time_s.value for one in found]
    assert times == sorted(times)
    for rank in (0, 1):
        weights = [one.memory_parts[rank]["weights"] for one in found]
        assert weights == sorted(weights, reverse=True)
    narrow = layer("megatron", "mxfp8").narrow_parameters * MXFP8.weight_bytes
    first, last = (none.memory_parts[rank]["weights"] - found[2].memory_parts[rank]["weights"] for rank in (0, 1))
    assert (first, last) == pytest.approx((2 * narrow, 8 * narrow))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dtype": "bf16", "bf16_layers": "1,1"}, "all layers are in bf16"),
        ({"dtype": "mxfp8", "bf16_layers": "1"}, "'1' is not two counts of layers"),
        ({"dtype": "mxfp8", "bf16_layers": "a,b"}, "not two counts"),
        ({"dtype": "mxfp8", "bf16_layers": "30,30"}, "more than the 32 layers"),
        ({"dtype": "fp8", "bf16_layers": "1,1"}, "scales are those of earlier steps"),
    ],
)
def test_layers_that_cannot_be_in_bf16_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        step(**given)


@pytest.mark.parametrize("settings", [{"fp8_param_gather": True}, {"bf16_layers": "2,4"}])
def test_a_search_has_settings_of_formats_in_every_plan(settings: dict[str, Any]) -> None:
    """The best plan has them, and its step is that of the same plan simulated."""
    asked: dict[str, Any] = {"seq": 4096, "global_batch": 16, "dtype": "fp8-current"}
    found = gnomon.plan_training(MODEL, cluster="B200:8", **asked, **settings).best
    own = found.plan.engine.settings
    assert {name: own[name] for name in settings} == settings
    degrees = {name: getattr(found.plan.strategy, name) for name in ("tp", "pp", "vp", "cp", "dp")}
    same = gnomon.simulate_training(MODEL, on="B200:8", **asked, **(dict(own) | degrees))
    assert same.step_time_s.value == found.step_time_s.value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fp8_param_gather": True, "dtype": "bf16"}, "GEMMs in bf16 read weights as they are kept"),
        ({"fp8_param_gather": True, "dtype": "nvfp4"}, "weights are not gathered in nvfp4"),
        ({"bf16_layers": "1,1", "dtype": "fp8"}, "scales are those of earlier steps"),
        ({"bf16_layers": "20,20", "dtype": "mxfp8"}, "more than the 32 layers"),
    ],
)
def test_a_search_refuses_what_no_plan_could_have(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gnomon.plan_training(MODEL, cluster="B200:8", seq=4096, global_batch=16, **given)


@pytest.mark.parametrize("name", ["fp8", "fp8-current"])
def test_one_copy_where_gemms_read_it_along_either_side(name: str) -> None:
    """On data-centre Blackwell: a byte less of each weight and of each cast, as much saved; elsewhere, and of scales of
    blocks, both copies."""
    own = traits("megatron", name)
    for chip, one in (("H100", False), ("B200", True), ("GB300", True), ("RTX-5090", False)):
        on = own.on_chip(load_chip(chip)).style
        assert on.recipe.weight_bytes == (1.0 if one else 2.0)
        tape, both = layer("megatron", name, on), layer("megatron", name)
        assert tape.saved_activation_bytes("none") == both.saved_activation_bytes("none")
        less = {cast: value - casts(down(tape))[cast] for cast, value in casts(down(both)).items()}
        assert less == pytest.approx({"ffn.down.cast": one * INNER, "ffn.down.cast.by_input": one * HIDDEN})
    for other in ("fp8-blocks", "mxfp8", "nvfp4"):
        own = traits("megatron", other)
        assert own.on_chip(load_chip("B200")).style.recipe == own.style.recipe
    assert traits("torchtitan", "fp8").on_chip(load_chip("B200")).style == traits("torchtitan", "fp8").style
