"""The steps in which an engine runs a prediction's sequences, within its limits."""

from __future__ import annotations

from gnomon.engines.base import Deployment, Engine
from gnomon.errors import InputError
from gnomon.planning.deploy import set_flags
from gnomon.spec import Batch

MOST_STEPS = 100_000


def prefill_steps(batch: int, tokens: int, context: int, budget: int) -> Batch:
    """The chunked-prefill steps of some prompts, first come first served, `budget` tokens per step."""
    if batch * tokens <= budget:
        return Batch.prefill(batch, tokens, context)
    if batch * tokens > MOST_STEPS * budget or batch > MOST_STEPS:
        raise InputError(f"{batch * tokens:,} tokens are too many for one prediction", where="--batch, --tokens")
    steps: list[list[tuple[int, int]]] = [[]]
    room = budget
    for _ in range(batch):
        done = 0
        while done < tokens:
            if room == 0:
                steps.append([])
                room = budget
            piece = min(tokens - done, room)
            steps[-1].append((piece, context + done))
            done, room = done + piece, room - piece
    return Batch.stack([Batch.step([], chunks) for chunks in steps])


def check_size(engine: Engine, deployment: Deployment, batch: int, tokens: int, context: int) -> None:
    capacity, longest = engine.capacity(deployment.settings), context + tokens
    most = capacity.context
    if longest > most:
        flags, left = ("--context", most - 1) if tokens == 1 else ("--tokens, --context", most)
        flags, together = (flags, " together" if tokens > 1 else "") if context else ("--tokens", "")
        message = f"{longest:,} tokens are more than the maximum of {most:,} per sequence"
        raise InputError(message, where=flags, hint=f"Use at most {left:,}{together}.")
    if batch > capacity.sequences:
        more = engine.settings_for(sequences=batch, step_tokens=batch if batch > capacity.step_tokens else None)
        raise InputError(
            f"{batch:,} sequences are more than {engine.name} runs in one step ({capacity.sequences:,})",
            where="--batch",
            hint=f"Raise it with {set_flags(more)}.",
        )
