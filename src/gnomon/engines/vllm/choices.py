"""The kernels that vLLM picks, as profiles need them: their families of experts are named by its default kernels."""

from __future__ import annotations

from dataclasses import replace

from gnomon.cost.profile import HALF, Family, Profile
from gnomon.cost.transfer import of_kind
from gnomon.engines.vllm.formats import not_widened
from gnomon.engines.vllm.kernels import MARLIN, experts_kernel, runs
from gnomon.engines.vllm.platforms import NONE, capability
from gnomon.graph.dtypes import KERNEL
from gnomon.spec import Chip

__all__ = ["as_run", "not_widened"]
EXPERTS = "moe"


def as_run(chip: Chip, donor: Chip, profile: Profile) -> Profile:
    """A donor's profile whose experts are named by the kernels that a chip runs them with: what a donor's default is
    may be another's choice, and what does not run there is left out."""
    if chip.vendor != donor.vendor or capability(chip) == NONE:
        return profile
    other = capability(chip)[0] != capability(donor)[0]
    families: dict[str, Family] = {}
    for key, family in of_kind(profile, EXPERTS).items():
        numbers, _, named = key.partition(".")[2].partition(KERNEL)
        kernel = named or experts_kernel(numbers, donor)
        if not runs(kernel, numbers, chip) or (other and kernel == MARLIN):
            continue  # Marlin is fast with instructions that other generations keep for old programs alone
        name = numbers if kernel == experts_kernel(numbers, chip) else f"{numbers}{KERNEL}{kernel}"
        bound = HALF[0] if other and numbers not in HALF else family.no_slower_than
        families[f"{EXPERTS}.{name}"] = replace(family, no_slower_than=bound)
    for key, family in list(families.items()):
        families.setdefault(key.partition(KERNEL)[0], family)
    return replace(profile, families=families)
