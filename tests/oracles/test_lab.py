"""The lab's experiments on a CPU: what they check holds, and their checks see what is wrong."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")

from gnomon.calibrate.timer import Timing  # noqa: E402
from gnomon.cli.run import run as cli  # noqa: E402
from gnomon.errors import CalibrationError, InputError  # noqa: E402
from gnomon.lab import EXPERIMENTS, experiment, int4, quantise  # noqa: E402
from gnomon.lab.base import Findings, LabRun  # noqa: E402
from gnomon.lab.bench import Bench  # noqa: E402
from gnomon.lab.checkpoint import Blocked, Checkpointed, Snapshot, Snapshots, check_disk  # noqa: E402
from gnomon.lab.experiments import fused_mlp_intel  # noqa: E402
from gnomon.lab.experiments.datastates_llm import Trained, _free, _waited, losses_apart  # noqa: E402
from gnomon.lab.experiments.deep_optimizer_states import apart, narrow_apart  # noqa: E402
from gnomon.lab.green import COUNT_AT, split_streams  # noqa: E402
from gnomon.lab.offload import HostUpdate, InterleavedUpdates, Offloaded, adamw  # noqa: E402
from gnomon.lab.ranks import run_ranks  # noqa: E402
from gnomon.lab.run import run  # noqa: E402
from gnomon.lab.swaps import async_copies, planned  # noqa: E402

pytestmark = pytest.mark.oracle


def compute_only(_: str) -> None: ...


@pytest.fixture
def bench() -> Bench:
    return Bench(torch, "cpu", compute_only)


class Pretended(Bench):
    """A CPU that says it is a GPU, so that what is only done there runs too; its times mean nothing."""

    processors = 132
    held_bytes = 0

    def __init__(self) -> None:
        super().__init__(torch, "cpu", compute_only)
        self.timed = True

    def stream(self) -> Any:
        return None

    def recorded(self) -> Any:
        return Bench(torch, "cpu", compute_only).recorded()

    def wait(self, event: Any) -> None: ...
    def synchronize(self) -> None: ...
    def idle(self) -> None: ...
    def release(self) -> None: ...

    def pinned(self, count: int, dtype: Any) -> Any:
        return torch.empty(count, dtype=dtype)

    @contextmanager
    def peak(self) -> Iterator[Callable[[], int]]:
        yield lambda: 1000

    def kernel(self, call: Callable[[int], Any], copies: int) -> Timing | None:
        for i in range(copies):
            call(i)
        return Timing(1e-3, 0.01, 1.9e9)

    def queued(self, call: Callable[[], Any], gpu_bytes: int = 0) -> LabRun:
        call()
        return self.measured([1e-3, 2e-3], gpu_bytes)


def small(slug: str) -> dict[str, int]:
    return experiment(slug).read_sizes({}, "cpu")


@pytest.mark.parametrize("slug", EXPERIMENTS)
def test_checks_hold_and_nothing_is_timed(slug: str) -> None:
    outcome = run(slug, {}, "cpu", compute_only)
    assert outcome.ok, [check for check in outcome.findings.checks if not check.ok]
    assert outcome.findings.compared
    assert all(row.gain is None for row in outcome.findings.compared if row.unit == "seconds")
    assert any("nothing is timed" in note for note in outcome.notes)


@pytest.mark.parametrize("slug", EXPERIMENTS)
def test_rows_are_known_before_they_run(slug: str) -> None:
    """What is predicted is what runs: the same rows, with the same shapes."""
    found, sizes = experiment(slug), small(slug)
    ran = {row.what: row for row in found.work(Bench(torch, "cpu", compute_only), sizes).compared}
    for told in found.rows(sizes):
        assert told.shape.items() <= ran[told.what].shape.items()
        assert told.unit == ran[told.what].unit
    assert not found.rows(sizes) or {row.what for row in found.rows(sizes)} == set(ran)


def test_listing_and_predicting_load_no_torch() -> None:
    words = "import sys; from gnomon.cli.run import run; run(['lab', 'list', '--json']); run(['lab', 'predict'])"
    check = "; assert not {'torch', 'triton'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", words + check], check=True, stdout=subprocess.DEVNULL, timeout=120)


@pytest.mark.parametrize("slug", EXPERIMENTS)
def test_a_device_with_times_gives_gains_and_rates(slug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int4, "fused", lambda torch, tile, x, packed: int4.plainly(torch, x, packed))
    monkeypatch.setattr("gnomon.lab.experiments.gptq.EXACT", 2.0**-5)
    monkeypatch.setattr("gnomon.lab.experiments.datastates_llm.CHUNK_BYTES", 1000)
    monkeypatch.setattr("gnomon.lab.decoder.VOCABULARY", 64)
    monkeypatch.setattr("gnomon.lab.experiments.gptq.copies_for", lambda _: 2)
    found: Findings = experiment(slug).work(Pretended(), small(slug))
    assert all(check.ok for check in found.checks), found.checks
    assert all(row.gain and row.gain > 0 for row in found.compared)
    json.dumps(dict(found.facts), allow_nan=False)
    assert set(experiment(slug).rates) <= set(found.facts)
    wanted = {
        "deep-optimizer-states": {"stride"},
        "gptq": {"rounding_s", "layer_parameters"},
        "datastates-llm": {"disk_write_bytes_s", "gpu_to_host_bytes_s", "checkpoint_bytes", "modes"}
        | {"iteration_s", "update_s", "losses", "plain_losses_apart"},
    }
    assert wanted.get(slug, set()) <= set(found.facts)


def test_a_kernel_that_cannot_be_built_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr("gnomon.lab.experiments.gptq.copies_for", lambda _: 1)
    monkeypatch.setattr(int4, "fused", broken)
    with pytest.raises(CalibrationError, match="no such instruction"):
        experiment("gptq").work(Pretended(), small("gptq"))


def test_a_kernel_that_is_wrong_fails_a_check_and_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def sometimes(torch: Any, tile: int4.Tile, x: Any, packed: int4.Packed) -> Any:
        found = int4.plainly(torch, x, packed)
        return found if tile.kernel == "gemm" else 1.1 * found

    monkeypatch.setattr("gnomon.lab.experiments.gptq.copies_for", lambda _: 1)
    monkeypatch.setattr("gnomon.lab.experiments.gptq.EXACT", 2.0**-5)
    monkeypatch.setattr(int4, "fused", sometimes)
    found = experiment("gptq").work(Pretended(), small("gptq") | {"m": 16})
    bad = [check.what for check in found.checks if not check.ok]
    assert bad and all("turned" in what for what in bad)
    assert any("turned" in note and "is wrong" in note for note in found.notes)
    assert all(way.startswith("gemm") for way in found.compared[0].shape["ways_s"])


def test_pieces_merged_with_other_weights_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both attention to a remote cache and attention in pieces fail their checks; one call over all holds."""

    def averaged(torch: Any, outputs: Any, sums: Any) -> tuple[Any, Any]:
        return outputs.float().mean(0).to(outputs.dtype), torch.logsumexp(sums, 0)

    monkeypatch.setattr("gnomon.lab.experiments.infinite_llm.merged", averaged)
    found = experiment("infinite-llm").work(Bench(torch, "cpu", compute_only), small("infinite-llm"))
    assert [check.ok for check in found.checks] == [False, False, False, False, True, False]
    assert not found.compared


