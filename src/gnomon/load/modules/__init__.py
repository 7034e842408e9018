"""Any `torch.nn.Module`, made into a list of operator calls. Needs PyTorch; imported only when it is asked for."""

from gnomon.load.modules.trace import OPTIMIZERS, trace_module

__all__ = ["OPTIMIZERS", "trace_module"]
