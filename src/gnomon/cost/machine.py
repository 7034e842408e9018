"""A chip with the best evidence there is for it: operators in, seconds and their bound out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnomon.cost import clock, collective, experts, governor, host_rows, nccl, passes
from gnomon.cost.draws import normals
from gnomon.cost.gemm import narrowing_seconds
from gnomon.cost.governor import Governor, OpPower, governor_of, op_power
from gnomon.cost.host_link import expert_family, read_bytes_s, read_family
from gnomon.cost.kernels import MODELS, kernel_model
from gnomon.cost.link_fits import link_fit
from gnomon.cost.profile import Family, Profile
from gnomon.cost.work import ARITHMETIC, work
from gnomon.errors import InputError
from gnomon.graph.dtypes import GEMM_FORMATS, WIDTH, gemm_format, without_kernel
from gnomon.graph.host_ops import HOST_EXPERTS, HOST_READ, HostExperts, HostRead, shared_out
from gnomon.graph.ops import Attention, Collective, Elementwise, LatentDecode, Op, Shape, size_of
from gnomon.graph.phases import part_of
from gnomon.graph.routing import TokenRouting
from gnomon.spec import Batch, Chip, Host, Pool, Provenance
from gnomon.spec.chip import HALVES
from gnomon.spec.estimate import DRAWS
from gnomon.spec.workload import Floats

COLLECTIVES = frozenset(collective.PASSES)
EXCHANGES = frozenset((experts.DISPATCH, experts.COMBINE))
NETWORK_SPREAD, SHEET_SPREAD = 0.2, 0.4
"""Of collectives that leave a node over links whose inside is measured, and of links known by their data sheet alone
(B200 and MI300X, priced so, are off by as much as the second)."""
GEMM_KINDS = ("gemm", "moe")
"""Operators whose two operands may be in different formats."""
MULTIPLY = frozenset(("gemm", "gemm_unaligned", "conv", "conv_few", "conv_depthwise", "moe"))
"""Kinds that run in the format of their operands, which come from memory: no step leaves them in a cache."""
WIDEST = 2**24
"""More ranks than any group has."""
LATENCY_SHARE = 0.4
"""An operator that spends less than this share of its time on arithmetic or memory is bound by neither."""
ROUNDING = 1 + 1e-9
SMALL_S = 50e-6
"""A kernel that takes longer is not slow for its latency, but because it runs far from both rates."""


@dataclass(frozen=True)
class Machine:
    """Chips of one kind and the profile that prices their operators."""

    pool: Pool
    profile: Profile
    framework: str = ""
    """Whose kernels run, where the profile knows several; all but a serving engine leave collectives to NCCL."""
    serves: bool = False
    """Whether that is a serving engine, which has all-reduces of its own for small messages."""

    @property
    def chip(self) -> Chip:
        return self.pool.chip

    @property
    def host(self) -> Host:
        """What ranks share that read from its memory; engines refuse to offload where it is not known."""
        assert self.pool.machine is not None
        return self.pool.machine

    @property
    def _nccl_alone(self) -> bool:
        return bool(self.framework) and not self.serves

    def evidence(self, kind: str, dtype: str) -> Family:
        if kind in COLLECTIVES:
            return self._collective(kind)
        if kind in EXCHANGES:
            return self._exchange(kind)
        if kind == HOST_READ:
            return read_family(self.host)
        if kind == HOST_EXPERTS:
            return expert_family(self.host)
        if kind in host_rows.KINDS:
            return host_rows.family(self._known_host)
        if kind in passes.KINDS:
            return self._passes(kind)
        return self.profile.family(kind, dtype, self.framework)

    @property
    def _known_host(self) -> Host:
        if self.pool.machine is None:
            hint = "Give a cluster's file with a host."
            raise InputError(f"no host of {self.chip.name} is known", where="--on", hint=hint)
        return self.pool.machine

    def _passes(self, kind: str) -> Family:
        """What streams of this chip are known from, and a formula's spread beside it."""
        if kind == passes.INSTRUCTION:
            source = f"the data sheet of {self.chip.name} and a latency as given"
            return Family(
                coefficients={}, spread=passes.SPREAD, shared=0.0, provenance=Provenance.FORMULA, source=source
            )
        streams = self.profile.family("elementwise", "bf16", self.framework)
        return replace(streams, spread=float(np.hypot(streams.spread, passes.SPREAD)), provenance=Provenance.FORMULA)

    def _streamed(self, read: Floats, written: Floats) -> Floats:
        return self.seconds("elementwise", "bf16", {"bytes_read": read, "bytes_written": written})

    def _collective(self, kind: str) -> Family:
        link = self.pool.inside(self.pool.per_node).name
        names = [("nccl", link if link in nccl.LIKE else nccl.fit_of(link))]
        if not self._nccl_alone:
            names.append((self.framework if link_fit(self.framework, link) else "vllm", link))
        fits = [link_fit(*name) for name in names]
        known = [found for found in fits if found]
        if known and self.pool.count <= self.pool.per_node:
            apart = nccl.MACHINES_SPREAD if link.startswith(nccl.PCIE) else 0.0
            return Family(
                coefficients={},
                spread=max(apart, *(found.spread_of(kind) for found in known)),
                shared=max(found.shared for found in known),
                provenance=Provenance.FITTED,
                source=f"{link}; {known[0].source}",
            )
        spread = NETWORK_SPREAD if known else nccl.LIKE_SPREAD if link in nccl.LIKE else SHEET_SPREAD
        return Family(
            coefficients={},
            spread=spread,
            shared=spread / 2,
            provenance=Provenance.FORMULA,
            source=f"{self.pool.scaleup.name}, and {self.pool.scaleout.name} beyond a node",
        )

    def _exchange(self, kind: str) -> Family:
        """Tokens sent to experts inside a node, by what was fitted on such a link, or else from where fits start."""
        link = self.pool.scaleup.name
        found = link_fit(kind, link)
        return Family(
            coefficients=found.coefficients if found else {key: ends[0] for key, ends in experts.COEFFICIENTS.items()},
            spread=found.spread if found else SHEET_SPREAD,
            shared=found.shared if found else SHEET_SPREAD / 2,
            provenance=Provenance.FITTED if found else Provenance.FORMULA,
            source=f"{link}; {found.source}" if found else link,
        )

    def source(self, op: Op) -> str:
        """What an operator's time is known from; of a collective, the links it crosses."""
        if not isinstance(op, Collective):
            return (self._narrowing(op) or self.evidence(op.kind, priced_dtype(op))).source
        pool, span = self.pool, op.ranks * op.stride
        inside, beyond = op.stride < pool.per_node, span > pool.per_node
        links = [pool.inside(span).name] * inside + [pool.scaleout.name] * beyond
        return ", and ".join(links) + (" beyond a node" if inside and beyond else "")

    def seconds(self, kind: str, dtype: str, shape: Shape) -> Floats:
        """Device seconds of one run of an operator, for arrays of sizes."""
        if kind in COLLECTIVES:
            return self._exchanged(kind, shape)
        if kind in EXCHANGES:
            sizes = shape | {"width": np.full(shape["tokens"].shape, experts.width_of(kind, dtype))}
            return experts.seconds(sizes, self.chip, self.pool.scaleup, self._exchange(kind).coefficients)
        if kind == passes.SORT:
            return passes.sort_seconds(shape, self._streamed)
        if kind == passes.INSTRUCTION:
            return passes.instruction_seconds(shape, dtype, self.chip)
        if kind in host_rows.KINDS:
            return host_rows.seconds(kind, shape, self._known_host)
        family = self.profile.family(kind, dtype, self.framework)
        found = self._priced(family, kind, dtype, shape)
        wide = family.no_slower_than
        if not wide or self.chip.matrix_rate(gemm_format(dtype).compute_dtype) < self.chip.matrix_rate(wide):
            return found
        return np.minimum(found, self.seconds(kind, wide, shape))

    def _priced(self, family: Family, kind: str, dtype: str, shape: Shape) -> Floats:
        found = kernel_model(kind).seconds(shape, dtype, self.chip, family.coefficients)
        if family.residual is not None:
            found = found * family.residual.factor(shape)
        elif kind not in GEMM_KINDS:
            return found
        return np.where(found > 0, np.maximum(found, self.least(kind, dtype, shape)), 0.0)

    def least(self, kind: str, dtype: str, shape: Shape) -> Floats:
        """What the data sheet's best figures would take: nothing fitted goes below that."""
        flops, moved = work(kind, dtype, shape)
        sides = gemm_format(dtype) if kind in GEMM_KINDS else None
        rate = self.chip.gemm_rate(sides.compute_dtype, sparse=sides.sparse) if sides else self.chip.half_rate(dtype)
        return np.maximum(flops / rate, moved / self.chip.memory_bandwidth_bytes_s)

    def floor(self, kind: str, dtype: str, shape: Shape, seconds: Floats) -> Floats:
        """What no draw of an operator's time goes below: `seconds`, or what the data sheet's peaks allow. Of what only
        streams, as much as the cache holds may come from there; networks have no such figure."""
        if kind in COLLECTIVES or kind in EXCHANGES or kind in passes.KINDS or kind in host_rows.KINDS:
            return np.zeros_like(seconds)
        rates, compute_dtype = self.chip.rates_flops, gemm_format(dtype).compute_dtype if kind in MULTIPLY else ""
        rate = rates.get(compute_dtype, max(rates.values())) if kind in MULTIPLY else self.chip.half_rate(dtype)
        if kind in GEMM_KINDS and gemm_format(dtype).sparse:
            rate = self.chip.gemm_rate(compute_dtype, sparse=True)
        flops, moved = work(kind, dtype, shape)
        if kind not in MULTIPLY and not kind.startswith(("attention", "mla")):
            moved = np.maximum(moved - self.chip.l2_bytes, 0.0)
        least = np.maximum(flops / rate, moved / self.chip.memory_bandwidth_bytes_s)
        return np.asarray(np.minimum(least, seconds))

    def op_draws(self, op: Op, batch: Batch, seconds: Floats) -> NDArray[np.float64]:
        """Draws of an operator's `op_seconds` in all, none faster than the data sheet's peaks allow."""
        floor, prompts = self.op_floor(op, batch, seconds), _in_prompts(op, batch, seconds.shape)
        draws = np.zeros(DRAWS)
        for kind, steps in ((True, prompts), (False, ~prompts)):
            factors = self.factors(op.name, op.kind, priced_dtype(op), prompts=kind)
            draws += np.maximum(float(seconds[steps].sum()) * factors, float(np.sum(floor[steps])))
        return draws

    def op_floor(self, op: Op, batch: Batch, seconds: Floats) -> Floats:
        """What no draw of an operator's `op_seconds` goes below."""
        if isinstance(op, HostRead):
            link = op.count * op.host_bytes(batch) / self.host.link.bandwidth_bytes_s
            return np.asarray(np.minimum(np.maximum(self.op_floor(op.alone, batch, seconds), link), seconds))
        if isinstance(op, HostExperts):
            return self.op_floor(op.on_chip, batch, seconds) if op.cached else np.zeros_like(seconds)
        return op.count * self.floor(op.kind, priced_dtype(op), op.shape(batch), seconds / max(op.count, 1))

    def _exchanged(self, kind: str, shape: Shape) -> Floats:
        """Collectives of one group after another; all ranks of a call stand equally far apart."""
        payload, stride = shape["bytes"], int(np.max(shape.get("stride", np.ones(1)), initial=1))
        library = "nccl" if self._nccl_alone else self.framework
        sizes = shape["ranks"] * WIDEST + shape.get("nodes", np.zeros(1))
        same = np.broadcast_to(sizes, payload.shape)
        routed = _routing(shape) if payload.size else None

        def of(rows: NDArray[np.int64] | slice) -> Floats:
            ranks, nodes = divmod(int(same[rows][0]), WIDEST)
            return collective.seconds(kind, payload[rows], ranks, self.pool, stride, library, nodes, routed)

        if not payload.size or (same == same[0]).all():
            return of(slice(None)) if payload.size else np.zeros_like(payload)
        found, order = np.empty(payload.shape), np.argsort(same, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(same[order])) + 1):
            found[rows] = of(rows)
        return found

    def clock_slowdown(self, kind: str, dtype: str, shape: Shape, seconds: Floats) -> Floats:
        """How much slower an operator is sustained than in a burst, under the power limit."""
        if kind not in ARITHMETIC:
            return np.ones_like(seconds)
        power, none = self.profile.power, np.zeros_like(seconds)
        flops, moved = work(kind, dtype, shape)
        if kind.startswith("attention"):
            flops_j = clock.attention_joules(power, self.chip, flops, seconds)
        else:
            each = clock.narrow(power, self.chip, gemm_format(dtype).compute_dtype)
            flops_j = power.get(clock.BURST, power["j_per_flop"]) * each * flops
        joules = flops_j + power["j_per_byte"] * moved
        return clock.slowdown(power, self.chip, compute_s=seconds, compute_j=joules, other_s=none, other_j=none)

    @property
    def governor(self) -> Governor:
        """What holds the chip to its power limit."""
        return governor_of(self.profile.power, self.chip)

    @property
    def clock_factors(self) -> NDArray[np.float64]:
        """What each draw multiplies the seconds by that a lower clock adds."""
        spread = governor.TRANSFERRED_SPREAD if self.profile.transferred else governor.SPREAD
        return np.asarray(np.exp(spread * normals(f"{self.profile.chip}/clock")))

    @property
    def joule_factors(self) -> NDArray[np.float64]:
        """What each draw multiplies joules beyond the constant draw by."""
        spread = governor.TRANSFERRED_JOULES_SPREAD if self.profile.transferred else governor.JOULES_SPREAD
        return np.asarray(np.exp(spread * normals(f"{self.profile.chip}/joules")))

    def op_power(self, op: Op, batch: Batch, seconds: Floats) -> OpPower:
        """Of an operator's `op_seconds` in each of these steps, the share that follows the clock, and the joules of all
        its runs at full clock beyond the constant draw. Links keep their own clock."""
        if isinstance(op, HostRead):
            own_s = self.op_seconds(op.alone, batch)
            own = self.op_power(op.alone, batch, own_s)
            return OpPower(np.where(seconds > own_s, 0.0, own.clocked), own.joules)
        if isinstance(op, HostExperts):
            own_s = self.op_seconds(op.on_chip, batch) if op.cached else np.zeros_like(seconds)
            own = self.op_power(op.on_chip, batch, own_s)
            return OpPower(np.where(seconds > own_s * ROUNDING, 0.0, own.clocked), own.joules)
        found = op_power(self.profile.power, self.chip, op, batch, seconds / max(op.count, 1))
        linked = op.kind in COLLECTIVES or op.kind in EXCHANGES
        return OpPower(np.zeros_like(seconds) if linked else found.clocked, op.count * found.joules)

    def joules(self, seconds: Floats | float, flops: float, moved: float) -> Floats:
        """Energy of one chip that is busy so long with so much work; it never draws more than its limit."""
        power = self.profile.power
        free = power["active_w"] * seconds + power["j_per_flop"] * flops + power["j_per_byte"] * moved
        return np.minimum(free, self.chip.tdp_w * seconds)

    @property
    def clock_note(self) -> str:
        """What is known of the clock under the power limit."""
        known = clock.LIMIT in self.profile.power
        return "at the clock the power limit allows" if known else "whose clock under the power limit is not measured"

    def op_seconds(self, op: Op, batch: Batch) -> Floats:
        """Seconds of all runs of an operator in a step."""
        if isinstance(op, HostRead):
            link = op.count * op.reads(batch) * op.host_bytes(batch) / read_bytes_s(self.host, op.readers)
            return np.asarray(np.maximum(self.op_seconds(op.alone, batch), link))
        if isinstance(op, HostExperts):
            return self._host_experts(op, batch)
        layers = self._narrowing(op)
        if layers is None or not isinstance(op, Elementwise):
            return op.count * self.seconds(op.kind, priced_dtype(op), op.shape(batch))
        rows, sides = size_of(op.rows, batch), gemm_format(op.narrows)
        k, c = op.written_per_row / sides.inputs, layers.coefficients
        return op.count * np.where(rows > 0, narrowing_seconds(rows, k, sides, self.chip, c), 0.0)

    def _host_experts(self, op: HostExperts, batch: Batch) -> Floats:
        """Cached experts on the chip, beside what happens to the others."""
        none = np.zeros(batch.size)
        chip_s = self.op_seconds(op.on_chip, batch) / op.count if op.cached else none
        more_s = self.op_seconds(op.beyond, batch) / op.count if op.cached < op.op.experts else none
        return np.asarray(op.count * shared_out(chip_s, more_s, *op.host_s(batch), op))

    def _narrowing(self, op: Op) -> Family | None:
        """The GEMMs that an operator narrows inputs for, where they were timed together with that: a step that runs
        both takes what was measured. Elsewhere it is a stream like others."""
        if not isinstance(op, Elementwise) or not op.narrows:
            return None
        found = self.profile.family("gemm", op.narrows, self.framework)
        return found if "quantised" in found.coefficients else None

    def factors(self, op_name: str, kind: str, dtype: str, *, prompts: bool = False) -> NDArray[np.float64]:
        """What each draw multiplies an operator's time by: a part its family shares, a part of its own, and one of all
        operators where the chip was measured on another system, which is wider in steps with `prompts`.

        Drawn from the held-out errors, by name, so that the same operator gets the same draws anywhere.
        """
        family = self.evidence(kind, dtype)
        own = np.sqrt(max(family.spread**2 - family.shared**2, 0.0))
        shared = normals(f"{self.profile.chip}/{kind}/{dtype}")
        alone = normals(f"{self.profile.chip}/{kind}/{dtype}/{op_name}")
        together = self.profile.system_spread * normals(f"{self.profile.chip}/elsewhere")
        if prompts:
            together = together + self.profile.prompt_spread * normals(f"{self.profile.chip}/prompts")
        return np.asarray(np.exp(family.shared * shared + own * alone + together))

    def arithmetic(self, kind: str, dtype: str) -> str:
        """The number format whose rate an operator's kernel has: attention widens what it reads to 16 bits, scans on
        vector units compute in fp32, weight-only GEMMs in the format of their activations."""
        if kind.startswith("scan_decode") or kind.endswith("_mamba"):
            compute_dtype = "fp32"
        elif kind.startswith(("scan", "mla", "attention")) and WIDTH.get(dtype, 0.0) <= WIDTH["bf16"]:
            compute_dtype = dtype if dtype in HALVES else self.chip.half
        else:
            numbers = without_kernel(dtype)
            compute_dtype = GEMM_FORMATS[numbers].compute_dtype if numbers in GEMM_FORMATS else numbers
        return compute_dtype if compute_dtype in self.chip.rates_flops else self.chip.half

    def bound(
        self, flops: Floats, moved: Floats, seconds: Floats, kind: str, dtype: str, runs: int = 1
    ) -> NDArray[np.str_]:
        """What limits an operator that took `seconds` in so many runs: compute, memory or network; where it is near no
        limit, the latency of a small kernel or the efficiency of a large one."""
        if kind in COLLECTIVES or kind in EXCHANGES:
            return np.full(seconds.shape, "network")
        if kind in (HOST_READ, HOST_EXPERTS):
            return np.full(seconds.shape, "host link" if kind == HOST_READ else "host")
        compute = flops / self.chip.rate(self.arithmetic(kind, dtype))
        memory = moved / self.chip.memory_bandwidth_bytes_s
        busiest = np.maximum(compute, memory)
        named = np.where(compute >= memory, "compute", "memory")
        slow = np.where(seconds > SMALL_S * max(runs, 1), "efficiency", "latency")
        return np.asarray(np.where(busiest < LATENCY_SHARE * seconds, slow, named))


def _routing(shape: Shape) -> TokenRouting | None:
    """Of tokens for experts, where each crosses to a node once; all rows of a call are of one network."""
    if "topk" not in shape:
        return None
    sizes = {name: int(shape[name][0]) for name in ("experts", "topk", "groups", "topk_groups")}
    return TokenRouting(**sizes, each_rank="each_rank" in shape)


def _in_prompts(op: Op, batch: Batch, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """In which of these steps an operator runs for prompts: what serves prompts alone in all, what follows decodes or
    logits in none, and all other operators where the step has prompts."""
    part = part_of(op)
    if part in ("prefill", "decode", "logits"):
        return np.full(shape, part == "prefill")
    return np.broadcast_to(batch.prefills > 0, shape)


def priced_dtype(op: Op) -> str:
    """The number format that decides an operator's time: of attention, that of the cache it reads."""
    return op.kv_dtype if isinstance(op, (Attention, LatentDecode)) else op.dtype


def known_kinds() -> tuple[str, ...]:
    return (*MODELS, *sorted(COLLECTIVES | EXCHANGES | passes.KINDS | host_rows.KINDS))
