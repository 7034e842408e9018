"""The lengths of a training load's sequences as fields of a plan."""

from __future__ import annotations

from gnomon.errors import unknown_name
from gnomon.load.fields import Fields
from gnomon.spec.loads.lengths import lengths_of
from gnomon.spec.loads.lengths.uniform import Uniform
from gnomon.spec.loads.sequences import Sequences
from gnomon.spec.training import PACKINGS, RANDOM, SAMPLINGS


def read_sequences(fields: Fields) -> Sequences:
    """The fields beside `lengths`; what they do not say is the engine's usual."""
    given = fields.raw("lengths", None)
    lengths = lengths_of(given if isinstance(given, int) else fields.text("lengths"), fields.spot("lengths"))
    return Sequences(
        lengths=Uniform(low=lengths, high=lengths) if isinstance(lengths, int) else lengths,
        packing=_one_of(fields, "packing", PACKINGS, ""),
        document_masking=None
        if fields.raw("document_masking", None) is None
        else fields.flag("document_masking", False),
        sampling=_one_of(fields, "sampling", SAMPLINGS, RANDOM),
        seed=fields.whole("seed", 0, least=0, most=2**63),
    )


def _one_of(fields: Fields, key: str, known: tuple[str, ...], default: str) -> str:
    name = fields.text(key, default)
    if name not in (*known, default):
        raise unknown_name(key, name, known, where=fields.spot(key))
    return name
