"""`simulate train` and `plan train`: a training job, with its degrees and recipe given or looked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnomon.errors import InputError, unknown_name
from gnomon.spec.questions.base import COUNTS, Question, argument, flag
from gnomon.spec.questions.parts import MODEL_HELP, ON_HELP, power_limit, techniques
from gnomon.spec.questions.run import RunQuestion, check_run
from gnomon.spec.recompute import parse
from gnomon.spec.reliability import CHECKPOINT_MODES
from gnomon.spec.training import (
    CP_COMM_NAMES,
    DISPATCHES,
    MAX_ZERO,
    OPTIMIZERS,
    PACKINGS,
    PRECISION,
    SAMPLINGS,
    SETTINGS,
    TrainingLoad,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.spec.cluster import Pool
    from gnomon.spec.model import Model

MOST_DEGREE = 1_000_000
MOST_BATCH = 1_000_000
MOST_TOKENS = 2**31
"""Of one sequence."""
MOST_IMAGES = 100_000
MOST_MTP = 64
NAMES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "optimizer": ("optimizer", OPTIMIZERS),
    "cp_comm": ("context-parallel communication", CP_COMM_NAMES),
    "dispatch": ("dispatch of tokens to experts", DISPATCHES[1:]),
    "checkpoint_mode": ("checkpoint mode", CHECKPOINT_MODES),
    "packing": ("packing", PACKINGS),
    "sampling": ("sampling", SAMPLINGS),
}
"""Fields that take one of a few names: what such a name is, and all of them."""
OPTIMIZER_HELP = (
    "adamw (fp32 weights and moments beside the working weights), adamw-bf16 (everything in bf16), "
    "adamw-moments-bf16 (moments in bf16 beside fp32 weights), adam8bit, sgd, "
    "adafactor, lion or muon."
)
CP_COMM_HELP = (
    "How context-parallel ranks exchange keys and values, as Megatron's --cp-comm-type: p2p (ring attention, where it "
    "is not given), a2a (Ulysses: tokens for heads), allgather, or a2a+p2p (with --cp-a2a)."
)
RECOMPUTE_HELP = (
    "What the backward pass recomputes to save memory: none (where it is not given), selective (what the engine means "
    "by it), full, op (by operator), modules=core_attn+mlp (also moe, moe_act, layernorm, mla_up_proj, "
    "shared_experts), full:block=4 (the first 4 layers of each stage), full:uniform=2 (2 layers at a time) or every=2 "
    "(every second layer)."
)
LENGTHS_HELP = (
    "Tokens of sequences that differ, cut to --seq: lognormal:mean=700,cv=1.2, lognormal:p50=400,p99=6000, "
    "uniform:low=100,high=500, or file:FILE with a length per line, a histogram in CSV or JSONL."
)
PACKING_HELP = (
    "How batches are made of them: none (padded to the longest of a micro-batch), max-length (padded to --seq), "
    "wrapped (one after the other, cut every --seq tokens), bfd or ffd (packed best-fit or first-fit decreasing) or "
    "padding-free (flattened). With packed ones, batches count packed sequences."
)
SAMPLING_HELP = (
    "Which sequences come together: random (the default), group-by-length, or balanced (dealt out so that "
    "data-parallel ranks have equal work)."
)
MASKING_HELP = "Whether tokens of packed sequences attend to their own document alone; else as the engine usually does."
WITH = "techniques"
"""Which an error calls by this name where it is no list at all."""
SETTINGS_OF_PLAN = ("", "strategy.", "load.", "engine.settings.", "engine.settings, field ")
"""How the fields of a plan begin that flags of these questions become."""


def dtype() -> Any:
    """`--dtype D`."""
    return flag("--dtype", "dtype", "D", "Number format of the weights, such as fp8.", default=None)


def degree(name: str, what: str, note: str = "", *, default: int | None = 1) -> Any:
    return flag(f"--{name}", "whole", "N", f"{what} parallel degree.{note}", default=default, most=MOST_DEGREE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingQuestion(RunQuestion):
    """A model trained on batches of equal sequences."""

    model: str | Path | Model = argument("model", "MODEL", MODEL_HELP)
    seq: int = flag("--seq", "whole", "S", f"Tokens of a sequence. {COUNTS}", most=MOST_TOKENS)
    global_batch: int = flag("--global-batch", "whole", "B", "Sequences of a step.", most=MOST_BATCH)
    tokens: float | None = flag("--tokens", "count", "T", "Tokens of the whole run, such as 300B.", default=None)
    optimizer: str = flag("--optimizer", "optimizer", "NAME", OPTIMIZER_HELP, default="adamw")
    dtype: str | None = dtype()
    engine: str = flag(
        "--engine",
        "training_engine",
        "NAME[@VERSION]",
        "{training_engines}.",
        default="megatron",
    )
    images: int | None = flag(
        "--images", "whole", "N", "Images of a sequence, through the vision tower; without any, text trains the "
        "decoder alone.", default=None, most=MOST_IMAGES,
    )  # fmt: skip
    image: str | None = flag("--image", "text", "WxH", "Size of the images: 1024x1024.", default=None)
    source: int | None = flag(
        "--source", "whole", "N", "Tokens or frames of the encoder's sequence, or of the text that a diffusion "
        "transformer attends to; the most where it is not given.", default=None, most=MOST_TOKENS,
    )  # fmt: skip
    freeze: str | None = flag(
        "--freeze", "text", "PART,…", "What does not learn of a vision-language model: vision (its tower), projector.",
        default=None,
    )  # fmt: skip
    mtp_layers: int = flag(
        "--mtp-layers", "whole", "N", "Layers that predict tokens after the next (multi-token prediction), as "
        "Megatron's --mtp-num-layers.", default=0, least=0, most=MOST_MTP,
    )  # fmt: skip
    fp8_param_gather: bool = flag(
        "--fp8-param-gather", "switch", "", "Whether weights are kept and gathered in the format "
        "of their GEMMs, as Megatron's option of this name and torchao's enable_fsdp_float8_all_gather do.",
        default=False,
    )  # fmt: skip
    bf16_layers: str | None = flag(
        "--bf16-layers", "text", "N,N", "First and last layers whose GEMMs stay in bf16 where others run in eight bits "
        "or fewer: 1,1 (Megatron's --first-last-layers-bf16).", default=None,
    )  # fmt: skip
    techniques: Sequence[str] = techniques()
    power_limit_w: float | None = power_limit()
    lengths: int | str | None = flag("--lengths", "length", "DISTRIBUTION", LENGTHS_HELP, default=None)
    packing: str | None = flag("--packing", "packing", "NAME", PACKING_HELP, default=None)
    sampling: str | None = flag("--sampling", "sampling", "NAME", SAMPLING_HELP, default=None)
    document_masking: bool | None = flag(
        "--document-masking/--no-document-masking", "switch", "", MASKING_HELP, default=None
    )
    seed: int = flag("--seed", "size", "S", "Seed of the drawn lengths.", default=0, least=0)

    def __post_init__(self) -> None:
        Question.__post_init__(self)
        check_names(self)
        if self.tokens == 0:
            raise InputError("'0' is not above zero", where="--tokens")
        check_run(self, self.run_tokens)

    @property
    def run_tokens(self) -> float | None:
        """Tokens of the full run; None where there is no such run."""
        return self.tokens

    @property
    def lengths_given(self) -> dict[str, Any]:
        """What was asked for about lengths, None where nothing was."""
        names = ("packing", "sampling", "document_masking")
        return {name: getattr(self, name) for name in names} | {"seed": self.seed or None}

    @property
    def precision_given(self) -> dict[str, Any]:
        """Settings of formats, where they are asked for: those that every plan of a search has."""
        return {name: value for name in PRECISION if (value := getattr(self, name))}

    @property
    def load(self) -> TrainingLoad:
        return TrainingLoad(
            seq=self.seq, global_batch=self.global_batch, tokens=self.tokens, images=self.images or 0,
            image=self.image or "", source=self.source or 0, freeze=self.freeze or "", mtp_layers=self.mtp_layers,
        )  # fmt: skip

    @classmethod
    def places(cls) -> dict[str, str]:
        """The flag of every field of a plan that an error may be about."""
        return plan_places(cls)


def plan_places(question: type[Question]) -> dict[str, str]:
    """By the fields of a plan, the flags of a question that they come from."""
    own = {name: each.where for name, each in question.flags().items()}
    found = {begin + name: flag for name, flag in own.items() for begin in SETTINGS_OF_PLAN if begin or name != WITH}
    chips = own.get("on") or own["cluster"]
    return found | {"strategy": chips, "strategy, pp x vp": "--pp x --vp", "strategy.techniques": "--with"}


def check_names(question: Question) -> None:
    """Raise InputError for a name that is not one of those there are."""
    for name, each in type(question).flags().items():
        value = getattr(question, name)
        if value is not None and name in NAMES and value not in NAMES[name][1]:
            raise unknown_name(NAMES[name][0], value, NAMES[name][1], where=each.where)
        if value is not None and name == "recompute":
            parse(value, each.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateTrainingQuestion(TrainingQuestion):
    """One training step, with its degrees and recipe. What is None is what techniques set, or else the usual."""

    on: str | Pool = flag("--on", "chips", "CHIP[:N]", ON_HELP)
    micro_batch: int = flag(
        "--micro-batch", "whole", "b", "Sequences a rank takes through at a time.", default=1, most=MOST_DEGREE
    )
    tp: int = degree("tp", "Tensor")
    pp: int | None = degree("pp", "Pipeline", " 1 where it is not given.", default=None)
    vp: int | None = flag(
        "--vp", "whole", "N", "Parts of the network a pipeline rank holds; 1 where it is not given.", default=None,
        most=MOST_DEGREE,
    )  # fmt: skip
    cp: int | None = degree("cp", "Context", " 1 where it is not given.", default=None)
    ep: int = degree("ep", "Expert", " Ranks that full experts are spread over.")
    dp: int | None = degree("dp", "Data", " All chips the other degrees leave where it is not given.", default=None)
    zero: int = flag(
        "--zero", "whole", "0..3", "What data-parallel ranks share out: 1 optimizer states, 2 gradients too, 3 weights "
        "too.", default=0, least=0, most=MAX_ZERO,
    )  # fmt: skip
    schedule: str | None = flag(
        "--schedule", "schedule", "NAME", "Order of the pipeline's passes: {schedules}.", default=None
    )
    recompute: str | None = flag(
        "--recompute", "recompute", "MODE", RECOMPUTE_HELP, default=None,
    )  # fmt: skip
    sequence_parallel: bool = flag(
        "--sequence-parallel/--no-sequence-parallel", "switch", "",
        "Whether tensor-parallel ranks also cut the sequence between matrices.", default=True,
    )  # fmt: skip
    cp_comm: str | None = flag("--cp-comm", "cp_comm", "NAME", CP_COMM_HELP, default=None)
    expert_tp: int = flag(
        "--expert-tp", "whole", "N", "Ranks each expert is cut over: 1, or 0 for as many as other matrices.",
        default=0, least=0,
    )  # fmt: skip
    dp_shard: int = flag(
        "--dp-shard", "whole", "N", "Data-parallel ranks that share out what --zero names, where the rest replicate it "
        "(HSDP); 0 for all.", default=0, least=0, most=MOST_DEGREE,
    )  # fmt: skip
    tp_overlap: bool = flag(
        "--tp-overlap", "switch", "", "Whether tensor-parallel collectives are cut into pieces that "
        "overlap with GEMMs, as TorchTitan's async tensor parallelism and Megatron's --tp-comm-overlap do.",
        default=False,
    )  # fmt: skip
    cp_a2a: int = flag(
        "--cp-a2a", "whole", "N", "With --cp-comm a2a+p2p, neighbours that trade tokens for heads; keys travel around "
        "a ring of the others (Megatron's --hierarchical-context-parallel-sizes N M).",
        default=0, least=0, most=MOST_DEGREE,
    )  # fmt: skip
    dispatch: str | None = flag(
        "--dispatch", "dispatch", "NAME", "How tokens get to experts of other ranks: alltoall (a copy for each), "
        "deepep (once to each node and rank) or deepep-fp8; else as the engine usually does.", default=None,
    )  # fmt: skip
    capacity_factor: float = flag(
        "--capacity-factor", "factor", "F", "Tokens that an expert takes at most, of an equal share; the others are "
        "dropped. 0 drops none.", default=0.0,
    )  # fmt: skip
    pad_to_capacity: bool = flag(
        "--pad-to-capacity", "switch", "", "Whether experts compute as many rows as they may take.", default=False
    )
    imbalance: float = flag(
        "--imbalance", "factor", "F", "Tokens of the expert-parallel rank that gets most, over the mean; 1 is even.",
        default=1.0,
    )  # fmt: skip
    ep_overlap: bool = flag(
        "--ep-overlap", "switch", "", "Whether tokens are exchanged with experts while another micro-batch computes "
        "(Megatron's --overlap-moe-expert-parallel-comm).", default=False,
    )  # fmt: skip
    cuda_graphs: bool = flag(
        "--cuda-graphs", "switch", "", "Whether kernels of the same sizes in every step are replayed from CUDA graphs: "
        "all, or without --pad-to-capacity those before tokens go to experts (Megatron's --cuda-graph-impl).",
        default=False,
    )  # fmt: skip
    hpz: int = flag(
        "--hpz", "whole", "N", "With --zero 3, neighbouring ranks that hold a second copy of the weights between them, "
        "which backward passes gather (ZeRO++'s zero_hpz_partition_size).", default=0, least=0, most=MOST_DEGREE,
    )  # fmt: skip
    layers_per_stage: str | None = flag(
        "--layers-per-stage", "text", "N,N,…", "Layers of every pipeline stage, from the embedding to the head: "
        "10,11,11,8. 0 leaves the embedding or the loss a stage of its own.", default=None,
    )  # fmt: skip

    @property
    def recipe_given(self) -> dict[str, Any]:
        """The settings of a recipe as they were asked for, None where nothing was."""
        given = {name: getattr(self, name) for name in SETTINGS}
        return given | {"recompute": self.recompute and parse(self.recompute).text}
