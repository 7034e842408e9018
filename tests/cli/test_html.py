"""`--html FILE`: one page of the same bytes for the same question, beside the answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.contract.asking import say
from tests.report import answers
from tests.report.pages import Read

from gnomon.api import verify as api_verify
from gnomon.cli.run import run
from gnomon.errors import InputError, UnwrittenError
from gnomon.spec.answers import Result
from gnomon.store import history

SERVE = "simulate serve llama-3.2-1b --on H100 --rate 4 --input 64 --output 8 --requests 5"
TRAIN = "simulate train llama-3.2-1b --on H100:2 --seq 512 --global-batch 4 --pp 2"
PLAN = (
    "plan serve llama-3.2-1b --fleet H100:1 --rate 4 --input 100 --output 8 --slo ttft_p90=1s --dtype bf16 "
    "--set max_num_seqs=64 --set max_num_batched_tokens=2048"
)
PAGES = (
    "predict llama-3.2-1b --on H100 --batch 8 --context 512",
    "predict llama-3.2-1b --on H100:4 --phase train --batch 8 --tokens 512 --tp 2",
    "predict llama-3.1-70b --on H100",
    "predict dit-xl-2-256 --on H100 --batch 2",
    "fit llama-3.2-1b --on H100",
    "fit llama-3.1-70b --on H100",
    "fit bert-base --on H100",
    SERVE,
    f"{SERVE} --set block_size=32",
    TRAIN,
    PLAN,
    "plan train llama-3.2-1b --cluster H100:4 --seq 512 --global-batch 16 --tokens 1B",
    "try gptq --model llama-3.2-1b --on H100",
    "try zero-offload --model llama-3.2-1b --on H100:1 --seq 512 --global-batch 8",
    "explain last",
    "explain last --op ffn.up",
    "verify last",
)
TEXTS = (
    "chips",
    "chips show H100",
    "models --kind moe",
    "models show llama-3.1-8b",
    "techniques",
    "papers --topic offload",
    "papers search offload optimizer",
    "papers show gptq",
    "papers run zero-offload",
    "export plan.yaml",
    "launch plan.yaml --dry-run",
    "accuracy",
    "chips new my-chip --like H100",
)
"""Commands without a page, whose answers are objects too."""
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a plan, a history with a step, and an engine that measures nothing."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLES / "plan.yaml", tmp_path / "plan.yaml")
    monkeypatch.setattr(api_verify, "answer", lambda *_, **__: answers.verified())
    return tmp_path


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    """The answers that commands print, as Python has them; the last one is the whole of it."""
    found: list[Result] = []
    to_dict = Result.to_dict

    def noted(self: Result) -> dict[str, Any]:
        payload = to_dict(self)
        if self.SCHEMA:
            found.append(self)
        return payload

    monkeypatch.setattr(Result, "to_dict", noted)
    return found


def before(line: str) -> None:
    if line.startswith("explain"):
        assert say("predict llama-3.2-1b --on H100 --batch 8 --context 512").code == 0


@pytest.mark.battery(2)
@pytest.mark.parametrize("line", [*PAGES, *TEXTS])
def test_str_is_what_the_command_prints(line: str, given: list[Result]) -> None:
    before(line)
    said = say(line)
    assert said.code in (0, 1), said.err
    answer = given[-1]
    assert f"{answer}\n" == said.out
    assert len(repr(answer)) < 200 and "\n" not in repr(answer)


@pytest.mark.battery(2)
@pytest.mark.parametrize("line", PAGES)
def test_a_page_beside_the_answer(line: str, folder: Path) -> None:
    before(line)
    plain = say(f"{line} --json")
    assert plain.code == 0, plain.err
    before(line)
    said = say(f"{line} --json --html page.html")
    assert (said.code, said.err) == (0, "")
    page = (folder / "page.html").read_text(encoding="utf-8")
    read = Read(page)
    assert read.problems() == []
    plots = ("series", "distributions", "by_rate")  # for the page alone
    own, printed = ({key: one[key] for key in one if key not in plots} for one in (read.answer, said.answer))
    assert own == printed
    assert f"gnomon {line}" in read.text
    assert "page.html" not in page and str(folder) not in page
    if not line.startswith("explain"):
        assert said.out == plain.out
    assert not [file for file in folder.iterdir() if file.name.startswith(".")]


@pytest.mark.heavy
def test_the_same_bytes_elsewhere(tmp_path: Path) -> None:
    """Another folder, another home, another process, another order of sets."""
    pages = []
    for number in ("1", "2"):
        place = tmp_path / f"place-{number}"
        place.mkdir()
        changed = {"GNOMON_HOME": str(place / "home"), "PYTHONHASHSEED": number}
        words = [*SERVE.split(), "--html", str(place / f"page-{number}.html")]
        subprocess.run(
            [sys.executable, "-m", "gnomon", *words],
            cwd=place,
            env=os.environ | changed,
            check=True,
            capture_output=True,
        )
        pages.append((place / f"page-{number}.html").read_bytes())
    assert pages[0] == pages[1]
    assert len(pages[0]) > 5000


def test_the_command_is_the_question_alone(folder: Path) -> None:
    words = ["--requests-out=r.csv", "--html=p.html", "--trace-out", "t.json", "--json"]
    assert run([*SERVE.split(), *words, "--set", "max_model_len=4096"]) == 0
    read = Read((folder / "p.html").read_text())
    assert f"gnomon {SERVE} --set max_model_len=4096" in read.text
    assert not [word for word in ("r.csv", "p.html", "t.json", "--json") if word in read.text]


def test_a_model_with_a_hostile_name(folder: Path) -> None:
    """A folder may be called anything."""
    name = "<img src=x onerror=alert(1)>"
    shapes = say("models show llama-3.2-1b --shapes").out
    (folder / f"{name}.yaml").write_text(shapes)
    assert run(["predict", f"{name}.yaml", "--on", "H100", "--html", "p.html"]) == 0
    page = (folder / "p.html").read_text()
    read = Read(page)
    assert read.problems() == []
    assert name in read.text and "<img" not in page


INPUTS = {
    "predict MODEL --on CHIP": ("--html",),
    "fit MODEL --on CHIP": ("--html",),
    "simulate serve MODEL --on CHIP --trace TRACE": ("--html", "--requests-out", "--trace-out"),
    "simulate train MODEL --on CHIP --seq 512 --global-batch 4": ("--html", "--trace-out", "--memory-out"),
    "plan serve MODEL --fleet CHIP --trace TRACE": ("--html",),
    "plan train MODEL --cluster CHIP --seq 512 --global-batch 4": ("--html",),
    "try gptq --model MODEL --on CHIP": ("--html",),
    "verify PLAN": ("--html", "--out"),
    "explain ANSWER": ("--html",),
}
"""Commands with the files they read and the flags of files they write."""
READ = {"MODEL": "shapes.yaml", "CHIP": "chip.yaml", "TRACE": "load.csv", "PLAN": "plan.yaml", "ANSWER": "answer.json"}


@pytest.mark.parametrize("line", INPUTS)
def test_no_output_takes_the_place_of_an_input(line: str, folder: Path) -> None:
    named = line
    for word, file in READ.items():
        named = named.replace(word, f"{file}:4" if word == "CHIP" else file)
        (folder / file).write_text("kept")
    for file in (file for word, file in READ.items() if word in line):
        for flag in INPUTS[line]:
            said = say(f"{named} {flag} ./{file}")
            assert said.code == 2 and f"{flag}: '{file}' is also the file of" in said.err, said.err
            assert (folder / file).read_text() == "kept"


@pytest.mark.parametrize("line", [line for line in PAGES if line.split()[0] in ("predict", "plan", "explain")])
@pytest.mark.parametrize("place", ["no/such/p.html", "taken", ""])
def test_what_cannot_be_written_is_told_before_the_work(line: str, place: str, folder: Path) -> None:
    (folder / "taken").mkdir()
    assert run([*line.split(), "--html", place, "--json"]) == 2
    assert not history()


def test_an_existing_page_is_replaced(folder: Path) -> None:
    (folder / "p.html").write_text("old")
    assert run([*PAGES[0].split(), "--html", "p.html"]) == 0
    assert Read((folder / "p.html").read_text()).problems() == []


@pytest.mark.parametrize("place", ["p.html", "full.html"])
def test_a_measurement_whose_file_fails_still_has_its_page(
    place: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def verify(*_: object, **__: object) -> None:
        raise UnwrittenError(InputError("cannot be written: full", where="m.json"), answers.verified())

    monkeypatch.setattr(api_verify, "answer", verify)
    (folder / "full.html").symlink_to("/dev/full")
    assert run(["verify", "last", "--out", "m.json", "--html", place, "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads(json.dumps(answers.verified().to_dict()))
    assert "m.json: cannot be written: full" in err and err.count("\n") == 1
    assert ("full.html: cannot be written" in err) == (place == "full.html")
    assert place == "full.html" or Read((folder / place).read_text()).problems() == []
    assert [entry.kind for entry in history()] == ["verify"]


def test_a_question_without_a_page_makes_none() -> None:
    """And a cold answer does not pay for it."""
    code = "import sys\nfrom gnomon.cli.run import run\nrun(sys.argv[1:])\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *PAGES[0].split()], capture_output=True, text=True, check=True)
    assert not {name for name in done.stderr.split() if name.startswith(("gnomon.report.html", "html"))}
