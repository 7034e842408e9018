"""What kind a figure is, shown by bending Gnomon's model: a prediction moves with it, an identity does not."""

from __future__ import annotations

from functools import cache

import pytest
from tests.papers.own_index import OwnIndex
from tests.papers.perturbed import WAYS, figures

from gnomon.errors import InputError
from gnomon.papers.answers import run
from gnomon.papers.base import Figure
from gnomon.papers.entries import paper, reproduced
from gnomon.papers.reproduce import figures as computed
from gnomon.papers.source import reproduction

pytestmark = pytest.mark.slow

QUICK = ("long-context-peak", "gptq")
SAME = 1e-9


@cache
def told(slug: str) -> dict[str, Figure]:
    return {one.what: one for one in computed(slug)}


def check(slug: str) -> None:
    """One way after the other, until all that is predicted has moved."""
    plain = figures("plain", [slug])[slug]
    waiting = {what for what, one in told(slug).items() if one.kind == "predicted"}
    for way in (way for way in WAYS if way != "plain"):
        found = figures(way, [slug])[slug]
        moved = {what for what, ours in found.items() if abs(ours - plain[what]) > SAME * abs(plain[what])}
        for what in moved:
            kind = told(slug)[what].kind
            assert kind == "predicted", f"'{what}' moves with the model ({way}), and is called {kind}"
        waiting -= moved
        if not waiting:
            return
    assert not waiting, f"{waiting} depend on nothing that Gnomon models, and are called predicted"


@pytest.mark.slow
@pytest.mark.parametrize("slug", QUICK)
def test_predictions_move_and_identities_do_not(slug: str) -> None:
    check(slug)


@pytest.mark.slow
@pytest.mark.parametrize("slug", [slug for slug in reproduced() if slug not in QUICK])
def test_every_prediction_moves_and_no_identity_does(slug: str) -> None:
    check(slug)


@pytest.mark.battery(10)
@pytest.mark.parametrize("slug", reproduced())
def test_identities_come_out_and_contradictions_do_not(slug: str) -> None:
    for one in told(slug).values():
        assert one.within or one.kind != "identity", one.what
        if one.kind == "contradiction":
            assert not one.within and one.note, one.what


@pytest.mark.battery(8)
@pytest.mark.parametrize("slug", reproduced())
def test_figures_stand_for_claims_of_the_entry(slug: str) -> None:
    """What no figure stands for is left out, and the derivation says why; it may leave out other figures too."""
    claims = paper(slug).claims
    checked = {one.claim for one in told(slug).values()} - {0}
    assert reproduction(slug).missing or len(checked) == len(claims)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tolerance: 0.01", "tolerance: 0.001", "an identity that is not reproduced"),
        ("0.01, kind: identity", "0.01, kind: contradiction", "a contradiction that is reproduced"),
    ],
)
def test_a_kind_that_is_not_so_is_refused(old: str, new: str, message: str, own: OwnIndex) -> None:
    own.gpipe(old, new)
    with pytest.raises(InputError, match=f"figure 'idle share': {message}"):
        run("gpipe")
