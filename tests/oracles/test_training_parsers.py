"""What the real programs read of exported training plans: TorchTitan's configuration manager, DeepSpeed's and
Accelerate's configurations, the arguments of the transformers Trainer, and its training for a few steps on a CPU."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.export.training import own_arguments, plan_for
from tests.export.training_battery import MODELS, plans_of
from tests.oracles.torchtitan_config import manager, parsed

from gnomon.engines.training.stages import Stages
from gnomon.export import target
from gnomon.graph.gemm_recipes import GEMM_RECIPES
from gnomon.load import model as load_model
from gnomon.load.recipe import recipe_of
from gnomon.spec import Plan, Recipe, Strategy, TrainingLoad
from gnomon.spec.loads.lengths.uniform import Uniform
from gnomon.spec.loads.sequences import Sequences
from gnomon.spec.training import GROUP_BY_LENGTH
from gnomon.techniques import TRAINING, applied

pytestmark = pytest.mark.oracle
PLANS = 6


def written(plan: Plan, name: str, folder: Path) -> dict[str, str]:
    files = dict(target(name).render(plan).files)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text)
    return files


def load_of(plan: Plan) -> TrainingLoad:
    assert isinstance(plan.load, TrainingLoad)
    return plan.load


@pytest.mark.parametrize("model", MODELS["torchtitan"])
def test_torchtitan_makes_the_plans_configuration(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager()
    for place, plan in enumerate(plans_of("torchtitan", model, 5, PLANS)):
        folder = tmp_path / str(place)
        written(plan, "torchtitan", folder)
        config = parsed(folder, ["--module", "recipe", "--config", "plan"], monkeypatch)
        check_torchtitan(plan, config)


def check_torchtitan(plan: Plan, config: Any) -> None:
    strategy, recipe, load = plan.strategy, recipe_of(plan.engine.settings), load_of(plan)
    cut = config.parallelism
    degrees = (cut.tensor_parallel_degree, cut.pipeline_parallel_degree, cut.context_parallel_degree)
    assert degrees == (strategy.tp, strategy.pp, strategy.cp)
    assert cut.data_parallel_replicate_degree * cut.data_parallel_shard_degree == strategy.dp
    assert cut.expert_parallel_degree == strategy.ep
    assert (cut.data_parallel_shard_degree > 1) == (recipe.zero >= 2 and strategy.dp > 1)
    assert (config.training.seq_len, config.training.global_batch_size) == (load.seq, load.global_batch)
    assert config.training.steps == (20 if load.steps is None else load.steps)
    each = cut.pipeline_parallel_microbatch_size if strategy.pp > 1 else config.training.local_batch_size
    assert each == recipe.micro_batch
    assert config.training.global_batch_size % (config.training.local_batch_size * strategy.dp) == 0
    kinds = {"none": "NoneType", "selective": "SelectiveAC", "full": "FullAC"}
    kind = type(config.activation_checkpoint)
    assert kinds[recipe.recompute] in kind.__qualname__
    assert config.compile.enable
    named = applied(TRAINING, plan.strategy.techniques).names
    assert config.training.enable_cpu_offload == ("offload-parameters" in named)
    assert config.training.dtype == ("bfloat16" if recipe.optimizer == "adamw-bf16" else "float32")
    if strategy.pp > 1:
        parts = [sum(name.startswith("layers.") for name in part) for part in cut.module_fqns_per_model_part]
        assert parts == Stages(load_model(plan.model)).sizes(strategy.pp * strategy.vp).tolist()
    check_torchtitan_network(plan, config)


def check_torchtitan_network(plan: Plan, config: Any) -> None:
    """Its network has our network's parameters, counted where PyTorch makes them without memory."""
    import torch

    model, made = load_model(plan.model), config.model_spec.model
    assert (made.dim, made.vocab_size, len(made.layers)) == (model.hidden, model.vocab, model.layers)
    made.update_from_config(config=config)
    assert layer_classes(made) == layers_of(plan.dtype)
    if plan.dtype in GEMM_RECIPES or model.layers > 40:  # float8 layers are made on a GPU; large ones take a while
        return
    with torch.device("meta"):
        network = made.build()
    assert sum(math.prod(one.shape) for one in network.parameters()) == model.parameters


def layer_classes(network: Any) -> set[str]:
    """Linear layers of a network's decoder layers and of its head, by their class and TorchTitan's recipe."""
    from torchao.float8 import Float8LinearConfig
    from torchtitan.models.common.linear import Linear

    eight = {name: Float8LinearConfig.from_recipe_name(name) for name in ("rowwise", "rowwise_with_gw_hp")}
    found = set()
    for name, config, _, _ in network.traverse(Linear.Config):
        if "router" not in name:
            own = getattr(config, "_torchao_config", None)
            recipe = next((one for one, made in eight.items() if made == own), "")
            found.add(f"{'head' if 'lm_head' in name else 'layers'} {type(config).__qualname__} {recipe}".strip())
    return found


