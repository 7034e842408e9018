"""PyTorch's eager mode for any module: its kernels, its host, its memory."""

from gnomon.engines.torch.eager.lower import LAUNCHES, Launched, Lowered, lower
from gnomon.engines.torch.eager.memory import Peak, peak
from gnomon.engines.torch.eager.products import Precision

__all__ = ["LAUNCHES", "Launched", "Lowered", "Peak", "Precision", "lower", "peak"]
