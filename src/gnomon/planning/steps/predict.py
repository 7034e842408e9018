"""One step of a replica, by the kind of its network and its phase."""

from __future__ import annotations

from dataclasses import replace

from gnomon.errors import InputError, unknown_name
from gnomon.planning.deploy import ReplicaSpec
from gnomon.planning.steps.decoder import predict_step
from gnomon.planning.steps.network_words import PHASES as NETWORKS
from gnomon.planning.steps.network_words import refuse_extra
from gnomon.planning.unmodelled import idle_clock, with_unmodelled
from gnomon.spec.answers import Prediction
from gnomon.spec.questions.step import PredictQuestion

PHASES = ("decode", "prefill", "train")


def predict_replica(replica: ReplicaSpec, question: PredictQuestion) -> Prediction:
    """Seconds, memory, energy and dollars of one step."""
    if replica.model.kind in NETWORKS:
        from gnomon.planning.steps.network import predict_network

        return predict_network(replica, question)
    refuse_extra(f"{replica.model.name}, a plain decoder", question)
    phase = question.phase or "decode"
    step = {"batch": question.sequences, "tokens": _new_tokens(phase, question), "context": question.context}
    engine, deployment = replica.engine, replica.deploy()
    inputs = replica.inputs(deployment) | {"phase": phase} | step | question.clock_inputs
    found = with_unmodelled(
        engine, deployment, replica.settings, lambda one: predict_step(engine, one, inputs),
        without=lambda name: replica.without(name).deploy(),
    )  # fmt: skip
    return replace(found, not_modelled=(*found.not_modelled, *idle_clock(question, deployment)))


def _new_tokens(phase: str, question: PredictQuestion) -> int:
    """New tokens per sequence, once the numbers make sense."""
    if phase not in PHASES:
        raise unknown_name("phase", str(phase), PHASES, where="--phase")
    tokens = question.tokens
    for flag, value, least in (
        ("--batch", question.sequences, 1),
        ("--context", question.context, 0),
        ("--tokens", 1 if tokens is None else tokens, 1),
    ):
        if value < least:
            raise InputError(f"{value} is below {least}", where=flag)
    if phase == "decode":
        if tokens not in (None, 1):
            raise InputError(f"a decode step makes 1 token per sequence, not {tokens}", where="--tokens")
        return 1
    if tokens is None:
        raise InputError("a prefill needs the new tokens per sequence", where="--tokens", hint="Give --tokens 1024.")
    return tokens
