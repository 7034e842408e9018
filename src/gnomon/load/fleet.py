"""Chips as they are written on a command line: `H100:16,L4:32`, or files that describe them."""

from __future__ import annotations

import re

from gnomon import catalog
from gnomon.errors import InputError
from gnomon.load.chips import SCHEMA as CHIP
from gnomon.load.chips import chip as find_chip
from gnomon.load.chips import chip_from_dict
from gnomon.load.cluster import SCHEMA as CLUSTER
from gnomon.load.cluster import cluster_from_dict
from gnomon.load.files import as_path, read_yaml
from gnomon.load.objects import checked_cluster, checked_pool
from gnomon.spec import Chip, Cluster, Pool
from gnomon.units import parse_whole

MAX_CHIPS = 10_000_000
_FILE = re.compile(r"\s*(.+\.ya?ml)\s*(?::(.*))?", re.IGNORECASE | re.DOTALL)


def parse_pool(text: str | Pool, where: str = "--on") -> Pool:
    """`H100` (one chip), `H100:4`, `chip.yaml:4`, or `cluster.yaml` (`cluster.yaml:8` for a part of it); chips that
    are there already are checked and handed back."""
    if isinstance(text, Pool):
        return checked_pool(text, where)
    file = _FILE.fullmatch(text)
    if file:
        return _from_file(file[1], file[2], where)
    if "," in text or "+" in text.partition(":")[2]:
        raise InputError(f"'{text}' names more than one kind of chip", where=where, hint="Write one, as in H100:4.")
    name, colon, count_text = (part.strip() for part in text.partition(":"))
    if not name or (colon and not count_text):
        raise InputError(f"'{text}' is not CHIP or CHIP:COUNT, as in H100:4", where=where)
    return _pool(find_chip(name, where), count_text if colon else "1", where)


def parse_fleet(text: str | Cluster, where: str = "--fleet") -> Cluster:
    """`H100:16,L4:32`, or `cluster.yaml`: pools in the order written, each chip once."""
    if isinstance(text, Cluster):
        return checked_cluster(text, where)
    pools = tuple(pool for part in text.split(",") for pool in _pools(part, where))
    names = [pool.chip.name for pool in pools]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise InputError(f"'{text}' names {repeated} twice", where=where, hint="Add the counts up.")
    return Cluster(pools=pools)


def _pools(text: str, where: str) -> tuple[Pool, ...]:
    file = _FILE.fullmatch(text)
    if file and not file[2]:
        found = _read(file[1])
        return found.pools if isinstance(found, Cluster) else (_pool(found, "1", where),)
    return (parse_pool(text, where),)


def _from_file(path: str, count_text: str | None, where: str) -> Pool:
    found = _read(path)
    if isinstance(found, Chip):
        return _pool(found, count_text if count_text is not None else "1", where)
    if len(found.pools) > 1:
        names = ", ".join(pool.chip.name for pool in found.pools)
        raise InputError(f"'{path}' holds more than one kind of chip ({names})", where=where, hint="Give one of them.")
    pool = found.pools[0]
    if count_text is None:
        return pool
    count = _count(count_text, where)
    if count > pool.count:
        raise InputError(f"{count:,} chips are asked for and '{path}' has {pool.count:,}", where=where)
    return pool.resized(count)


def _read(path: str) -> Chip | Cluster:
    """What a file describes, told by its schema."""
    file = as_path(path)
    data = read_yaml(file)
    schema = data.get("schema")
    if schema == CLUSTER:
        return cluster_from_dict(data, str(file))
    if schema == CHIP:
        return chip_from_dict(data, str(file), given=True)
    said = f"'{schema}' is neither" if schema else "is missing: it is either"
    raise InputError(f"{said} {CHIP} {'nor' if schema else 'or'} {CLUSTER}", where=f"{file}, field schema")


def _pool(chip: Chip, count_text: str, where: str) -> Pool:
    return Pool.of(chip, _count(count_text, where), catalog.node_of(chip))


def _count(text: str, where: str) -> int:
    count = parse_whole(text.strip(), where)
    if count > MAX_CHIPS:
        raise InputError(f"'{text}' is more than {MAX_CHIPS:,} chips", where=where)
    return count
