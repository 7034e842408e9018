"""The step sizes that vLLM captures as CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.engines.vllm.releases import FIRST, Release
from gnomon.spec import Chip


def captured_sizes(settings: Mapping[str, Any], chip: Chip | None = None, release: Release = FIRST) -> list[int]:
    """Step sizes, in tokens, that vLLM captures as CUDA graphs; a smaller step is padded to the next one. The chip
    matters to releases whose default does."""
    if settings["enforce_eager"]:
        return []
    tokens = int(settings["max_num_batched_tokens"])
    top = min(int(settings["max_cudagraph_capture_size"]), tokens)
    sizes = set(_usual_sizes(top))
    if tokens <= top:
        sizes.add(tokens)
    if release.captures_decodes and chip is not None:
        default = _largest_capture(settings, chip, release)
        decodes = [one for one in _decode_sizes(settings, chip, release) if one <= min(default, tokens)]
        usual = max((*_usual_sizes(min(default, tokens)), *decodes), default=0)
        if top == usual or tokens == top <= default:
            sizes.update(decodes)
    return sorted(size for size in sizes if size <= top)


def _usual_sizes(top: int) -> list[int]:
    return [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, top + 1, 16)) if size <= top]


def _decode_sizes(settings: Mapping[str, Any], chip: Chip, release: Release) -> list[int]:
    """Tokens of batches of decodes alone, up to the largest, as releases capture them that do so."""
    sequences, each = int(settings["max_num_seqs"]), 1 + int(settings["num_speculative_tokens"])
    if each == 1:
        return [sequences]
    most = min(sequences, release.largest_capture(chip))
    return [count * each for count in {*_usual_sizes(most), most}]


def _largest_capture(settings: Mapping[str, Any], chip: Chip, release: Release) -> int:
    """The largest step that is captured unless told otherwise: twice the decodes, with their drafts, up to a limit."""
    each = 1 + int(settings["num_speculative_tokens"])
    return min(2 * int(settings["max_num_seqs"]) * each, release.largest_capture(chip))


def fill_capture(settings: dict[str, Any], chip: Chip, release: Release) -> None:
    """As vLLM does, the largest captured size is lowered to one that is really captured."""
    name = "max_cudagraph_capture_size"
    sizes: Sequence[int] = ()
    if settings[name] is None:
        settings[name] = _largest_capture(settings, chip, release)
        top = min(settings[name], settings["max_num_batched_tokens"])
        extra = _decode_sizes(settings, chip, release) if release.captures_decodes else ()
        sizes = [size for size in extra if size <= top and not settings["enforce_eager"]]
    settings[name] = max((*captured_sizes(settings), *sizes), default=0)
