"""From config.json to a `Model`: the readers of the families of architectures, each imported on first use."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

from gnomon.errors import InputError, unknown_name
from gnomon.load.families.base import Reader
from gnomon.load.fields import Fields, shown
from gnomon.spec import Model

FAMILIES: dict[str, tuple[str, ...]] = {
    "arcee": ("llama.nemotron", "ArceeForCausalLM"),
    "bart": ("bart", "BartForConditionalGeneration"),
    "bert": ("bert", "BertForMaskedLM", "BertModel"),
    "bloom": ("gpt.bloom", "BloomForCausalLM"),
    "cohere": ("cohere", "CohereForCausalLM"),
    "cohere2": ("cohere", "Cohere2ForCausalLM"),
    "dbrx": ("moe.dbrx", "DbrxForCausalLM"),
    "deepseek_v2": ("deepseek", "DeepseekV2ForCausalLM"),
    "deepseek_v3": ("deepseek", "DeepseekV3ForCausalLM"),
    "deepseek_v32": ("deepseek", "DeepseekV32ForCausalLM"),
    "dit": ("dit", "DiTTransformer2DModel"),
    "dots1": ("moe.dots", "Dots1ForCausalLM"),
    "ernie4_5": ("ernie", "Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"),
    "ernie4_5_moe": ("ernie", "Ernie4_5_MoeForCausalLM"),
    "exaone4": ("llama.exaone4", "Exaone4ForCausalLM"),
    "falcon": ("falcon", "FalconForCausalLM", "RWForCausalLM"),
    "gemma": ("gemma", "GemmaForCausalLM"),
    "gemma2": ("gemma", "Gemma2ForCausalLM"),
    "gemma3": ("gemma", "Gemma3ForConditionalGeneration"),
    "gemma3_text": ("gemma", "Gemma3ForCausalLM"),
    "glm": ("glm", "GlmForCausalLM"),
    "glm4": ("glm", "Glm4ForCausalLM"),
    "glm4_moe": ("glm", "Glm4MoeForCausalLM"),
    "glm4_moe_lite": ("deepseek", "Glm4MoeLiteForCausalLM"),
    "glm_moe_dsa": ("deepseek", "GlmMoeDsaForCausalLM"),
    "gpt2": ("gpt.gpt2", "GPT2LMHeadModel"),
    "gpt_bigcode": ("gpt.gpt2", "GPTBigCodeForCausalLM"),
    "gpt_neox": ("gpt.gpt_neox", "GPTNeoXForCausalLM"),
    "gpt_oss": ("moe.gpt_oss", "GptOssForCausalLM"),
    "gptj": ("gpt.gptj", "GPTJForCausalLM"),
    "granite": ("llama", "GraniteForCausalLM"),
    "granitemoe": ("granite", "GraniteMoeForCausalLM"),
    "granitemoehybrid": ("granite", "GraniteMoeHybridForCausalLM"),
    "granitemoeshared": ("granite", "GraniteMoeSharedForCausalLM"),
    "hunyuan_v1_dense": ("moe.hunyuan", "HunYuanDenseV1ForCausalLM"),
    "hunyuan_v1_moe": ("moe.hunyuan", "HunYuanMoEV1ForCausalLM"),
    "jamba": ("jamba", "JambaForCausalLM"),
    "kimi_k2": ("deepseek", "KimiK2ForCausalLM"),
    "lfm2": ("lfm2", "Lfm2ForCausalLM"),
    "lfm2_moe": ("lfm2", "Lfm2MoeForCausalLM"),
    "llama": ("llama", "LlamaForCausalLM", "LLaMAForCausalLM"),
    "llama4": ("llama4", "Llama4ForConditionalGeneration"),
    "llama4_text": ("llama4", "Llama4ForCausalLM"),
    "llava": ("llava", "LlavaForConditionalGeneration"),
    "mamba": ("mamba", "MambaForCausalLM"),
    "mamba2": ("mamba", "Mamba2ForCausalLM"),
    "minimax": ("minimax", "MiniMaxForCausalLM", "MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM"),
    "minimax_m2": ("minimax", "MiniMaxM2ForCausalLM"),
    "ministral3": ("llama", "Ministral3ForCausalLM"),
    "mistral": ("llama", "MistralForCausalLM"),
    "mistral3": ("mistral3", "Mistral3ForConditionalGeneration"),
    "mixtral": ("moe.mixtral", "MixtralForCausalLM"),
    "mllama": ("mllama", "MllamaForConditionalGeneration"),
    "modernbert": ("modernbert", "ModernBertForMaskedLM", "ModernBertModel"),
    "mpt": ("gpt.mpt", "MptForCausalLM", "MPTForCausalLM"),
    "nemotron": ("llama.nemotron", "NemotronForCausalLM"),
    "nemotron_h": ("nemotron_h", "NemotronHForCausalLM"),
    "olmo": ("olmo", "OlmoForCausalLM"),
    "olmo2": ("olmo", "Olmo2ForCausalLM"),
    "olmo3": ("olmo", "Olmo3ForCausalLM"),
    "olmoe": ("olmo", "OlmoeForCausalLM"),
    "opt": ("gpt.opt", "OPTForCausalLM"),
    "phi": ("phi", "PhiForCausalLM"),
    "phi3": ("phi", "Phi3ForCausalLM"),
    "phimoe": ("phi", "PhimoeForCausalLM", "PhiMoEForCausalLM"),
    "qwen2": ("qwen", "Qwen2ForCausalLM"),
    "qwen2_5_vl": ("qwen_vl", "Qwen2_5_VLForConditionalGeneration"),
    "qwen2_moe": ("qwen", "Qwen2MoeForCausalLM"),
    "qwen2_vl": ("qwen_vl", "Qwen2VLForConditionalGeneration"),
    "qwen3": ("qwen", "Qwen3ForCausalLM"),
    "qwen3_5": ("qwen3_vl", "Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"),
    "qwen3_5_moe": ("qwen3_vl", "Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"),
    "qwen3_moe": ("qwen", "Qwen3MoeForCausalLM"),
    "qwen3_next": ("qwen3_next", "Qwen3NextForCausalLM"),
    "qwen3_vl": ("qwen3_vl", "Qwen3VLForConditionalGeneration"),
    "qwen3_vl_moe": ("qwen3_vl", "Qwen3VLMoeForConditionalGeneration"),
    "roberta": ("bert", "RobertaForMaskedLM", "RobertaModel"),
    "seed_oss": ("llama", "SeedOssForCausalLM"),
    "smollm3": ("llama.smollm3", "SmolLM3ForCausalLM"),
    "stablelm": ("llama.stablelm", "StableLmForCausalLM", "StableLMEpochForCausalLM"),
    "starcoder2": ("llama.starcoder2", "Starcoder2ForCausalLM"),
    "t5": ("t5", "T5ForConditionalGeneration"),
    "wan": ("wan", "WanTransformer3DModel"),
    "whisper": ("whisper", "WhisperForConditionalGeneration"),
    "xlm-roberta": ("bert", "XLMRobertaForMaskedLM", "XLMRobertaModel"),
}
"""Families by `model_type`: the module that reads them (and its function, unless that is `read`), then the names of
their architectures."""
ARCHITECTURES = {name: family for family, (_, *names) in FAMILIES.items() for name in names}


ACTIVATIONS = (
    "gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_python_tanh", "gelu_pytorch_tanh",
    "laplace", "leaky_relu", "linear", "mish", "prelu", "quick_gelu", "relu", "relu2", "relu6", "sigmoid", "silu",
    "swish", "tanh", "xielu",
)  # fmt: skip
"""The names that transformers accepts (`ACT2FN`)."""


def read_family(config: Fields) -> Model:
    """The model of one config; the caller adds its name and source."""
    family = _family(config)
    for part in (config, config.inner("text_config")):
        _check_unpriced(part)
    module, _, function = FAMILIES[family][0].partition(".")
    reader: Reader = getattr(import_module(f"gnomon.load.families.{module}"), function or "read")
    return reader(config, family)


def _family(config: Fields) -> str:
    key, value = _named(config)
    family = value if key == "model_type" and value in FAMILIES else ARCHITECTURES.get(value, "")
    if not family:
        raise _unsupported(config, key, value)
    given = config.text("model_type", family)
    if given in FAMILIES and FAMILIES[given][0] != FAMILIES[family][0]:
        hint = "One of the two is wrong: these are different architectures."
        raise InputError(f"'{given}' is not the model type of {value}", where=config.spot("model_type"), hint=hint)
    return family


def _check_unpriced(config: Fields) -> None:
    """Raise for invalid values of fields that neither shapes nor times depend on."""
    for key in ("hidden_act", "hidden_activation", "mlp_hidden_act", "activation_function"):
        if config.has(key) and config.text(key) not in ACTIVATIONS:
            raise unknown_name("activation", config.text(key), ACTIVATIONS, where=config.spot(key))
    if config.has("sliding_window"):
        config.whole("sliding_window", least=0)


def _named(config: Fields) -> tuple[str, str]:
    """The field that names the architecture (`_class_name` in files of diffusers), and its value."""
    named = config.list("architectures")
    if len(named) > 1 or not all(isinstance(name, str) for name in named):
        raise InputError(f"{shown(named)} is not one architecture", where=config.spot("architectures"))
    if named:
        return "architectures", named[0]
    key = "_class_name" if config.has("_class_name") else "model_type"
    return key, config.text(key)


def _unsupported(config: Fields, key: str, value: str) -> InputError:
    near = get_close_matches(value, FAMILIES if key == "model_type" else ARCHITECTURES, n=3, cutoff=0.5)
    hint = f"Near: {', '.join(near)}. " if near else ""
    hint += (
        "If its layers are those of a supported architecture, name that in a copy of the file; else write its shapes "
        "in YAML (docs/formats.md), starting from what `gnomon models show NAME --shapes` prints."
    )
    hint += " Its remote code is never run." if config.has("auto_map") else ""
    return InputError(f"the architecture {shown(value)} is not supported", where=config.spot(key), hint=hint)
