"""What a training run with failures says as text, as a page and opened."""

from __future__ import annotations

from tests.report import answers

from gnomon.report.opened_training import trained

LOST = ("waiting for checkpoints", "steps lost since the last checkpoint", "detecting failures", "restarting")


def test_text() -> None:
    run = {"steps": 95367.4, "days": 37.4, "cost_usd": 1.9e6, "energy_kwh": 612e3}
    text = str(answers.trained(reliability=answers.interrupted(), run=run))
    assert "goodput 91.2% (88.7 to 93.7, 90%): 290 failures expected, one every 3.09 h" in text
    assert "37.4 days (35.7 to 39.1)" in text
    assert "every 20 steps (3.03 min): stall 350 ms, written 22.8 s later, loaded in 2.8 s" in text
    assert "best interval: 10 steps (91 s), goodput 91.5%" in text
    assert "35 spare nodes, paid for" in text
    assert all(name in text for name in LOST)
    assert "loading checkpoints" not in text  # nothing was lost to it


def test_text_of_other_runs() -> None:
    found = answers.interrupted()
    best = found.checkpoints | {"every_steps": 10, "interval_s": 91.0}
    rare = found.failures | {"count": 0.42}
    text = str(answers.trained(reliability=answers.interrupted(checkpoints=best, failures=rare, spares=0)))
    assert "0.42 failures expected" in text
    assert "no other interval is better" in text
    assert "no spare nodes" in text
    waits = str(answers.trained(reliability=answers.interrupted(lost=found.lost | {"repairs": 0.02})))
    assert "waiting for nodes in repair" in waits
    assert "goodput" not in str(answers.trained())


def test_page() -> None:
    page = answers.trained(reliability=answers.interrupted()).to_html()
    assert "Where the rest of the run goes" in page
    assert all(name in page for name in LOST)
    assert "Where the rest of the run goes" not in answers.trained().to_html()


def test_opened() -> None:
    run = trained(answers.trained(reliability=answers.interrupted()))[-1]
    assert [part.name for part in run.parts] == ["goodput", "failures", "checkpoints", "checkpoints"]
    assert [part.name for part in run.parts[0].parts] == list(LOST)
    assert run.parts[1].source == "The Llama 3 Herd of Models"
    assert trained(answers.trained())[-1].parts == ()
