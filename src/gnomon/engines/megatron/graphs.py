"""CUDA graphs of Megatron-LM: which of its two kinds a plan takes, as options and back."""

from __future__ import annotations

from gnomon.engines.megatron.options import Value
from gnomon.engines.training.imported import TrainingOptions
from gnomon.spec import DenseFfn
from gnomon.spec.training_job import TrainingJob

FULL, SCOPED = "full_iteration", "transformer_engine"
"""Forward and backward of a step in one graph, for which sizes have to be the same in every step; some modules of each
layer, before the rows of experts are counted."""
EXPERTS, DENSE = ("attn", "moe_router", "moe_preprocess"), ("attn", "mlp")


def options(job: TrainingJob) -> dict[str, Value]:
    """Graphs need the random states of Transformer Engine, and a full one hides the loss until it is over."""
    if not job.recipe.cuda_graphs:
        return {}
    found: dict[str, Value] = {"--te-rng-tracker": True}
    if not job.model.is_moe or job.recipe.pad_to_capacity:
        return found | {"--cuda-graph-impl": FULL, "--no-check-for-nan-in-loss-and-grad": True}
    mixed = any(isinstance(block.ffn, DenseFfn) for block in job.model.blocks)
    modules = (*EXPERTS, "mlp") if mixed else EXPERTS
    return found | {"--cuda-graph-impl": SCOPED, "--cuda-graph-modules": modules}


def imported(options: TrainingOptions, *, experts: bool, padded: bool) -> bool:
    """Whether kernels are replayed from graphs as they are priced; other graphs are listed."""
    kind = options.text("cuda-graph-impl", default="none")
    modules = options.text("cuda-graph-modules", "cuda-graph-scope").split()
    options.flag("te-rng-tracker")
    if kind == "none":
        return False
    if experts and not padded:
        if kind == SCOPED and not {*EXPERTS} <= {*modules}:
            options.unmodelled(f"--cuda-graph-modules {' '.join(modules)}", f"priced as {' '.join(EXPERTS)}")
        elif kind != SCOPED:
            options.unmodelled(f"--cuda-graph-impl {kind}", f"priced as {SCOPED} with {' '.join(EXPERTS)}")
    elif kind != FULL and FULL not in modules:
        options.unmodelled(f"--cuda-graph-impl {kind}", f"priced as {FULL}")
    return True
