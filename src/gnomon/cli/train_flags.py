"""Options of the training commands. Names are looked up when one is given, so that `--help` stays quick."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gnomon.cli import names
from gnomon.cli.flags import count, degree, one_of, training_engine, whole

SCHEDULES_HELP = "Order of the pipeline's passes: gpipe, 1f1b or interleaved."
RECOMPUTE_HELP = "What the backward pass runs again to save memory: none (where it is not given), selective or full."
CP_COMM_HELP = (
    "How context-parallel ranks exchange keys: p2p (a ring, where it is not given), a2a (tokens for heads) or "
    "allgather."
)
OPTIMIZER_HELP = (
    "adamw (fp32 weights and moments beside the working weights), adamw-bf16 (everything in bf16), adam8bit, sgd, "
    "adafactor, lion or muon."
)


def _zero(text: Any) -> int:
    from gnomon.load.recipe import MAX_ZERO

    return whole("--zero", least=0, most=MAX_ZERO)(text)


Seq = Annotated[int, typer.Option("--seq", parser=whole("--seq"), metavar="S", help="Tokens of a sequence.")]
GlobalBatch = Annotated[
    int, typer.Option("--global-batch", parser=whole("--global-batch"), metavar="B", help="Sequences of a step.")
]
MicroBatch = Annotated[
    int,
    typer.Option(
        "--micro-batch", parser=whole("--micro-batch"), metavar="b", help="Sequences a rank takes through at a time."
    ),
]
Tp = Annotated[int, degree("--tp", "Tensor", "")]
Pp = Annotated[int | None, degree("--pp", "Pipeline", " 1 where it is not given.")]
Cp = Annotated[int | None, degree("--cp", "Context", " 1 where it is not given.")]
Vp = Annotated[
    int | None,
    typer.Option(
        "--vp",
        parser=whole("--vp"),
        metavar="N",
        help="Parts of the network a pipeline rank holds; 1 where it is not given.",
    ),
]
CpComm = Annotated[
    str | None,
    typer.Option(
        "--cp-comm",
        parser=one_of("--cp-comm", "exchange of keys", names.cp_comms),
        autocompletion=names.words(names.cp_comms),
        metavar="NAME",
        help=CP_COMM_HELP,
    ),
]
ExpertTp = Annotated[
    int,
    typer.Option(
        "--expert-tp",
        parser=whole("--expert-tp", least=0),
        metavar="N",
        help="Ranks each expert is cut over: 1, or 0 for as many as other matrices.",
    ),
]
Dp = Annotated[int | None, degree("--dp", "Data", " All chips the other degrees leave where it is not given.")]
Zero = Annotated[
    int,
    typer.Option(
        "--zero",
        parser=_zero,
        metavar="0..3",
        help="What data-parallel ranks share out: 1 optimizer states, 2 gradients too, 3 weights too.",
    ),
]
Schedule = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        parser=one_of("--schedule", "schedule", names.schedules),
        autocompletion=names.words(names.schedules),
        metavar="NAME",
        help=SCHEDULES_HELP,
    ),
]
Recompute = Annotated[
    str | None,
    typer.Option(
        "--recompute",
        parser=one_of("--recompute", "recomputation", names.recompute),
        autocompletion=names.words(names.recompute),
        metavar="MODE",
        help=RECOMPUTE_HELP,
    ),
]
Optimizer = Annotated[
    str,
    typer.Option(
        "--optimizer",
        parser=one_of("--optimizer", "optimizer", names.optimizers),
        autocompletion=names.words(names.optimizers),
        metavar="NAME",
        help=OPTIMIZER_HELP,
    ),
]
Engine = Annotated[
    str, typer.Option("--engine", parser=training_engine, metavar="NAME[@VERSION]", help="megatron or torch.")
]
Tokens = Annotated[
    float | None,
    typer.Option("--tokens", parser=count("--tokens"), metavar="T", help="Tokens of the whole run, such as 300B."),
]
SequenceParallel = Annotated[
    bool,
    typer.Option(
        "--sequence-parallel/--no-sequence-parallel",
        help="Whether tensor-parallel ranks also cut the sequence between matrices.",
    ),
]
TraceOut = Annotated[
    str | None, typer.Option("--trace-out", metavar="FILE.json", help="Write the timeline, for ui.perfetto.dev.")
]
MemoryOut = Annotated[
    str | None,
    typer.Option(
        "--memory-out",
        metavar="FILE.csv|.svg|.png",
        help="Write the memory of every pipeline rank over the step, as a table or drawn.",
    ),
]
