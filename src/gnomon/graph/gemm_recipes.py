"""Recipes of training in eight bits or fewer: how the operands of GEMMs with weights are narrowed, one value each.

Weights, their gradients' sums and activations between operators stay in 16 bits or more, and so do attention, routers,
the embedding and the head. To add a recipe, add a value here and name it in the traits of the engines that have it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnomon.graph.dtypes import gemm_format
from gnomon.spec.chip import Chip

HALF = 2.0
"""Bytes of a value that is narrowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmRecipe:
    """Formats of the three GEMMs of a matrix, and what making their operands takes. A tensor is needed twice: along its
    rows for one GEMM, along its columns for another."""

    name: str
    """As `--dtype` has it."""
    scales: str
    """What shares a scale, in words."""
    fprop: str
    """The format (`graph.dtypes`) of the GEMM forward; then those of its gradients, by input and by weight."""
    dgrad: str
    wgrad: str
    amax_passes: int = 0
    """Readings of a tensor that find its scale before it is cast: one where the scale is of the full tensor, and that
    of this step; none where it is that of earlier steps, or where a kernel has all values of a scale at once."""
    column_passes: int = 0
    """The same of its columns, where a kernel of its own casts them."""
    transposes: bool = False
    """The copy along columns is the other one transposed: both have one scale. Else it is cast from 16 bits again."""
    one_copy: tuple[str, ...] = ()
    """Chips, by architecture, whose GEMMs read such an operand along either side: no second copy is made."""
    reads_either: bool = False
    """The recipe is on such a chip (`on`)."""
    single_pass: bool = True
    """A kernel may write both copies in one reading."""
    gathered_bytes: float | None = None
    """Of a weight, where ranks gather their shards narrow; None where no engine does."""
    generations: tuple[str, ...] = ()
    """Chips whose tensor cores take such scales, by architecture; any that has the format where nothing is said."""

    @property
    def compute_dtype(self) -> str:
        """What tensor cores multiply."""
        return gemm_format(self.fprop).compute_dtype

    @property
    def row_bytes(self) -> float:
        """Of an activation cast along its rows, with its scales."""
        return gemm_format(self.fprop).inputs

    @property
    def column_bytes(self) -> float:
        """Of an activation cast along its columns; nothing where the gradient of the weight takes 16 bits."""
        return gemm_format(self.wgrad).inputs if self.narrow_wgrad else 0.0

    @property
    def saved_bytes(self) -> float:
        """Of the copy that the gradient of the weight reads."""
        return self.row_bytes if self.reads_either else self.column_bytes

    @property
    def weight_bytes(self) -> float:
        """Of the copies of a weight: forward it is read along one side, by its gradient along the other."""
        return gemm_format(self.fprop).weights + (not self.reads_either) * gemm_format(self.dgrad).weights

    @property
    def narrow_wgrad(self) -> bool:
        return gemm_format(self.wgrad).inputs < HALF

    @property
    def reads(self) -> float:
        """Of a tensor of 16 bits, where kernels write both copies: its largest value, then one reading or two."""
        return self.amax_passes + (1.0 if self.single_pass else 2.0)

    def on(self, chip: Chip) -> GemmRecipe:
        """The recipe with the copies that a chip's GEMMs need."""
        able = chip.generation in self.one_copy and chip.memory.startswith("HBM")
        return replace(self, reads_either=True) if able else self

    def obstacle(self, chip: Chip) -> str:
        """Why a chip cannot multiply so; empty where it can."""
        if self.compute_dtype not in chip.rates_flops:
            return f"{chip.name} has no {self.compute_dtype}"
        if self.generations and chip.generation not in self.generations:
            return f"{chip.name} does not multiply with {self.scales} ({', '.join(self.generations)} do)"
        return ""


EITHER_SIDE = ("Blackwell", "Rubin")
"""Whose fp8 GEMMs take operands along either side, but for cards without HBM (sm_120), by Transformer Engine's
`is_non_tn_fp8_gemm_supported`."""
DELAYED = GemmRecipe(
    name="fp8", scales="a scale per tensor, from earlier steps", fprop="fp8", dgrad="fp8", wgrad="fp8", transposes=True,
    one_copy=EITHER_SIDE, gathered_bytes=1.0,
)  # fmt: skip
"""Transformer Engine's DelayedScaling."""
CURRENT = GemmRecipe(
    name="fp8-current", scales="a scale per tensor", fprop="fp8", dgrad="fp8", wgrad="fp8", amax_passes=1,
    transposes=True, one_copy=EITHER_SIDE, gathered_bytes=1.0,
)  # fmt: skip
"""Transformer Engine's Float8CurrentScaling, torchao's `tensorwise`."""
ROWS = GemmRecipe(
    name="fp8-rows", scales="a scale per row", fprop="fp8-rows", dgrad="fp8-rows", wgrad="fp8-rows", column_passes=1,
)  # fmt: skip
"""torchao's `rowwise`. A thread block has all of a row, and none has all of a column."""
ROWS_WIDE_WGRAD = GemmRecipe(
    name="fp8-rows-hp", scales="a scale per row", fprop="fp8-rows", dgrad="fp8-rows", wgrad="bf16",
)  # fmt: skip
"""torchao's `rowwise_with_gw_hp`: the gradient of the weight is a GEMM in bf16."""
BLOCKS = GemmRecipe(
    name="fp8-blocks", scales="a scale per 128 values, of weights per 128x128", fprop="fp8-blocks", dgrad="fp8-blocks",
    wgrad="fp8-vectors", gathered_bytes=gemm_format("fp8-blocks").weights, generations=("Hopper", "Blackwell"),
)  # fmt: skip
"""DeepSeek-V3's (arXiv:2412.19437, section 3.3), Transformer Engine's Float8BlockScaling."""
MXFP8 = GemmRecipe(
    name="mxfp8", scales="a scale of 8 bits per 32 values", fprop="mxfp8", dgrad="mxfp8", wgrad="mxfp8",
    gathered_bytes=HALF, generations=("Blackwell", "Rubin", "CDNA4", "CDNA5"),
)  # fmt: skip
"""OCP's microscaling format, Transformer Engine's MXFP8BlockScaling. Weights are gathered in 16 bits, since each rank
needs them cast along both sides (Megatron-LM's `--reuse-grad-buf-for-mxfp8-param-ag`)."""
NVFP4 = GemmRecipe(
    name="nvfp4", scales="a scale of 8 bits per 16 values", fprop="nvfp4", dgrad="nvfp4", wgrad="nvfp4", amax_passes=1,
    column_passes=1, single_pass=False, generations=("Blackwell", "Rubin"),
)  # fmt: skip
"""NVIDIA, arXiv:2509.25149, Transformer Engine's NVFP4BlockScaling: a further scale per tensor, found in a reading of
its own; a kernel that casts rows, and one that turns columns by a random Hadamard matrix and casts them, by a largest
value of their own."""

GEMM_RECIPES = {one.name: one for one in (DELAYED, CURRENT, ROWS, ROWS_WIDE_WGRAD, BLOCKS, MXFP8, NVFP4)}


def multiplied_in(dtype: str) -> str:
    """What tensor cores multiply in a training plan of a format."""
    recipe = GEMM_RECIPES.get(dtype)
    return recipe.compute_dtype if recipe else dtype
