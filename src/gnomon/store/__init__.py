"""Run history: every answer is kept under a short id, so that it can be opened, compared and exported later."""

from gnomon.paths import home
from gnomon.store.plans import resolve_plan
from gnomon.store.runs import Entry, answer_of, entry, history, load, save

__all__ = ["Entry", "answer_of", "entry", "history", "home", "load", "resolve_plan", "save"]
