"""A training run with its failures: what checkpoints take on the chips at hand, and what becomes of days and money."""

from gnomon.planning.run.reliability import with_failures

__all__ = ["with_failures"]