def test_a_way_that_cannot_run_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr("gnomon.lab.experiments.infinite_llm._Step.placed", broken)
    found = experiment("infinite-llm").work(Pretended(), small("infinite-llm"))
    assert [row.shape["technique"] for row in found.compared] == ["pieces merged"]
    assert any("no such kernel" in note for note in found.notes)


def test_the_compiled_perceptron_is_one_graph(bench: Bench) -> None:
    task = fused_mlp_intel._drawn(bench, {"layers": 4, "width": 16}, 50)
    compiled = fused_mlp_intel._compiled(torch, "eager")
    assert torch.equal(compiled(task.x, task.weights), task.chain())


def test_a_skipped_subgroup_is_seen_and_what_was_found_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = HostUpdate.pieces
    monkeypatch.setattr(HostUpdate, "pieces", lambda self, chosen, step: whole(self, chosen[:-1], step))
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    out = tmp_path / "out.json"
    assert cli(["lab", "run", "deep-optimizer-states", "--device", "cpu", "--out", str(out)]) == 1
    assert "checks failed" in capsys.readouterr().err
    assert not json.loads(out.read_text())["ok"]


def test_a_disk_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="TMPDIR"):
        check_disk(tmp_path, 1 << 60)


@pytest.mark.parametrize("stride", [1, 2, 3, 11, 50])
def test_every_subgroup_is_updated_once(bench: Bench, stride: int) -> None:
    data = Offloaded(bench, 1050, 100)
    host = HostUpdate(data)
    way = InterleavedUpdates(data, host, stride)
    data.reset()
    first = [[state.clone() for state in states] for states in data.states]
    way.step(0)
    for piece, mine, states in zip(data.pieces, data.states, first, strict=True):
        adamw(bench, states, data.gradient(piece, 0).float(), 0)
        assert all(apart(a, b) < 1e-6 for a, b in zip(mine, states, strict=True))
    assert len(way.chosen) == 11 // stride


