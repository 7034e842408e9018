"""What can be asked: one frozen class per command, shared by the command line, Python and sweeps."""

from gnomon.spec.questions.base import Flag, Question

__all__ = ["Flag", "Question"]
