"""When requests arrive: one file per process. `--arrivals gamma:cv=3`."""

from __future__ import annotations

from gnomon.errors import unknown_name
from gnomon.spec.loads.arrivals.base import ArrivalProcess
from gnomon.spec.loads.arrivals.constant import Constant
from gnomon.spec.loads.arrivals.diurnal import Diurnal
from gnomon.spec.loads.arrivals.gamma import Gamma
from gnomon.spec.loads.arrivals.markov import Markov
from gnomon.spec.loads.arrivals.poisson import Poisson

PROCESSES: dict[str, type[ArrivalProcess]] = {
    process.NAME: process for process in (Poisson, Constant, Gamma, Markov, Diurnal)
}


def arrivals_of(text: str, where: str = "--arrivals") -> ArrivalProcess:
    """The process that a text describes."""
    name, _, rest = text.strip().partition(":")
    process = PROCESSES.get(name.strip().lower())
    if process is None:
        raise unknown_name("arrival process", name.strip(), PROCESSES, where=where)
    return process.read(rest, where)
