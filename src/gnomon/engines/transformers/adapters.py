"""PEFT's adapters in the files of the transformers Trainer, and in commands and configurations that are read back.

Arguments have the names of TRL's `ModelConfig`, so that its commands say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.engines.training.expressed import Named
from gnomon.engines.training.imported import TrainingOptions
from gnomon.errors import InputError
from gnomon.spec.training_job import TrainingJob

LORA, QLORA, DORA = "lora", "qlora", "dora"
TECHNIQUES = (LORA, QLORA, DORA)
ALPHA = 2
"""Of the rank: a multiplier, which no time depends on."""
RANK, DROPOUT = 16, 0.05
"""TRL's defaults of `lora_r` and `lora_dropout`."""
MODULES: Mapping[str, tuple[str, ...]] = {
    "all-linear": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "qv": ("q_proj", "v_proj"),
}
"""The modules of Llama, Mistral and Qwen that have adapters, by what plans call them."""
FIELD = '''    weights: str = "float32"
    """The format that weights and optimizer states are kept in."""
'''
FIELDS = '''    use_peft: bool = False
    lora_r: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    lora_target_modules: list[str] | None = None
    use_dora: bool = False
    adapter_weights: str = "float32"
    """The format of adapters beside a network in 16 bits."""
    load_in_4bit: bool = False
    use_bnb_nested_quant: bool = False
'''
BUILT = "    model.config.use_cache = False\n"
ADDED = """    model = with_adapters(model, run, arguments)
"""
MAIN = "def main() -> None:\n"
FUNCTIONS = '''\
def with_adapters(model: torch.nn.Module, run: RunArguments, arguments: TrainingArguments) -> torch.nn.Module:
    """PEFT's adapters beside a frozen network, which bitsandbytes packs in 4 bits where that is asked for."""
    from peft import LoraConfig, get_peft_model

    if run.load_in_4bit:
        model = packed(model, run, arguments)
    if arguments.gradient_checkpointing:
        model.enable_input_require_grads()
    targets = run.lora_target_modules or ["all-linear"]
    config = LoraConfig(
        r=run.lora_r,
        lora_alpha=run.lora_alpha,
        lora_dropout=run.lora_dropout,
        target_modules="all-linear" if targets == ["all-linear"] else targets,
        use_dora=run.use_dora,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config, autocast_adapter_dtype=run.adapter_weights == "float32")


def packed(model: torch.nn.Module, run: RunArguments, arguments: TrainingArguments) -> torch.nn.Module:
    """The same weights in nf4: bitsandbytes quantises what it loads."""
    from transformers import BitsAndBytesConfig

    folder = "random-weights"
    with arguments.main_process_first():
        if arguments.process_index == 0:
            model.save_pretrained(folder)
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=run.use_bnb_nested_quant,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    here = {"": arguments.local_process_index}
    made = AutoModelForCausalLM.from_pretrained(folder, quantization_config=config, dtype=model.dtype, device_map=here)
    made.config.use_cache = False
    return made


'''


def asked(job: TrainingJob) -> tuple[str, Mapping[str, Any]] | None:
    """The technique of a job that trains adapters, with its values."""
    return next(((name, job.techniques[name]) for name in TECHNIQUES if name in job.techniques), None)


def arguments(job: TrainingJob, narrow: bool) -> dict[str, Any]:
    """Arguments of the script. `narrow` is of adapters in 16 bits."""
    found = asked(job)
    if found is None:
        return {}
    name, values = found
    targets = str(values["targets"])
    return {
        "use_peft": True,
        "lora_r": int(values["rank"]),
        "lora_alpha": ALPHA * int(values["rank"]),
        "lora_dropout": float(values["dropout"]),
        "lora_target_modules": [targets] if targets == "all-linear" else list(MODULES[targets]),
        "use_dora": name == DORA,
        "adapter_weights": "bfloat16" if narrow else "float32",
        "load_in_4bit": name == QLORA,
        **({"use_bnb_nested_quant": values["double_quant"] == "yes"} if name == QLORA else {}),
    }


def script(job: TrainingJob, text: str) -> str:
    """The script that trains a job, with adapters where it has them."""
    if asked(job) is None:
        return text
    for old, new in ((FIELD, FIELD + FIELDS), (BUILT, BUILT + ADDED), (MAIN, FUNCTIONS + MAIN)):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def read(options: TrainingOptions, trl: bool) -> tuple[Named, bool]:
    """The technique that options ask for, and whether its adapters are in 16 bits: TRL casts those beside 4-bit
    weights."""
    if not options.flag("use_peft"):
        return {}, False
    packed = options.flag("load_in_4bit")
    if options.flag("load_in_8bit"):
        options.unmodelled("load_in_8bit", "frozen weights in 8 bits: priced in 16")
    values: dict[str, Any] = {
        "rank": options.whole("lora_r", "lora_rank", default=RANK),
        "targets": _targets(options),
        "dropout": options.share("lora_dropout", default=DROPOUT if trl else 0.0),
    }
    for name in ("lora_modules_to_save", "lora_target_parameters"):
        if told := options.text(name):
            options.unmodelled(options.told(name, told), "further weights that are trained: priced as frozen")
    kind = options.text("bnb_4bit_quant_type", default="nf4")
    nested = options.flag("use_bnb_nested_quant", "bnb_4bit_use_double_quant")
    decomposed, narrow = options.flag("use_dora"), options.text("adapter_weights") == "bfloat16"
    if not packed:
        return {DORA if decomposed else LORA: values}, narrow
    if decomposed:
        raise InputError("magnitudes beside 4-bit weights are not priced", where=options.where("use_dora"))
    if kind not in ("nf4", "fp4"):
        raise InputError(f"'{kind}' is not known", where=options.where("bnb_4bit_quant_type"), hint="Use nf4 or fp4.")
    return {QLORA: {**values, "double_quant": "yes" if nested else "no"}}, narrow or trl


def _targets(options: TrainingOptions) -> str:
    """By the modules that are named; nothing named is PEFT's own choice for Llama and its kin."""
    value = options.take("lora_target_modules", "lora_targets")
    if value is None or value is True or value == "":
        return "qv"
    named = {word for text in (value if isinstance(value, tuple) else (value,)) for word in str(text).split(",")}
    if named == {"all-linear"}:
        return "all-linear"
    found = next((targets for targets, modules in MODULES.items() if named == set(modules)), "")
    if not found:
        known = "; ".join([*(", ".join(modules) for modules in MODULES.values()), "all-linear"])
        message = f"adapters of {', '.join(sorted(named))} are not priced"
        raise InputError(message, where=options.where("lora_target_modules"), hint=f"Those of these are: {known}.")
    return found