def layers_of(dtype: str) -> set[str]:
    """What they should be: the head stays as it is."""
    eight = {"fp8-rows": "rowwise", "fp8-rows-hp": "rowwise_with_gw_hp"}
    named = {"mxfp8": "MXFP8Linear.Config", "nvfp4": "NVFP4Linear.Config"}
    named |= {name: f"Float8Linear.Config {recipe}" for name, recipe in eight.items()}
    return {f"layers {named.get(dtype, 'Linear.Config')}", "head Linear.Config"}


@pytest.mark.parametrize("dtype", ["fp8-rows", "mxfp8", "nvfp4"])
def test_torchtitan_leaves_layers_in_bf16(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first layer and the last three, and none whose number begins like theirs."""
    from torchtitan.models.common.linear import Linear

    plan = plan_for("torchtitan", dtype=dtype, chip="B200")
    settings = Recipe(bf16_layers="1,3").settings
    plan = replace(plan, engine=replace(plan.engine, settings=settings))
    written(plan, "torchtitan", tmp_path)
    made = parsed(tmp_path, ["--module", "recipe", "--config", "plan"], monkeypatch).model_spec.model
    wide = {
        int(name.split(".")[1])
        for name, config, _, _ in made.traverse(Linear.Config)
        if "layers." in name and type(config) is Linear.Config
    }
    count = load_model(plan.model).layers
    assert wide == {0, count - 3, count - 2, count - 1}


class Mpu:
    """What DeepSpeed asks of Megatron for the number of data-parallel ranks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def get_data_parallel_world_size(self) -> int:
        return self.plan.strategy.dp


@pytest.fixture
def deepspeed_config(monkeypatch: pytest.MonkeyPatch) -> Any:
    """DeepSpeed's own reader of configurations, as the first of its ranks."""
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed; run `make test-oracles`")
    from deepspeed.runtime import config

    monkeypatch.setattr(config.dist, "get_rank", lambda: 0)
    return config.DeepSpeedConfig


@pytest.mark.parametrize("model", MODELS["deepspeed"])
def test_deepspeed_makes_the_plans_configuration(model: str, tmp_path: Path, deepspeed_config: Any) -> None:
    for place, plan in enumerate(plans_of("deepspeed", model, 5, PLANS)):
        written(plan, "deepspeed", tmp_path / str(place))
        config = deepspeed_config(str(tmp_path / str(place) / "ds_config.json"), mpu=Mpu(plan))
        recipe, load = recipe_of(plan.engine.settings), load_of(plan)
        assert config.zero_optimization_stage == recipe.zero
        assert config.train_micro_batch_size_per_gpu == recipe.micro_batch
        assert config.train_batch_size == load.global_batch
        assert config.gradient_accumulation_steps * recipe.micro_batch * plan.strategy.dp == load.global_batch
        assert (config.bfloat16_config.enabled, config.float16_config.enabled) == (
            plan.dtype == "bf16",
            plan.dtype == "fp16",
        )
        assert config.gradient_clipping == 1.0
        named = applied(TRAINING, plan.strategy.techniques).values
        for technique, placed in (
            ("offload-optimizer", config.zero_config.offload_optimizer),
            ("offload-parameters", config.zero_config.offload_param),
        ):
            assert (placed is not None) == (technique in named)
            if placed is not None:
                device = {"host": "cpu", "nvme": "nvme"}[str(named[technique]["tier"])]
                assert str(placed.device) == device and (placed.nvme_path is not None) == (device == "nvme")
        if config.zero_config.offload_optimizer is not None:
            assert config.zero_config.offload_optimizer.ratio == named["offload-optimizer"]["share"]
        assert config.activation_checkpointing_config.cpu_checkpointing == ("offload-activations" in named)


def test_deepspeed_refuses_what_is_not_its(tmp_path: Path, deepspeed_config: Any) -> None:
    plan = plan_for("deepspeed")
    config = json.loads(written(plan, "deepspeed", tmp_path)["ds_config.json"])
    with pytest.raises(AssertionError, match="batch"):
        deepspeed_config(config | {"train_batch_size": 63}, mpu=Mpu(plan))


@pytest.mark.parametrize("model", MODELS["transformers"])
def test_accelerate_and_the_trainer_take_the_plan(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate", reason="Accelerate is not installed; run `make test-oracles`")
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from transformers import AutoConfig, HfArgumentParser, TrainingArguments

    for place, plan in enumerate(plans_of("transformers", model, 5, PLANS)):
        folder = tmp_path / str(place)
        written(plan, "transformers", folder)
        recipe, load = recipe_of(plan.engine.settings), load_of(plan)
        loaded = load_config_from_file(str(folder / "accelerate.yaml"))
        assert loaded.num_processes == plan.chips
        words = ["--config_file", str(folder / "accelerate.yaml"), "--machine_rank", "0", "--main_process_ip", "a"]
        arguments, *_ = _validate_launch_command(launch_command_parser().parse_args([*words, "train.py", "x.yaml"]))
        offload = any("offload" in text for text in plan.strategy.techniques)
        assert bool(arguments.use_deepspeed) == (recipe.zero == 1 or offload)
        assert bool(arguments.use_fsdp) == (recipe.zero >= 2 and not offload)
        if arguments.use_deepspeed:
            assert int(arguments.zero_stage) == recipe.zero
        if arguments.use_fsdp:
            assert str(arguments.fsdp_reshard_after_forward).lower() == str(recipe.zero == 3).lower()
        fields = yaml.safe_load((folder / "training.yaml").read_text())
        own = own_arguments((folder / "train.py").read_text()) & set(fields)
        assert {name: fields.pop(name) for name in own}["sequence_length"] == load.seq
        fields |= {"bf16": False, "fp16": False, "use_cpu": True}  # which a CPU build refuses, or does in another way
        monkeypatch.chdir(folder)
        (made,) = HfArgumentParser(TrainingArguments).parse_dict(fields)
        assert made.per_device_train_batch_size == recipe.micro_batch
        each = recipe.micro_batch * plan.strategy.dp
        assert made.gradient_accumulation_steps * each == load.global_batch
        assert made.gradient_checkpointing == (recipe.recompute == "full")
        assert made.max_steps == (20 if load.steps is None else load.steps)
        network = AutoConfig.from_pretrained(folder)
        assert network.num_hidden_layers == load_model(plan.model).layers


@pytest.mark.parametrize(
    ("zero", "processes", "packing"), [(0, 1, ""), (0, 2, ""), (3, 2, ""), (0, 2, "none"), (0, 1, "max-length")]
)
def test_the_trainer_trains(zero: int, processes: int, packing: str, tmp_path: Path) -> None:
    """The exported files as they are, for a network of two layers on a CPU: Accelerate starts them, and steps run; with
    a packing on sequences that differ in length, grouped by it."""
    pytest.importorskip("accelerate", reason="Accelerate is not installed; run `make test-oracles`")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    plan = plan_for(
        "transformers",
        model=str(tmp_path / "model"),
        strategy=Strategy(dp=processes),
        load=TrainingLoad(
            seq=64, global_batch=4 * processes, tokens=64.0 * 4 * processes * 3, sequences=packed_as(packing)
        ),
    )
    settings = Recipe(zero=zero, micro_batch=2).settings
    plan = Plan(**{name: getattr(plan, name) for name in ("model", "chip", "replicas", "strategy", "dtype", "load")},
                engine=type(plan.engine)(name="transformers", settings=settings))  # fmt: skip
    folder = tmp_path / "out"
    written(plan, "transformers", folder)
    launched = yaml.safe_load((folder / "accelerate.yaml").read_text())
    launched |= {"use_cpu": True, "mixed_precision": "no"}
    if zero == 0:
        launched["distributed_type"] = "MULTI_CPU" if processes > 1 else "NO"
    (folder / "accelerate.yaml").write_text(yaml.safe_dump(launched))
    training = yaml.safe_load((folder / "training.yaml").read_text())
    (folder / "training.yaml").write_text(
        yaml.safe_dump(training | {"use_cpu": True, "bf16": False, "optim": "adamw_torch"})
    )
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    environment |= {"MASTER_PORT": str(29600 + 10 * zero + processes), "ACCELERATE_USE_CPU": "true"}
    for _ in range(3):  # with FSDP on a CPU a rank may abort after its last step, when PyTorch lets gloo's threads go
        done = subprocess.run(
            ["bash", "run.sh"], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode == 0 or "terminate called without an active exception" not in done.stderr:
            break
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "train_loss" in done.stdout + done.stderr


def packed_as(packing: str) -> Sequences | None:
    lengths = Uniform(low=5, high=60)
    return Sequences(lengths=lengths, packing=packing, sampling=GROUP_BY_LENGTH) if packing else None


def test_flavors_and_presets_are_torchtitans() -> None:
    """The tables that imports and exports go by are those of TorchTitan's registry."""
    manager()
    from importlib import import_module

    from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC

    from gnomon.engines.torchtitan.network import FLAVORS
    from gnomon.engines.torchtitan.recipes import CHECKPOINTING, FLAVOR, REGISTRY

    for (module, flavor), sizes in FLAVORS.items():
        model = import_module(f"torchtitan.models.{module}").model_registry(flavor).model
        attention = model.layers[0].attention
        assert (len(model.layers), model.dim, attention.n_heads, attention.n_kv_heads) == sizes[:4], flavor
        assert model.vocab_size == sizes[5], flavor
    modes = {SelectiveAC.Config: "selective", FullAC.Config: "full"}
    for module, presets in REGISTRY.items():
        registry = import_module(f"torchtitan.models.{module}.config_registry")
        for name, preset in presets.items():
            if name.endswith("405b"):  # whose float8 layers need a GPU
                continue
            config = getattr(registry, name)()
            assert config.model_spec.flavor == preset[FLAVOR], name
            training = config.training
            found = (training.local_batch_size, training.seq_len, training.steps)
            keys = ("training.local_batch_size", "training.seq_len", "training.steps")
            assert found == tuple(int(str(preset[key])) for key in keys), name
            assert modes[type(config.activation_checkpoint)] == preset[CHECKPOINTING], name
            degree = preset.get("parallelism.tensor_parallel_degree", "1")
            assert config.parallelism.tensor_parallel_degree == int(str(degree)), name
