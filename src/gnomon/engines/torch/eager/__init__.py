"""PyTorch's eager mode for any module: its kernels, its host, its memory."""

from gnomon.engines.torch.eager.lower import LAUNCHES, LaunchedKernel, Lowered, lower
from gnomon.engines.torch.eager.lowering import Precision
from gnomon.engines.torch.eager.memory import Peak, peak

__all__ = ["LAUNCHES", "LaunchedKernel", "Lowered", "Peak", "Precision", "lower", "peak"]
