"""Chips as they are written on a command line: `H100:16,L4:32`."""

from __future__ import annotations

from gnomon import catalog
from gnomon.errors import InputError, named_by
from gnomon.spec import Cluster, Pool
from gnomon.units import parse_whole

MAX_CHIPS = 10_000_000


def parse_pool(text: str, where: str = "--on") -> Pool:
    """`H100` (one chip) or `H100:4`."""
    if "," in text:
        raise InputError(f"'{text}' names more than one kind of chip", where=where, hint="Write one, as in H100:4.")
    name, colon, count_text = (part.strip() for part in text.partition(":"))
    if not name or (colon and not count_text):
        raise InputError(f"'{text}' is not CHIP or CHIP:COUNT, as in H100:4", where=where)
    with named_by(where):
        chip = catalog.chip(name)
    count = parse_whole(count_text, where) if colon else 1
    if count > MAX_CHIPS:
        raise InputError(f"'{text}' is more than {MAX_CHIPS:,} chips", where=where)
    return Pool(chip=chip, count=count, per_node=min(count, chip.scaleup_size))


def parse_fleet(text: str, where: str = "--fleet") -> Cluster:
    """`H100:16,L4:32`: pools in the order written, each chip once."""
    pools = tuple(parse_pool(part, where) for part in text.split(","))
    names = [pool.chip.name for pool in pools]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise InputError(f"'{text}' names {repeated} twice", where=where, hint="Add the counts up.")
    return Cluster(pools=pools)
