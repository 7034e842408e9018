"""Triton kernels of experiments, imported only where Triton is."""
