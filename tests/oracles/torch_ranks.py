"""Small training plans, run one after another by the same four processes, or eight: another plan is a line of `PLANS`,
of `MOE_PLANS`, of `WITH_TECHNIQUES` or of `WIDE`.

Started by torchrun: `torchrun --nproc-per-node 4 -m tests.oracles.torch_ranks OUT.json [NAME ...]`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnomon.engines.torch.launch import Measuring
from gnomon.load import parse_pool
from gnomon.spec import AttentionMixer, Block, DenseFfn, Model, MoeFfn, Recipe, Strategy, TrainingLoad
from gnomon.spec.training_job import TrainingJob
from gnomon.techniques import TRAINING, applied

RANKS = 4
"""Of most plans, which also run what one process does."""
STEPS, LONG = 3, 6
"""Of plans, and of one process without any."""
LOAD = TrainingLoad(seq=32, global_batch=16)

LLAMA = Model(
    name="tiny-llama",
    family="llama",
    hidden=64,
    vocab=256,
    blocks=(
        Block(mixer=AttentionMixer(heads=8, kv_heads=4, head_dim=8, qk_norm=True), ffn=DenseFfn(inner=160), count=4),
    ),
    max_context=64,
)
GPT = Model(
    name="tiny-gpt",
    family="gpt2",
    hidden=64,
    vocab=256,
    blocks=(
        Block(
            mixer=AttentionMixer(heads=4, kv_heads=4, head_dim=16, qkv_bias=True, out_bias=True),
            ffn=DenseFfn(inner=256, gated=False, bias=True),
            count=4,
        ),
    ),
    max_context=64,
    norm_bias=True,
    learned_positions=64,
)
MOE = replace(
    LLAMA,
    name="tiny-moe",
    blocks=(
        replace(LLAMA.blocks[0], ffn=MoeFfn(experts=8, topk=2, inner=48, shared_inner=32, shared_gate=True)),
    ),
)  # fmt: skip
MODELS = {"llama": LLAMA, "gpt": GPT, "tied": replace(LLAMA, tied_embeddings=True), "moe": MOE}


ALONE, TWO_AT_A_TIME = Strategy(), Recipe(micro_batch=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    model: str
    strategy: Strategy = ALONE
    recipe: Recipe = TWO_AT_A_TIME
    dtype: str = "fp32"
    techniques: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        return LONG if self == Case(model=self.model, dtype=self.dtype) else STEPS


PLANS = {
    "dp4": (Strategy(dp=4), Recipe(micro_batch=2)),
    "zero1": (Strategy(dp=4), Recipe(micro_batch=2, zero=1)),
    "zero2": (Strategy(dp=4), Recipe(micro_batch=2, zero=2)),
    "zero3": (Strategy(dp=4), Recipe(micro_batch=2, zero=3)),
    "tp4": (Strategy(tp=4), Recipe(micro_batch=8)),
    "tp4 whole": (Strategy(tp=4), Recipe(micro_batch=8, sequence_parallel=False)),
    "pp4": (Strategy(pp=4), Recipe(micro_batch=2)),
    "pp4 gpipe": (Strategy(pp=4), Recipe(micro_batch=4, schedule="gpipe")),
    "pp2 vp2 dp2": (Strategy(pp=2, vp=2, dp=2), Recipe(micro_batch=2, schedule="interleaved")),
    "tp2 pp2": (Strategy(tp=2, pp=2), Recipe(micro_batch=4)),
    "pp4 zb-h1": (Strategy(pp=4), Recipe(micro_batch=2, schedule="zb-h1")),
    "pp4 zb-h2": (Strategy(pp=4), Recipe(micro_batch=2, schedule="zb-h2")),
    "pp2 vp2 zb-v": (Strategy(pp=2, vp=2, dp=2), Recipe(micro_batch=1, schedule="zb-v")),
    "pp2 vp2 dualpipe-v": (Strategy(pp=2, vp=2, dp=2), Recipe(micro_batch=1, schedule="dualpipe-v")),
    "pp2 vp2 interleaved-zb": (Strategy(pp=2, vp=2, dp=2), Recipe(micro_batch=1, schedule="interleaved-zb")),
    "pp4 dualpipe": (Strategy(pp=4), Recipe(micro_batch=2, schedule="dualpipe")),
    "pp2 dp2 dualpipe": (Strategy(pp=2, dp=2), Recipe(micro_batch=1, schedule="dualpipe", zero=1)),
    "pp2 zero1 zb-h1": (Strategy(pp=2, dp=2), Recipe(micro_batch=2, zero=1, schedule="zb-h1")),
    "tp2 zero1": (Strategy(tp=2, dp=2), Recipe(micro_batch=4, zero=1)),
    "tp2 zero3": (Strategy(tp=2, dp=2), Recipe(micro_batch=4, zero=3)),
    "pp2 zero3": (Strategy(pp=2, dp=2), Recipe(micro_batch=2, zero=3)),
    "hsdp zero1": (Strategy(dp=4), Recipe(micro_batch=2, zero=1, dp_shard=2)),
    "hsdp zero3": (Strategy(dp=4), Recipe(micro_batch=2, zero=3, dp_shard=2)),
    "hsdp cp2 zero2": (Strategy(dp=2, cp=2), Recipe(micro_batch=2, zero=2, dp_shard=1)),
    "hsdp tp2 zero3": (Strategy(dp=2, tp=2), Recipe(micro_batch=2, zero=3, dp_shard=1)),
    "hsdp dualpipe": (Strategy(pp=2, dp=2), Recipe(micro_batch=1, schedule="dualpipe", zero=1, dp_shard=1)),
    "cp2 tp2 zero3": (Strategy(cp=2, tp=2), Recipe(micro_batch=4, zero=3, dp_shard=8)),
    "cp4 ring": (Strategy(cp=4), Recipe(micro_batch=4)),
    "cp4 a2a": (Strategy(cp=4), Recipe(micro_batch=4, cp_comm="a2a")),
    "cp4 allgather": (Strategy(cp=4), Recipe(micro_batch=4, cp_comm="allgather")),
    "cp4 two levels": (Strategy(cp=4), Recipe(micro_batch=4, cp_comm="a2a+p2p", cp_a2a=2)),
    "cp2 dp2 zero3": (Strategy(cp=2, dp=2), Recipe(micro_batch=2, zero=3)),
    "cp2 tp2 zero1": (Strategy(cp=2, tp=2), Recipe(micro_batch=4, zero=1, cp_comm="a2a")),
    "pp4 uneven": (Strategy(pp=4), Recipe(micro_batch=2, layers_per_stage="0,2,2,0")),
    "pp2 vp2 dp2 uneven": (
        Strategy(pp=2, vp=2, dp=2),
        Recipe(micro_batch=2, schedule="interleaved", layers_per_stage="1,2,1,0"),
    ),
    "cp2 pp2": (Strategy(cp=2, pp=2), Recipe(micro_batch=2)),
}
MOE_PLANS = {
    "ep4": (Strategy(dp=4, ep=4), Recipe(micro_batch=2)),
    "ep2 zero1": (Strategy(dp=4, ep=2), Recipe(micro_batch=2, zero=1)),
    "ep2 zero3": (Strategy(dp=4, ep=2), Recipe(micro_batch=2, zero=3)),
    "ep4 zero2": (Strategy(dp=4, ep=4), Recipe(micro_batch=2, zero=2)),
    "ep4 cp2": (Strategy(dp=2, cp=2, ep=4), Recipe(micro_batch=2, cp_comm="a2a")),
    "pp2 ep2": (Strategy(pp=2, dp=2, ep=2), Recipe(micro_batch=2)),
    "pp2 ep2 zb-h1": (Strategy(pp=2, dp=2, ep=2), Recipe(micro_batch=1, schedule="zb-h1", zero=1)),
    "ep4, full": (Strategy(dp=4, ep=4), Recipe(micro_batch=2, recompute="full")),
    "ep4, selective": (Strategy(dp=4, ep=4), Recipe(micro_batch=2, recompute="selective")),
    "zero3": (Strategy(dp=4), Recipe(micro_batch=2, zero=3)),
    "hsdp ep2": (Strategy(dp=4, ep=2), Recipe(micro_batch=2, zero=3, dp_shard=2)),
    "hsdp ep2 zero1": (Strategy(dp=4, ep=2), Recipe(micro_batch=2, zero=1, dp_shard=2)),
}
WIDE = {
    "tp2 pp2 dp2 zero1": ("llama", Strategy(tp=2, pp=2, dp=2), Recipe(micro_batch=2, zero=1)),
    "pp4 dp2 zb-h2": ("llama", Strategy(pp=4, dp=2), Recipe(micro_batch=1, schedule="zb-h2", zero=1)),
    "pp2 vp2 cp2 dp2": ("llama", Strategy(pp=2, vp=2, cp=2, dp=2), Recipe(micro_batch=1, schedule="interleaved")),
    "tp2 cp2 dp2 zero3": ("llama", Strategy(tp=2, cp=2, dp=2), Recipe(micro_batch=2, zero=3)),
    "hsdp4 dp8 zero3": ("llama", Strategy(dp=8), Recipe(micro_batch=2, zero=3, dp_shard=4)),
    "pp2 ep4": ("moe", Strategy(pp=2, dp=4, ep=4), Recipe(micro_batch=1, zero=1)),
    "ep4 cp2 zero3": ("moe", Strategy(dp=4, cp=2, ep=4), Recipe(micro_batch=2, zero=3)),
}
"""By eight processes: the model, and how it is cut."""
WITH_TECHNIQUES = {
    "lora:rank=8": ("alone", "zero3", "pp4", "cp4 ring"),
    "offload-activations": ("zero3", "pp4 dualpipe", "pp4 zb-h2", "cp2 pp2"),
    "offload-optimizer": ("zero1", "hsdp zero3"),
}
"""By technique as a plan writes it. What changes what is learnt has its own process alone to be compared with."""
MODES = {
    "selective": ("zero3", "tp4", "pp2 vp2 dp2", "cp4 ring"),
    "full": ("zero3", "pp2 vp2 dp2", "cp4 ring"),
    "op": ("tp4",),
    "full:block=1": ("zero3", "pp2 vp2 dp2"),
    "every=3": (),
}
"""By way to recompute."""
GPT_PLANS = ("zero3", "tp4 whole", "pp4 zb-h1", "tp2 pp2", "cp4 allgather", "cp2 tp2 zero1", "pp4 uneven")
OTHER_OPTIMIZERS = {
    "muon": ("dp4", "zero2", "zero3", "pp4", "pp2 zero3", "cp2 dp2 zero3"),
    "adam8bit": ("dp4", "zero1", "zero3", "tp4", "pp4"),
}
TIED = ("zero1", "zero3", "tp4")
HALF = ("zero1", "zero3", "cp4 ring")


def cases() -> dict[str, Case]:
    """Each by its model, its plan and what else is particular to it."""
    found = {f"{model} alone": Case(model=model) for model in MODELS}
    found["llama alone, bf16"] = Case(model="llama", dtype="bf16")
    found["llama alone, adamw-bf16"] = Case(
        model="llama", recipe=Recipe(micro_batch=2, optimizer="adamw-bf16"), dtype="bf16"
    )
    for name, (strategy, recipe) in PLANS.items():
        case = Case(model="llama", strategy=strategy, recipe=recipe)
        found[f"llama {name}"] = case
        if name in GPT_PLANS:
            found[f"gpt {name}"] = replace(case, model="gpt")
        if name in TIED:
            found[f"tied {name}"] = replace(case, model="tied")
        if name in HALF:
            found[f"llama {name}, bf16"] = replace(case, dtype="bf16")
            low = replace(recipe, optimizer="adamw-bf16")
            found[f"llama {name}, adamw-bf16"] = replace(case, dtype="bf16", recipe=low)
    for name, (strategy, recipe) in MOE_PLANS.items():
        found[f"moe {name}"] = Case(model="moe", strategy=strategy, recipe=recipe)
    for name, (model, strategy, recipe) in WIDE.items():
        found[f"{model} {name}"] = Case(model=model, strategy=strategy, recipe=recipe)
    for optimizer, plans in OTHER_OPTIMIZERS.items():
        found[f"llama alone, {optimizer}"] = Case(model="llama", recipe=Recipe(micro_batch=2, optimizer=optimizer))
        for name in plans:
            strategy, recipe = PLANS[name]
            own = replace(recipe, optimizer=optimizer)
            found[f"llama {name}, {optimizer}"] = Case(model="llama", strategy=strategy, recipe=own)
    for mode, plans in MODES.items():
        found[f"llama alone, {mode}"] = Case(model="llama", recipe=Recipe(micro_batch=2, recompute=mode))
        for name in plans:
            strategy, recipe = PLANS[name]
            found[f"llama {name}, {mode}"] = Case(
                model="llama", strategy=strategy, recipe=replace(recipe, recompute=mode)
            )
    for technique, plans in WITH_TECHNIQUES.items():
        for name in plans:
            strategy, recipe = PLANS.get(name, (ALONE, TWO_AT_A_TIME))
            found[f"llama {name}, {technique}"] = Case(
                model="llama", strategy=strategy, recipe=recipe, techniques=(technique,)
            )
    return found


def run(case: Case) -> dict[str, Any]:
    from gnomon.engines.torch.train import train

    job = TrainingJob(
        model=MODELS[case.model],
        pool=parse_pool("H100:8"),
        strategy=replace(case.strategy, techniques=case.techniques),
        recipe=case.recipe,
        load=LOAD,
        dtype=case.dtype,
        techniques=applied(TRAINING, case.techniques).values,
    )
    return train(job, Measuring(steps=case.steps, warmup=0, seed=7, device="cpu"))


def main(out: str, *names: str) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    runs = {1, dist.get_world_size()} if dist.get_world_size() == RANKS else {dist.get_world_size()}
    asked = {
        name: case for name, case in cases().items() if case.strategy.ranks in runs and (not names or name in names)
    }
    alone = [name for name, case in asked.items() if case.strategy.ranks == 1]
    own = {name: run(asked[name]) for name in alone[dist.get_rank() :: dist.get_world_size()]}
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    results = {name: found for one in every for name, found in one.items()}
    for name, case in asked.items():
        if name not in alone:
            results[name] = run(case)
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
