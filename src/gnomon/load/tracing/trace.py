"""Runs a module once on tensors without values, and keeps what it called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from inspect import signature
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils._pytree import tree_flatten

from gnomon.errors import GnomonError, InputError, unknown_name
from gnomon.load.tracing import casts, fakes
from gnomon.load.tracing.dispatch_overrides import dispatch_overrides, whole_sequences
from gnomon.load.tracing.recorder import DTYPES, OpRecorder
from gnomon.load.tracing.trace_errors import blamed_on_module, quietly
from gnomon.spec.traced import Traced

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "adamw-foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=True),
}
"""Ways to update parameters by name; `none` ends a step with its gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """How a module is run: its phase, formats and batch, what a training step begins and ends with."""

    phase: Literal["forward", "train"] = "forward"
    dtype: str | None = None
    autocast: str | None = None
    batch: int | None = None
    loss: Callable[[Any], Any] | None = None
    optimizer: str | Callable[[Any], Any] = "adamw"
    captured: bool = False
    """As a CUDA graph, and not call by call."""


def trace_module(module: Any, inputs: Any, options: TraceOptions) -> Traced:
    """What one step of the module calls, one by one or while a graph is captured. Its weights are neither read nor
    changed, and may be on the meta device."""
    phase, dtype, loss = options.phase, options.dtype, options.loss
    if "allow_override" not in signature(torch.library.Library.impl).parameters:
        raise GnomonError(f"PyTorch {torch.__version__} is too old to trace with", hint="2.13 is what is tested.")
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"is no torch.nn.Module but {type(module).__name__}", where="module")
    if loss is not None and not callable(loss):
        raise InputError(f"{loss!r} is no function of the module's outputs", where="loss")
    update = _update(options.optimizer)
    wanted = fakes.torch_dtype(dtype, "--dtype") if dtype else None
    inputs, samples = fakes.resized(inputs, options.batch)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with blamed_on_module(), whole_sequences(options.captured), _mode(module, phase), fake, casts.cuda_means_here():
        parameters, buffers = fakes.blank_state(module, wanted)
        owners = {id(tensor): name.rpartition(".")[0] for name, tensor in parameters.items()}
        paths = {id(part): name.replace("_orig_mod.", "") for name, part in module.named_modules()}
        recorder = OpRecorder(paths, owners)
        for role, tensors in (("parameters", parameters), ("buffers", buffers)):
            for tensor in tensors.values():
                recorder.know(tensor, role)  # type: ignore[arg-type]
        given = fakes.filled(fakes.arguments(inputs), wanted, lambda tensor: recorder.know(tensor, "inputs"))
        run = _Step(module, parameters | buffers, given, recorder, options.autocast)
        run.forward_only() if phase == "forward" else run.train(loss, update)
        distinct = {id(p): p for p in parameters.values()}.values()
        del run, given
    return Traced(
        name=type(module).__name__,
        calls=tuple(recorder.calls),
        storages=recorder.storages(),
        parameters=sum(p.numel() for p in distinct),
        trainable=sum(p.numel() for p in distinct if p.requires_grad),
        samples=samples,
        dtype=_main_dtype(distinct),
        phase=phase,
    )


class _Step:
    """One pass over the inputs, or one step of training on them."""

    def __init__(self, module: Any, state: dict[str, Any], given: Any, recorder: OpRecorder, autocast: str | None):
        self.module, self.state, self.given, self.recorder = module, state, given, recorder
        self.autocast = fakes.torch_dtype(autocast, "autocast") if autocast else None

    def forward(self) -> Any:
        lowered = torch.autocast("cpu", dtype=self.autocast) if self.autocast else nullcontext()
        args, kwargs = self.given
        with lowered:
            return self.module(*args, **kwargs)

    def forward_only(self) -> None:
        with _recording(self.recorder), torch.no_grad(), self._in_place():
            self.forward()

    def _in_place(self) -> Any:
        """The blank parameters stand in for the module's own, also while parts of it are recomputed in backward."""
        return _reparametrize_module(self.module, self.state, tie_weights=False)

    def train(self, loss: Callable[[Any], Any] | None, update: Callable[[Any], Any] | None) -> None:
        weights = [t for t in {id(t): t for t in self.state.values()}.values() if t.requires_grad]
        if not weights:
            raise InputError("has no parameter that needs a gradient", where="module", hint='Use phase="forward".')
        with _recording(self.recorder), torch.enable_grad(), self._in_place():
            outputs = self.forward()
            roots = _roots(loss(outputs) if loss else outputs)
            del outputs
            self.recorder.phase = "backward"
            torch.autograd.backward(roots, [torch.empty_like(root) for root in roots])
            del roots
        for weight in weights:
            if weight.grad is not None:
                self.recorder.know(weight.grad, "gradients")
        if update is not None:
            self._update(update(weights))

    def _update(self, optimizer: Any) -> None:
        """A step like all but the first, which makes the states."""
        optimizer.step()
        for states in optimizer.state.values():
            for value in states.values():
                if isinstance(value, torch.Tensor):
                    self.recorder.know(value, "optimizer")
        self.recorder.phase = "optimizer"
        with _recording(self.recorder):
            optimizer.step()


def _roots(outputs: Any) -> list[Any]:
    """What the backward pass begins with: the loss where the module gives one, else all it gives."""
    if hasattr(outputs, "keys") and "loss" in outputs and outputs["loss"] is not None:
        outputs = outputs["loss"]
    leaves = [
        leaf for leaf in tree_flatten(_plain(outputs))[0] if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    if not leaves:
        raise InputError(
            "nothing that the module gives depends on its parameters",
            where="module",
            hint='Give loss=, a function of its outputs, or use phase="forward".',
        )
    return leaves


def _plain(outputs: Any) -> Any:
    """Outputs of a class of their own as a list."""
    if isinstance(outputs, torch.Tensor):
        return outputs
    if is_dataclass(outputs) and not hasattr(outputs, "values"):
        return [getattr(outputs, field.name) for field in fields(outputs)]
    return list(outputs.values()) if hasattr(outputs, "values") else outputs


def _update(optimizer: str | Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    if callable(optimizer):
        return optimizer
    if optimizer == "none":
        return None
    if not isinstance(optimizer, str) or optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", str(optimizer), (*OPTIMIZERS, "none"), where="optimizer")
    return OPTIMIZERS[optimizer]


@contextmanager
def _recording(recorder: OpRecorder) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(quietly())
        stack.enter_context(dispatch_overrides())
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(fakes.OneDevice())
        stack.enter_context(recorder.watching())
        yield


@contextmanager
def _mode(module: Any, phase: str) -> Iterator[None]:
    """Inference or training mode, whichever the phase is about; a module already in it keeps its parts' own."""
    before = {part: part.training for part in module.modules()}
    if module.training != (phase == "train"):
        module.train(phase == "train")
    try:
        yield
    finally:
        for part, training in before.items():
            part.training = training


def _main_dtype(parameters: Any) -> str:
    sizes: Counter[str] = Counter()
    for tensor in parameters:
        sizes[DTYPES.get(tensor.dtype, str(tensor.dtype))] += tensor.numel()
    return sizes.most_common(1)[0][0] if sizes else "fp32"
