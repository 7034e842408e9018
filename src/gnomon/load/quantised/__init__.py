"""Checkpoints whose matrices are stored in fewer bits: the format of each, as the quantisation config says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gnomon.errors import InputError
from gnomon.load.families.base import gather
from gnomon.load.fields import Fields
from gnomon.load.quantised.names import HEADS, TOWERS, full, modules
from gnomon.load.quantised.patterns import Patterns
from gnomon.load.quantised.schemes import ALL, Scheme, scheme
from gnomon.spec import Block, Format, Formats, Model, Tower

GROUPED = ("int2", "int3", "int4", "int8", "nvfp4")
"""Formats whose scales stand for a part of a row; other blocks may end at the edge of a matrix."""


def quantised(model: Model, config: Fields) -> Model:
    """The model with the format of every matrix. `config` is its `quantization_config`."""
    found = scheme(config)
    chooser = _Chooser(found, model.layers)
    blocks = gather(_blocks(model, chooser))
    head = chooser.head() if found.head and not model.tied_embeddings else None
    narrowed = replace(
        model,
        blocks=blocks,
        towers=tuple(chooser.tower(tower) for tower in model.towers),
        mtp=tuple(replace(block, formats=chooser.formats(model.layers, block)) for block in model.mtp),
        head_format=head,
    )
    _check_groups(narrowed, config)
    name = _main(narrowed)
    return replace(narrowed, dtype=name, kept_dtype=model.dtype) if name else model


def _check_groups(model: Model, config: Fields) -> None:
    """Refuse groups of weights that share a scale and do not fill the rows of a matrix, which no engine loads."""
    for block in (*model.blocks, *model.mtp):
        formats = dict(block.formats)
        for tensor in block.tensors(model.hidden):
            format = formats.get(tensor.role)
            if format is not None and format.name in GROUPED and format.block[1] and tensor.columns % format.block[1]:
                message = f"groups of {format.block[1]} weights do not divide the {tensor.columns:,} of a row"
                hint = "Give the group_size of the checkpoint."
                raise InputError(f"{message} of the matrix {tensor.role}", where=config.spot(""), hint=hint)


def _blocks(model: Model, chooser: _Chooser) -> Iterator[Block]:
    layer = 0
    for block in model.blocks:
        if not chooser.numbered:
            yield replace(block, formats=chooser.formats(layer, block))
            layer += block.count
            continue
        one = replace(block, count=1)
        for _ in range(block.count):
            yield replace(one, formats=chooser.formats(layer, block))
            layer += 1


class _Chooser:
    """The format of a module, by its name."""

    def __init__(self, found: Scheme, layers: int) -> None:
        self.found = found
        names = 30 * (layers + 1)
        self.left_out = Patterns(list(found.left_out), found.key, names)
        self.groups = [
            (None if ALL[0] in targets else Patterns(list(targets), found.key, names), format)
            for targets, format in found.groups
        ]
        named = [self.left_out, *(patterns for patterns, _ in self.groups if patterns is not None)]
        self.numbered = any(patterns.numbered for patterns in named)

    def of(self, names: tuple[str, ...]) -> Format | None:
        if any(name in self.left_out for name in names):
            return None
        for patterns, format in self.groups:
            if patterns is None or any(name in patterns for name in names):
                return format
        return None

    def formats(self, layer: int, block: Block) -> Formats:
        there, chosen = {tensor.role for tensor in block.tensors(1)}, []
        for role, names in sorted(modules(block).items()):
            if role in there and (role.startswith("expert") or not self.found.experts_only):
                chosen.append((role, self.of(tuple(full(layer, names)))))
        return tuple((role, format) for role, format in chosen if format is not None)

    def head(self) -> Format | None:
        return self.of(HEADS)

    def tower(self, tower: Tower) -> Tower:
        """All of a tower or nothing: what is left out is never a part of one."""
        format = self.of(tuple(f"{name}.blocks.0.{tower.name}" for name in TOWERS)) if self.found.towers else None
        if format is None:
            return tower
        return replace(tower, blocks=tuple(replace(block, formats=_all(block, format)) for block in tower.blocks))


def _all(block: Block, format: Format) -> Formats:
    there = {tensor.role for tensor in block.tensors(1)}
    return tuple((role, format) for role in sorted(modules(block)) if role in there)


def _main(model: Model) -> str:
    """The format that most parameters of the layers are in; empty where none is quantised."""
    counts: Counter[str] = Counter()
    for block in model.blocks:
        formats = dict(block.formats)
        for tensor in block.tensors(model.hidden):
            format = formats.get(tensor.role)
            if format is not None:
                counts[format.name] += tensor.parameters * block.count
    return counts.most_common(1)[0][0] if counts else ""