def test_adamw_is_that_of_the_optimizer(bench: Bench) -> None:
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 64))
    optimizer = torch.optim.AdamW([weight], lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    states = [weight.detach().clone(), torch.zeros(64), torch.zeros(64)]
    for step in range(4):
        weight.grad = torch.sin(torch.arange(64.0) + step)
        adamw(bench, states, weight.grad.clone(), step)
        optimizer.step()
    assert torch.allclose(states[0], weight.detach(), rtol=1e-6, atol=1e-8)


def test_narrow_weights_may_differ_by_a_step_and_around_zero() -> None:
    wide = torch.tensor([1.0, -1.0, 0.5, 0.0])

    def narrow(*values: float) -> Any:
        return torch.tensor([*values, *[0.0] * (4 - len(values))], dtype=torch.bfloat16)

    # Either side of zero and of a power of two: one step at most, however many numbers the format has between.
    assert narrow_apart(narrow(1e-6, 1.0), narrow(-1e-6, 1.0 - 2**-8), wide) < 1
    assert narrow_apart(narrow(1.0 + 2**-7), narrow(1.0), wide) == pytest.approx(1.0, rel=1e-3)
    assert narrow_apart(narrow(1.0 + 2**-6), narrow(1.0), wide) > 1.9
    assert narrow_apart(narrow(1e-4), narrow(-1e-4), wide) > 1
    assert narrow_apart(narrow(float("nan")), narrow(1.0), wide) == float("inf")


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("group", [32, 128])
def test_gptq_is_that_of_the_definition(symmetric: bool, group: int) -> None:
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(6, 256, dtype=torch.float64, generator=generator)
    inputs = torch.randn(300, 256, dtype=torch.float64, generator=generator)
    inputs = inputs + 2 * inputs.roll(1, 1)
    bent = quantise.hessian(torch, inputs)
    mine = quantise.gptq(torch, weights, bent, group, symmetric=symmetric, by_activity=False)
    theirs = quantise.by_definition(torch, weights, bent, group, symmetric=symmetric)
    assert torch.equal(mine.codes, theirs.codes)
    near = quantise.nearest(torch, weights, group, symmetric=symmetric)
    assert quantise.output_error(weights, mine.weights(), inputs) < quantise.output_error(
        weights, near.weights(), inputs
    )


def test_without_correlation_gptq_rounds_to_nearest() -> None:
    weights = torch.randn(4, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    flat = torch.eye(128, dtype=torch.float64)
    mine = quantise.gptq(torch, weights, flat, 128, symmetric=False, by_activity=False)
    assert torch.equal(mine.codes, quantise.nearest(torch, weights, 128, symmetric=False).codes)


def test_columns_by_activity_come_back_to_their_place() -> None:
    weights = torch.randn(4, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    bent = torch.diag(torch.linspace(1, 9, 256, dtype=torch.float64))
    mine = quantise.gptq(torch, weights, bent, 128, symmetric=False, by_activity=True)
    assert mine.order.tolist() == list(range(255, -1, -1))
    assert (mine.weights() - weights).abs().max() <= 0.51 * mine.scales.max()
    packed = int4.pack(torch, mine)
    assert torch.equal(int4.unpack(torch, packed), mine.codes)
    x = torch.randn(3, 256, dtype=torch.float32)
    found = int4.plainly(torch, int4.arranged(x, packed), packed)
    assert torch.allclose(found, x @ mine.weights().float().T, rtol=1e-4, atol=1e-4)


def test_a_group_of_zeros_is_kept() -> None:
    zeros = torch.zeros(2, 128)
    for symmetric in (True, False):
        assert torch.equal(quantise.nearest(torch, zeros, 128, symmetric=symmetric).weights(), zeros)


def test_a_file_that_differs_is_seen(bench: Bench, tmp_path: Path) -> None:
    tensors = [torch.arange(7.0), torch.tensor(3.0), torch.arange(2000, dtype=torch.int16)]
    snapshot = Snapshot(bench, 7 * 4 + 4 + 4000, 1000, tmp_path / "file")
    snapshot.copy_from(torch, snapshot.prepare(torch, tensors))
    with ThreadPoolExecutor(2) as pool:
        snapshot.write(pool)
    good = snapshot.path.read_bytes()
    assert len(good) == 4032
    assert snapshot.differing(torch, tensors) == 0
    for bad, count in ((good[:-5], 5), (good + b"x", 1), (good[:9] + b"\xff" + good[10:], 1), (b"", 4032)):
        snapshot.path.write_bytes(bad)
        assert snapshot.differing(torch, tensors) == count


def test_small_tensors_are_copied_as_one(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.lab.checkpoint.SMALL_BYTES", 1000)
    tensors = [torch.arange(7.0), torch.arange(900.0), torch.tensor(3.0), torch.arange(2000, dtype=torch.int16)]
    snapshot = Snapshot(bench, 7 * 4 + 3600 + 4 + 4000, 3000, tmp_path / "file")
    plan = snapshot.prepare(torch, tensors)
    assert snapshot.prepare(torch, tensors) is plan
    assert len(plan.sources) == 5 and plan.gathered.numel() == 32
    tensors[0] += 1
    snapshot.copy_from(torch, plan)
    with ThreadPoolExecutor(2) as pool:
        snapshot.write(pool)
    assert snapshot.differing(torch, tensors) == 0
    tensors[2] = tensors[2].clone()
    assert snapshot.prepare(torch, tensors) is not plan


def test_a_checkpoint_that_waited_for_the_disk_is_told_apart(bench: Bench) -> None:
    blocked = [Blocked(copy_s=0.02), Blocked(buffer_s=4.0, copy_s=0.02), Blocked(copy_s=0.02)]
    run = Trained(
        losses=[1.0], iteration_s=[1.0, 5.0, 1.1], update_s=[0.1] * 3, blocked=blocked, drain_s=0.0, write_s=[4.0],
        differing=0, gpu_bytes=0,
    )  # fmt: skip
    assert _free(run, run.iteration_s) == [1.0, 1.1]
    assert _waited(run) == [4.0]
    every = dataclasses.replace(run, blocked=[Blocked(buffer_s=4.0)] * 3)
    assert _free(every, every.iteration_s) == run.iteration_s


def test_losses_that_part_or_are_no_numbers_are_seen() -> None:
    assert losses_apart([1.0, 2.002], [1.0, 2.0]) == pytest.approx(1e-3)
    assert losses_apart([1.0, float("nan")], [1.0, 2.0]) == float("inf")
    assert losses_apart([1.0, 2.0], [float("nan"), 2.0]) == float("inf")


def test_a_checkpoint_is_of_the_state_when_it_was_asked_for(bench: Bench, tmp_path: Path) -> None:
    state = [torch.arange(500.0)]
    snapshots = Snapshots(bench, 2000, 1, tmp_path, 300)
    for mode in ("synchronous", "asynchronous", "lazy"):
        snapshots.reset()
        kept = Checkpointed(bench=bench, mode=mode, snapshots=snapshots, stream=None)
        before = [tensor.clone() for tensor in state]
        snapshot = kept.request(state)
        kept.before_update()
        state[0] += 1
        snapshots.drain()
        assert snapshot.differing(torch, before) == 0
        assert snapshot.differing(torch, state) > 0
        assert kept.blocked.total_s > 0
    snapshots.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("slug", "given", "words"),
    [
        ("gptq", {"k": "100"}, "multiple of 128"),
        ("gptq", {"n": "0"}, "must be given together"),
        ("datastates-llm", {"heads": "3"}, "multiple of 3 heads"),
    ],
)
def test_sizes_that_do_not_go_together(slug: str, given: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        run(slug, given, "cpu", compute_only)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    out = tmp_path / "out.json"
    words = ["lab", "run", "deep-optimizer-states", "--device", "cpu", "--size", "parameters=500", "--out", str(out)]
    assert cli([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == json.loads(out.read_text())
    assert answer["schema"] == "gnomon.lab/1"
    assert answer["sizes"]["parameters"] == 500
    if not torch.cuda.is_available():
        assert cli(["lab", "run", "gptq"]) == 2
        assert "no CUDA device" in capsys.readouterr().err


def test_a_batch_goes_on_after_one_that_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["lab", "run", "--device", "cpu", "--out-dir", str(tmp_path), "--json"]
    assert cli([*words, "gptq", "--seconds", "1"]) == 1
    (killed,) = json.loads(capsys.readouterr().out)["runs"]
    assert killed["state"] == "killed" and not (tmp_path / "gptq.json").exists()
    assert cli([*words, "gptq", "deep-optimizer-states"]) == 0
    assert [run["state"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["ok", "ok"]
    assert json.loads((tmp_path / "gptq.json").read_text())["ok"]
    before = (tmp_path / "gptq.json").read_bytes()
    assert cli([*words, "gptq"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["state"] == "there already"
    assert (tmp_path / "gptq.json").read_bytes() == before


def _summed(rank: int, world: int, factor: float) -> float:
    import torch.distributed as dist

    value = torch.tensor([factor * (rank + 1)])
    dist.all_reduce(value)
    return float(value) + rank


def test_ranks_are_processes_of_one_group() -> None:
    assert run_ranks(2, _summed, 10.0) == [30.0, 31.0]


class Driver:
    """What the lab calls of the GPU's driver, on a CPU; a call with `code` fails."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.asked = code, list[tuple[Any, ...]]()

        def copied(to: int, source: int, nbytes: int, stream: int) -> int:
            ctypes.memmove(to, source, nbytes)
            return code

        self.cuMemcpyAsync = copied

    def __getattr__(self, name: str) -> Any:
        """A call of green contexts: what is asked for is kept, resources have 132 SMs and are split."""

        def call(*given: Any) -> int:
            self.asked.append((name, *given))
            if name == "cuDeviceGetDevResource":
                given[1][COUNT_AT : COUNT_AT + 4] = (132).to_bytes(4, "little")
            elif name == "cuDevSmResourceSplitByCount":
                mine, _, whole, others, _, wanted = given
                total = int.from_bytes(whole.raw[COUNT_AT : COUNT_AT + 4], "little")
                rounded = 8 * -(-wanted.value // 8)
                mine[COUNT_AT : COUNT_AT + 4] = rounded.to_bytes(4, "little")
                others[COUNT_AT : COUNT_AT + 4] = (total - rounded).to_bytes(4, "little")
            elif name == "cuGreenCtxStreamCreate":
                given[0]._obj.value = len(self.asked)
            return self.code

        call.__name__ = name
        return call


@pytest.fixture
def driven() -> Any:
    """A GPU of which only streams are there."""
    cuda = SimpleNamespace(
        current_stream=lambda: SimpleNamespace(cuda_stream=7), current_device=lambda: 0, ExternalStream=lambda at: at
    )
    return SimpleNamespace(device="cuda", torch=SimpleNamespace(cuda=cuda))


def test_the_driver_is_given_addresses_and_bytes(driven: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source, to = torch.arange(24.0).view(4, 6), torch.zeros(4, 6)
    copies = [planned(driven, to[1:3], source[1:3]), planned(driven, to[3, 2:], source[0, :4])]
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Driver())
    async_copies(driven)(copies)
    wanted = torch.zeros(4, 6)
    wanted[1:3], wanted[3, 2:] = source[1:3], source[0, :4]
    assert torch.equal(to, wanted)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Driver(code=700))
    with pytest.raises(CalibrationError, match="fails with 700"):
        async_copies(driven)(copies)


def test_streams_split_the_processors(driven: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    one, other, counts = split_streams(driven, 30)
    assert counts == (32, 100) and 0 < one < other
    resources = [given[1] for name, *given in driver.asked if name == "cuDevResourceGenerateDesc"]
    assert len(resources) == 2 and resources[0] is not resources[1]
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Driver(code=801))
    with pytest.raises(CalibrationError, match="cuDeviceGetDevResource of the driver fails with 801"):
        split_streams(driven, 30)
