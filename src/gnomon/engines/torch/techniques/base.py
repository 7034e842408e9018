"""The contract of a technique that the built-in runner runs.

A technique of a plan is run by one file of this folder, found by the name it declares in `TECHNIQUES`:

    class Spill(RunnerTechnique):
        name = "spill"  # as `strategy.techniques` and `gnomon techniques` write it

        def check(self, job, values):      # no torch here: a plan is refused before anything starts
            if job.strategy.pp > 1:
                raise InputError("spill does not run in a pipeline", where="strategy.pp", hint="Use 1.")

        def start(self, job, values, place):
            from gnomon.engines.torch.spilling import Spilling  # torch is imported where it is used

            return Spilling(values["share"])

    TECHNIQUES = (Spill(),)

`start` gives a `RunningTechnique`, one per rank and run, whose hooks are called in this order: `build` for every part
of the network that this rank holds, on the meta device, after tensor parallelism has cut it; `drawn` for each layer,
then for the part, when weights are there and before FSDP shards them; `home` when the optimizer is made; in every step
`step` around all of it and `run_pass` around every forward and backward; `result` at the end. What a technique does not
override stays as it is; several run in the order in which the plan names them.

`build` may replace modules and freeze weights (`requires_grad_(False)`): frozen ones get no gradient buffers and no
optimizer states. A new weight is drawn as others are, from the seed and its name; one that starts at a number has it in
`weight.start_at`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, ClassVar

from gnomon.spec.training_job import TrainingJob

Values = Mapping[str, Any]
"""All parameters of a technique with their values."""


class RunningTechnique:
    """What a technique does on one rank of a run."""

    def build(self, part: Any) -> None:
        """Change the modules of a part, whose weights are on the meta device."""

    def drawn(self, module: Any) -> None:
        """Change weights of a layer, or of a part beside its layers, that have just been initialised."""

    def home(self) -> Any:
        """The device of fp32 weights and optimizer states; None for the rank's own."""
        return None

    def step(self) -> AbstractContextManager[Any]:
        """Around a whole step, the update included."""
        return nullcontext()

    def run_pass(self, kind: str, chunk: int, micro: int) -> AbstractContextManager[Any]:
        """Around a pass: F, B, I or W, the model chunk on this rank, the micro-batch."""
        return nullcontext()

    def result(self) -> Mapping[str, Any]:
        """What is told of this rank's run under the technique's name: bytes moved, kernels used; JSON."""
        return {}


class RunnerTechnique:
    """A technique that the runner knows. Stateless; imports no torch."""

    name: ClassVar[str]
    """As a plan names it."""

    def check(self, job: TrainingJob, values: Values) -> None:
        """Raise InputError where the runner cannot run the job with it. Plans of a search are checked in groups, so of
        degrees only whether they are above 1 may matter, and of the recipe ZeRO, recomputation and schedule."""

    def start(self, job: TrainingJob, values: Values, place: Any) -> RunningTechnique:
        """What it does in a run on this rank; `place` is a `ranks.Place`."""
        raise NotImplementedError


class Together(RunningTechnique):
    """Techniques of one plan, in its order."""

    def __init__(self, running: Mapping[str, RunningTechnique]) -> None:
        self.running = running

    @property
    def _all(self) -> Sequence[RunningTechnique]:
        return tuple(self.running.values())

    def build(self, part: Any) -> None:
        for one in self._all:
            one.build(part)

    def drawn(self, module: Any) -> None:
        for one in self._all:
            one.drawn(module)

    def home(self) -> Any:
        return next((home for one in self._all if (home := one.home()) is not None), None)

    def step(self) -> AbstractContextManager[Any]:
        return _entered([one.step() for one in self._all])

    def run_pass(self, kind: str, chunk: int, micro: int) -> AbstractContextManager[Any]:
        return _entered([one.run_pass(kind, chunk, micro) for one in self._all])

    def result(self) -> Mapping[str, Any]:
        """By technique."""
        return {name: dict(one.result()) for name, one in self.running.items()}


@contextmanager
def _entered(contexts: Sequence[AbstractContextManager[Any]]) -> Iterator[None]:
    with ExitStack() as stack:
        for one in contexts:
            stack.enter_context(one)
        yield
