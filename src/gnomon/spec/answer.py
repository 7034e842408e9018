"""What an answer says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NotModelled:
    """Something that was given and has no effect on the answer, and why."""

    option: str
    """As it was written: `enable_prefix_caching=true`, `--seed 3`, `field spot`."""
    why: str
