"""Flags reach the functions, answers reach stdout, talk reaches stderr, and every failure is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.fakes import Calls, install

from gnomon.cli.run import run
from gnomon.errors import InputError
from gnomon.spec.questions.step import PredictQuestion


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    install(monkeypatch, calls)
    return calls


def test_predict_passes_every_flag(calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    words = "predict my-model --on H100:4 --phase prefill --batch 8 --tokens 8k --context 1,024 --dtype fp8"
    words += " --engine vllm@0.24 --tp 4 --pp 1 --ep 2 --cp 1 --dp 1 --set max_num_seqs=64 --set enforce-eager=true"
    words += " --with int4-weights"
    assert run(words.split()) == 0
    asked = PredictQuestion(
        model="my-model",
        on="H100:4",
        phase="prefill",
        batch=8,
        tokens=8000,
        context=1024,
        dtype="fp8",
        engine="vllm@0.24",
        tp=4,
        ep=2,
        dp=1,
        settings={"max_num_seqs": 64, "enforce_eager": True},
        techniques=("int4-weights",),
    )
    assert calls.made == [("predict", (asked,), {})]


def test_what_networks_are_given(calls: Calls) -> None:
    run(["predict", "m", "--on", "H100", "--source", "1.5k", "--images", "0", "--image", "640x480", "--steps", "50"])
    asked = calls.made[0][1][0]
    assert [getattr(asked, name) for name in ("source", "images", "image", "steps")] == [1500, 0, "640x480", 50]


def test_defaults_of_predict(calls: Calls) -> None:
    run(["predict", "m", "--on", "H100"])
    asked = calls.made[0][1][0]
    assert (asked.phase, asked.batch, asked.tokens, asked.context) == (None, None, None, 0)


COMMANDS = {
    "predict": ["predict", "m", "--on", "H100"],
    "fit": ["fit", "m", "--on", "H100"],
    "simulate.serve": ["simulate", "serve", "m", "--on", "H100", "--rate", "8", "--input", "1024", "--output", "256"],
    "plan.serve": ["plan", "serve", "m", "--fleet", "H100:8", "--rate", "8", "--input", "1k", "--output", "256"],
    "verify": ["verify", "last"],
    "simulate.train": ["simulate", "train", "m", "--on", "H100:8", "--seq", "2k", "--global-batch", "512"],
    "plan.train": ["plan", "train", "m", "--cluster", "H100:8", "--seq", "2048", "--global-batch", "512"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_json_is_the_answer_and_nothing_else(name: str, calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMMANDS[name], "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"] == f"gnomon.{name}/1"
    assert err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_text_and_history(name: str, calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COMMANDS[name]) == 0
    out, err = capsys.readouterr()
    assert "next: gnomon" in out
    assert err == ""
    assert run(["history", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [entry["kind"] for entry in runs] == [name]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_errors_are_one_line(
    name: str, flag: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = InputError("'x' is\nwrong\x1b[2J", where="--thing", hint="Write y.")
    names = {"simulate.serve": "simulate_serving", "plan.serve": "plan_serving"}
    names |= {"simulate.train": "simulate_training", "plan.train": "plan_training"}
    install(monkeypatch, Calls(), **{names.get(name, name): error})
    assert run([*COMMANDS[name], *flag]) == 2
    out, err = capsys.readouterr()
    assert err == "error: --thing: 'x' is wrong?[2J. Write y.\n"
    expected = {"error": {"message": "'x' is wrong?[2J", "where": "--thing", "hint": "Write y."}}
    assert (json.loads(out) if flag else out) == (expected if flag else "")


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (RuntimeError("boom"), 3, "internal error: RuntimeError: boom. Please report it"),
        (KeyboardInterrupt(), 130, ""),
        (MemoryError(), 2, "error: gnomon predict m: out of memory. Use smaller inputs, or fewer jobs."),
        (PermissionError(13, "Permission denied", "/x"), 2, "error: /x: Permission denied"),
    ],
)
def test_what_nobody_expected(
    raised: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, Calls(), predict=raised)
    assert run(COMMANDS["predict"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(line)
    assert err.count("\n") == (1 if line else 0)
    assert "Traceback" not in err


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Calls(), predict=RuntimeError("boom"))
    monkeypatch.setenv("GNOMON_DEBUG", "1")
    with pytest.raises(RuntimeError, match="boom"):
        run(COMMANDS["predict"])


def test_a_broken_pipe_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    install(monkeypatch, Calls(), predict=BrokenPipeError(32, "Broken pipe"))
    assert run(COMMANDS["predict"]) == 141
    assert capsys.readouterr().err == ""


def test_ops_prints_csv(calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "ops.csv", "--on", "H100"]) == 0
    assert capsys.readouterr().out == "op,m,time_us,low_us,high_us,provenance\ngemm,1,2.5,2.0,3.0,fitted\n"


def test_ops_writes_csv(calls: Calls, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "ops.csv", "--on", "H100", "--out", str(tmp_path / "out.csv")]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "wrote 1 row" in err
    assert (tmp_path / "out.csv").read_text().startswith("op,m,time_us")


@pytest.mark.parametrize("flag", ["--requests-out", "--trace-out"])
def test_unwritable_files_stop_it_before_the_work(
    flag: str, calls: Calls, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path, tmp_path / "none" / "x.csv", Path("/proc/x.csv")):
        assert run([*COMMANDS["simulate.serve"], flag, str(path)]) == 2
        assert capsys.readouterr().err.startswith(f"error: {flag}: '{path}'")
    assert calls.made == []


def test_two_files_must_differ(calls: Calls, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = str(tmp_path / "x")
    assert run([*COMMANDS["simulate.serve"], "--requests-out", same, "--trace-out", same]) == 2
    assert "also the file of --requests-out" in capsys.readouterr().err
    assert calls.made == []


USAGE: list[tuple[str, str]] = [
    ("predit x", "no such command 'predit'. Did you mean 'predict'?"),
    ("predict", "missing argument 'MODEL'"),
    ("predict m", "missing option '--on'"),
    ("predict m --on", "option '--on' requires an argument"),
    ("predict m --on H100 --bath 3", "--batch"),
    ("predict m --on H100 extra", "unexpected extra argument"),
    ("predict m --on H100 --batch 0", "--batch: '0' is not a positive whole number"),
    ("predict m --on H100 --batch -1", "--batch: '-1'"),
    ("predict m --on H100 --batch 1.5", "--batch: '1.5' is not a positive whole number"),
    ("predict m --on H100 --batch nan", "--batch: 'nan'"),
    ("predict m --on H100 --batch inf", "--batch: 'inf'"),
    ("predict m --on H100 --batch 1e99", "--batch: '1e99'"),
    ("predict m --on H100 --tp two", "--tp: 'two'"),
    ("predict m --on H100 --context -1", "--context: '-1'"),
    ("predict m --on H100 --set max_num_seqs", "--set: 'max_num_seqs' is not KEY=VALUE"),
    ("simulate", "missing command"),
    ("simulate trian m", "no such command 'trian'. Did you mean 'train'?"),
    ("simulate serve m --on H100 --rate 0", "--rate: '0' is not a rate above zero"),
    ("simulate serve m --on H100 --rate fast", "--rate: 'fast'"),
    ("simulate serve m --on H100 --seed -1", "--seed: '-1'"),
    ("plan serve m", "missing option '--fleet'"),
    ("plan serve m --fleet H100:8 --requests 0", "--requests: '0'"),
    ("chips show", "missing argument 'NAME'"),
    ("history --limit 0", "--limit: '0'"),
    ("history --limit 99999999999999999999", "--limit: '99999999999999999999' is more than 1,000,000"),
    ("predict m --on H100 --batch 1,5", "--batch: '1,5' is not a count"),
    ("predict m --on H100 --dtype fp7", "--dtype: unknown number format 'fp7'"),
    ("predict m --on H100 --engine vlm", "--engine: unknown engine 'vlm'"),
    ("plan serve m --fleet H100:8 --dtype bf16,fp7", "--dtype: unknown number format 'fp7'"),
    ("plan serve m --fleet H100:8 --dtype ,", "--dtype: ',' names no number format"),
    ("plan serve m --fleet H100:8 --objective beauty", "--objective: unknown objective 'beauty'"),
    ("verify kept.json --rate 3", "--rate: a stored measurement is only compared"),
    ("verify kept.json --probe", "--probe: a stored measurement is only compared"),
    ("verify kept.json --out x.json", "--out: a stored measurement is only compared"),
    ("ops same.csv --on H100 --out ./same.csv", "--out: 'same.csv' is also the file of the operators"),
    ("calibrate --from same.csv --profile ./same.csv", "--profile: 'same.csv' is also the file of --from"),
    ("calibrate --from a.csv --out same.csv", "--out: nothing is measured with --from"),
    ("calibrate --from a.csv --budget 3m", "--budget: nothing is measured with --from"),
    ("calibrate --from a.csv --quick", "--quick: nothing is measured with --from"),
    ("calibrate --quick --budget 3m", "--budget: does not go with --quick"),
    ("calibrate --quick --families gemm", "--families: does not go with --quick"),
    ("calibrate --quick --engine vllm", "--engine: does not go with --quick"),
    ("calibrate --on H200", "--on: names the chip of measurements made before"),
    ("simulate serve m --on H100 --trace t.csv --requests-out ./t.csv", "--requests-out: 't.csv' is also the file of"),
    ("simulate serve m --on H100 --trace t.csv --trace-out t.csv", "--trace-out: 't.csv' is also the file of --trace"),
    ("export last --to helm", "--to: unknown export target 'helm'"),
    ("papers --since MMXX", "--since: 'MMXX'"),
    ("papers --topic moe show tutel", "--topic: narrows the list only"),
    ("papers run", "SLUG: no paper is given"),
    ("papers run gptq --all", "SLUG: a paper and --all exclude each other"),
    ("papers search the", "WORDS: 'the' has no searchable word"),
    ("--frobnicate", "no such option: --frobnicate"),
]


@pytest.mark.parametrize(("words", "expected"), USAGE)
def test_wrong_words(words: str, expected: str, calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert expected in err
    assert calls.made == []


@pytest.mark.parametrize("words", [words for words, _ in USAGE if not words.endswith("--on")])
def test_wrong_words_in_json(words: str, calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words.split(), "--json"]) == 2
    error: dict[str, Any] = json.loads(capsys.readouterr().out)["error"]
    assert set(error) == {"message", "where", "hint"}
    assert error["message"]


def test_help_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"], ["predict", "--help"], ["simulate", "serve", "-h"], ["chips", "--help"]):
        assert run(words) == 0
        out, err = capsys.readouterr()
        assert out.startswith("Usage: gnomon")
        assert err == ""


def test_help_lists_every_command_whole(capsys: pytest.CaptureFixture[str]) -> None:
    from gnomon.cli.app import COMMANDS as KNOWN

    run(["--help"])
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("Commands:") + 1
    listed = lines[start : start + len(KNOWN)]
    assert [line.split()[0] for line in listed] == list(KNOWN)
    assert not [line for line in listed if line.endswith("...")]


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    import tomllib

    assert run(["--version"]) == 0
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert capsys.readouterr().out == f"gnomon {tomllib.loads(project.read_text())['project']['version']}\n"


EMPTY = [
    (name, flag)
    for name in ("predict", "fit", "simulate.serve", "plan.serve")
    for flag in ("--dtype", "--kv-dtype", "--engine", *(["--trace"] if "." in name else []))
] + [("plan.serve", "--objective")]


@pytest.mark.parametrize(("name", "flag"), EMPTY)
def test_empty_words(name: str, flag: str, calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("", " "):
        assert run([*COMMANDS[name], flag, text]) == 2
        assert capsys.readouterr().err.startswith(f"error: {flag}: is empty")
    assert calls.made == []


def test_families_go_with_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    from gnomon.api import calibrate

    calls = Calls()
    monkeypatch.setattr(calibrate, "answer", calls.fake("calibrate", InputError("enough")))
    assert run(["calibrate", "--from", "t.csv", "--on", "H100", "--families", "gemm,moe"]) == 2
    _, (asked, _), _ = calls.made[0]
    assert (str(asked.out), asked.source, asked.families) == ("calibration.csv", "t.csv", ("gemm", "moe"))
    assert run(["calibrate", "--families", "gemm"]) == 2
    assert calls.made[1][1][0].families == ("gemm",)


def test_help_says_what_is_taken_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    run(["predict", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for said in ("Stages that layers", "full experts are spread", "share the tokens", "sequences of their own"):
        assert said in text
    assert "All chips of --on where it is not given" in text
    run(["plan", "serve", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "Metrics: ttft, tpot, e2e. Statistics: mean, p50, p90, p95, p99." in text
    assert "cost (the default), throughput, latency or energy" in text


def test_help_lists_every_goal() -> None:
    from gnomon.spec.questions.serving import SLO_HELP
    from gnomon.spec.workload import METRICS, STATISTICS

    assert all(name in SLO_HELP for name in (*METRICS, *STATISTICS))


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("predict", ("--tokens", "--context")),
        ("fit", ("--context",)),
        ("simulate serve", ("--input", "--output")),
        ("plan serve", ("--input", "--output")),
        ("simulate train", ("--seq",)),
        ("plan train", ("--seq",)),
        ("try", ("--seq", "--context")),
    ],
)
def test_help_says_what_8k_tokens_are(command: str, flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """And it is so: models of 8,192 tokens are called 8k, units of a thousand are too."""
    from gnomon.units import parse_whole

    assert run([*command.split(), "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("8k is 8,000 and 8Ki is 8,192") == len(flags)
    assert (parse_whole("8k"), parse_whole("8Ki")) == (8000, 8192)
