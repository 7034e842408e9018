"""How many published vLLM deployments are inside their 90% intervals with given spreads of published chips: those that
may be fitted to, by which `SERVED_SPREAD` and `PROMPT_SPREAD` are chosen, or with --kept-out the others.

    python -m tools.system_spread 0.04 0.25
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tools.published import tables

from gnomon.accuracy import truth
from gnomon.accuracy.deployment_rows import NEEDED, RECENT, DeploymentCase, Unfit, case_of, consistent
from gnomon.accuracy.deployments import compare
from gnomon.accuracy.scores import summaries
from gnomon.cost.profile import Profile
from gnomon.load import profiles
from gnomon.load.profile_file import profile_from_dict


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("system", type=float, help="what all steps share (log)")
    asked.add_argument("prompts", type=float, help="what steps with prompts share beyond it (log)")
    asked.add_argument("--kept-out", action="store_true", help="the half that no fit uses")
    given = asked.parse_args()
    _set(given.system, given.prompts)
    rows = [row for case in _cases(given.kept_out) for row in compare(case)]
    rows = [row | {"what": row["what"].partition(",")[0]} for row in rows]
    for one in (*summaries(rows), *summaries(rows, ("what", "chip"))):
        named = (
            f"{one['what']:5}{one.get('chip', 'all'):16}{one['rows']:5} rows, inside {one['inside'] / one['rows']:.0%}"
        )
        print(f"{named}, half-width {one['half_width']:.1%}, median error {one['median_error']:.1%}")


def _set(system: float, prompts: float) -> None:
    """Every profile of a chip known by tables alone has these spreads from here on."""

    def wider(data: Mapping[str, Any], where: str, whose: str = "") -> Profile:
        found = profile_from_dict(data, where, whose)
        return replace(found, system_spread=system, prompt_spread=prompts) if found.system_spread else found

    setattr(profiles, "profile_from_dict", wider)  # noqa: B010


def _cases(kept_out: bool) -> Iterator[DeploymentCase]:
    found, folder = list[DeploymentCase](), tables()
    if folder is None:
        raise SystemExit("the published tables are not here; GNOMON_TRUTH can name their folder")
    for row in truth.rows(folder / truth.SERVING, NEEDED):
        try:
            found.append(case_of(row))
        except Unfit:
            continue
    yield from (case for case in consistent(found) if case.group == RECENT and case.kept_out == kept_out)


if __name__ == "__main__":
    main()
