"""Whether a file that names its schema is ours, older than we read, or from a Gnomon that is newer than this one."""

from __future__ import annotations

import re

from gnomon.errors import CalibrationError


def check_schema(found: object, known: str, where: str) -> None:
    """Refuse any other schema than `known`, saying why.

    >>> check_schema("gnomon.profile/9", "gnomon.profile/1", "mine.yaml")
    Traceback (most recent call last):
    gnomon.errors.CalibrationError: mine.yaml: was written by a newer Gnomon (gnomon.profile/9, not /1). Update Gnomon.
    """
    if found == known:
        return
    name, _, version = known.partition("/")
    other = re.fullmatch(rf"{re.escape(name)}/(\d{{1,9}})", found) if isinstance(found, str) else None
    if other and int(other[1]) > int(version):
        raise CalibrationError(
            f"was written by a newer Gnomon ({found}, not /{version})", where=where, hint="Update Gnomon."
        )
    raise CalibrationError(f"schema is '{found}', not '{known}'", where=where)
