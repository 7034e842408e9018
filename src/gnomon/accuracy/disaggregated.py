"""Prefill and decode replicas apart: published closed loops, simulated as `gnomon simulate serve --pool` does.

Replicas whose attention is data-parallel may be refused under load. Their TPOT is then that of one decode step: every
rank with its share of the clients, or as many as it runs at most, halfway through their outputs. First tokens and
throughput are not predicted so.
"""

from __future__ import annotations

from gnomon.accuracy.disaggregated_rows import DisaggregatedCase, DisaggregatedPool, per_chip
from gnomon.accuracy.scores import Row, compared
from gnomon.api.predict import predict
from gnomon.api.simulate import simulate_serving
from gnomon.catalog import model_title
from gnomon.errors import GnomonError
from gnomon.spec.answers import ServingReport

ROUNDS = 10
"""Requests of each client, as in InferenceX's runs."""
MOST_REQUESTS = 20_000
"""Of one simulated load; with more clients each makes fewer."""
LEAST_ROUNDS = 2
ROUTER = "round-robin"
"""Dynamo's default."""
ONE_STEP = "TPOT, one decode step"


def compare(case: DisaggregatedCase) -> list[Row]:
    """Every measured figure of a case with the simulated one, or its TPOT with that of a decode step."""
    try:
        report = _simulated(case)
    except GnomonError:
        if case.prefill.dp == case.decode.dp == 1:
            raise
        return [_about(case) | _one_step(case)]
    return [_about(case) | row for row in _figures(case, report)]


def _simulated(case: DisaggregatedCase) -> ServingReport:
    given, made = (
        f"uniform:low={round(case.least * tokens)},high={tokens}" if case.least < 1 else tokens
        for tokens in (case.input_tokens, case.output_tokens)
    )
    rounds = max(min(ROUNDS, MOST_REQUESTS // case.clients), LEAST_ROUNDS)
    return simulate_serving(
        case.model,
        pools=[pool.written(case.chip) for pool in (case.prefill, case.decode)],
        router=ROUTER,
        engine=case.engine,
        dtype=case.dtype,
        kv_dtype=case.kv_dtype,
        concurrency=case.clients,
        input=given,
        output=made,
        requests=rounds * case.clients,
    )


def _figures(case: DisaggregatedCase, report: ServingReport) -> list[Row]:
    tpot, ttft = report.tpot_s["mean"], report.ttft_s["mean"]
    bands = {"TPOT": report.bands["tpot_s"]["mean"], "TTFT": report.bands["ttft_s"]["mean"]}
    rate = per_chip(case.clients, case.output_tokens * (1 + case.least) / 2, ttft, tpot, case.chips)
    whole, (low, high) = report.output_tokens_per_s, report.bands["output_tokens_per_s"]["mean"]
    bands["tokens/s per chip"] = (rate * low / whole, rate * high / whole)
    found = {"TPOT": tpot, "TTFT": ttft, "tokens/s per chip": rate}
    return [
        compared(what, "1/s" if "/s" in what else "s", measured, found[what], bands[what])
        for what, measured in case.measured.items()
    ]


def _one_step(case: DisaggregatedCase) -> Row:
    """At the load of a steady closed loop."""
    pool = case.decode
    step = predict(
        case.model,
        on=f"{case.chip}:{pool.ranks}",
        phase="decode",
        batch=case.running,
        context=round((case.input_tokens + case.output_tokens / 2) * (1 + case.least) / 2),
        engine=case.engine,
        dtype=case.dtype,
        kv_dtype=case.kv_dtype,
        tp=pool.tp,
        dp=pool.dp,
        ep=pool.ep,
        settings=pool.settings,
    ).time_s
    return compared(ONE_STEP, "s", case.measured["TPOT"], step.value, (step.low, step.high))


def _about(case: DisaggregatedCase) -> Row:
    row = case.row
    return {
        "id": row["row_id"],
        "group": case.group,
        "source": row["source"],
        "engine_version": f"behind Dynamo {row['engine_version'].partition(' |')[0]}",
        "predicted_as": case.engine,
        "model": model_title(case.model),
        "chip": case.chip,
        "chips": case.chips,
        "dtype": case.dtype or "as stored",
        "precision": row["weight_precision"],
        "plan": f"{_words(case.prefill)}, {_words(case.decode)}",
        "kept_out": True,
        "clients": case.clients,
        "input": case.input_tokens,
        "output": case.output_tokens,
        "load": "clients",
    }


def _words(pool: DisaggregatedPool) -> str:
    shape = f"DP {pool.dp}" if pool.dp > 1 else f"TP {pool.tp}"
    return f"{pool.role} {pool.replicas} x {shape}" + (f" EP {pool.ep}" if pool.ep > 1 else "")
