"""How a command of the Trainer, or of TRL, makes batches of sequences that differ in length."""

from __future__ import annotations

from gnomon.engines.training.imported import TrainingOptions
from gnomon.engines.training.operations import ImportedBatches
from gnomon.errors import InputError
from gnomon.spec.training import BALANCED, BFD, GROUP_BY_LENGTH, NONE, PACKINGS, PADDING_FREE, RANDOM, WRAPPED

STRATEGIES = {"bfd": BFD, "bfd_split": BFD, "bfd-requeue": BFD, "wrapped": WRAPPED}
"""TRL's `packing_strategy`."""
SAMPLERS = {
    "random": RANDOM,
    "sequential": RANDOM,
    "group_by_length": GROUP_BY_LENGTH,
    "batch_rebalance": BALANCED,
}
"""`train_sampling_strategy` of the Trainer."""
REBALANCED = "priced with as many sequences in every micro-batch"


def batches_of(options: TrainingOptions) -> ImportedBatches | None:
    """Packing, flattening and sampling; nothing where none of them is asked for."""
    told: list[str] = []
    packing = _packing(options, told)
    sampling = _sampling(options, told)
    lengths = options.text("lengths")
    if not told and not lengths:
        return None
    flat = packing in (PADDING_FREE, BFD)
    return ImportedBatches(
        told=", ".join(told),
        packing=packing or NONE,
        document_masking=True if flat else None,
        sampling=sampling,
        lengths=lengths,
        seed=options.whole("lengths_seed", default=0, least=0),
    )


def _packing(options: TrainingOptions, told: list[str]) -> str:
    """TRL's switches, or the name that files of Gnomon have."""
    strategy, free = options.text("packing_strategy", default="bfd"), options.flag("padding_free")
    if options.values.get("packing") in PACKINGS:
        packing = options.text("packing")
        told.append(options.told("packing", packing))
        return packing
    if options.flag("packing"):
        if strategy not in STRATEGIES:
            raise InputError(f"'{strategy}' is not known", where=options.where("packing_strategy"))
        told.append(f"{options.told('packing', True)} ({strategy})")
        return STRATEGIES[strategy]
    if free:
        told.append(options.told("padding_free", True))
    return PADDING_FREE if free else ""


def _sampling(options: TrainingOptions, told: list[str]) -> str:
    grouped = options.flag("group_by_length")
    named = options.text("train_sampling_strategy", default="group_by_length" if grouped else "random")
    if named not in SAMPLERS:
        raise InputError(f"'{named}' is not known", where=options.where("train_sampling_strategy"))
    if SAMPLERS[named] == RANDOM:
        return RANDOM
    asked = options.told("group_by_length", True) if grouped else options.told("train_sampling_strategy", named)
    if SAMPLERS[named] == BALANCED:
        options.unmodelled(asked, REBALANCED)
    told.append(asked)
    return SAMPLERS[named]
