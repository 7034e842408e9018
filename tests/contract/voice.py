"""Words that Gnomon does not use, and those of the trade in their place.

`python -m tests.contract.voice` counts what is still in the code; `python -m tests.contract.voice lent quicker` also
lists the files that these entries are in.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "gnomon"

_PER = r"(?:step|token|prompt|second|chip|request|rank|layer|head|sequence|GPU|parameter|weight|host|day)"
_UNIT = r"(?:us|ms|s|GiB|GB|MB|MiB|bytes|tokens|requests|watts|W|J|GB/s|rows)"
_RATE = rf"\d [kMG]?{_UNIT} a {_PER}\b|\b(?:requests|tokens|bytes|FLOPs|dollars) a second\b|\bnew tokens a sequence\b"
PHRASES = {
    # what is not said: (as it would be written, what is said instead)
    "lent": (r"\b(?:lent|lends?|lender|lending|borrow(?:s|ed|ing)?)\b", "donor profile, scaled from"),
    "crowded": (r"\bcrowd(?:ed|ing|s)?\b", "SM contention, bandwidth contention"),
    "learnt": (r"\blearnt\b", "fitted; with gradients"),
    "looks back": (r"\blooks? (?:back|elsewhere)\b", "causal, attention span"),
    "hidden behind": (r"\b(?:hidden|hides?|hiding) (?:behind|beside)\b|\bnothing hides\b", "overlapped with, exposed"),
    "paces": (r"\bpaces?\b", "rate, efficiency, relative throughput"),
    "products": (r"\bproducts\b|\bmatrix product\b", "GEMM, matmul"),
    "run again": (r"\b(?:is|are|what is) run again\b|\bruns? (?:it|activations) again\b", "recomputed"),
    "shelf": (r"\bshel(?:f|ves)\b", "topic group"),
    "re-derived": (r"\bre-?deriv(?:es?|ed|ations?|able)\b|\bderived again\b", "computed, reproduced"),
    "kept bytes": (r"\bkept bytes\b", "saved activation bytes"),
    "come to rest": (r"\bcomes? to rest\b", "idle"),
    "thrown out": (r"\bthrown out\b", "preempted"),
    "bounded away": (r"\bbounded away\b", "pruned"),
    "near neither rate": (r"\bcomes? near neither rate\b", "limited by kernel efficiency"),
    "most throughput plan": (r"\b(?:most throughput|least energy) plan\b", "highest-throughput plan that meets"),
    "brings nothing": (r"\bbrings? nothing here\b", "no benefit here"),
    "quicker": (r"\b(?:as|too|so|how) quick\b|\bquick(?:er|est)\b", "faster, fastest"),
    "in the middle": (r"\boff by [^.;,]{1,12} in the middle\b|% in the middle\b", "median error"),
    "bands hold": (r"\bbands? holds? [\d{]", "n of m inside the 90% interval"),
    "a step of it": (r"\ba step of it\b|\bKV a token\b", "per step, KV per token"),
    "a second": (_RATE, "per second"),
    "is no number": (r"\bis no (?:whole )?number\b(?! format)|\bstands twice\b", "is not a number, is given twice"),
    "is like that": (r"\b(?:model|paper|chip) is like that\b", "no match for"),
    "thousand million": (r"\bthousand million\b", "billion"),
    "seconds on end": (r"\bseconds on end\b", "sustained"),
    "requests in turn": (r"\b(?:requests|replicas) in turn\b", "round-robin"),
    "holds up": (r"\bholds? (?:it |the goals )?up (?:to|with)\b", "sustains, meets the goals up to"),
    "left to you": (r"\bleft to you\b", "not in these files"),
    "0.4 days": (r"\b0\.\d+ days\b|\b1 sequences\b|\b0\.00% slower\b", "9.2 h, 1 sequence, equal"),
    "whole experts": (r"\bwhole (?:experts?|parameters|sums?|weights|matri(?:x|ces))\b", "full, unsharded"),
    "what came second": (r"\bwhat came second\b", "runner-up"),
}  # fmt: skip
"""In what users read: messages, help, docs and docstrings."""

NAMES = {
    "lent": (r"(?i)(?:^|_)(?:lent|lends?|lender|lending|borrow\w*)(?:_|$)", "transferred, donor"),
    "elsewhere": (r"(?:^|_)elsewhere(?:_|$)", "system_spread; non_local"),
    "crowding": (r"(?i)(?:^|_)crowd(?:ed|ing|s)?(?:_|$)", "sm_contention, bandwidth_contention"),
    "learnt": (r"(?:^|_)learnt(?:_|$)", "autograd, backward"),
    "looks": (r"(?:^|_)(?:looks|sight)(?:_|$)", "attention_span, causal"),
    "Hidden": (r"^Hidden$", "Overlapped"),
    "absent": (r"(?:^|_)absent(?:_|$)", "non_local"),
    "parts_tokens": (r"^parts_tokens$", "sequence_parallel_moe"),
    "evened": (r"(?:^|_)evened(?:_|$)", "dp_padded"),
    "Wire": (r"^(?:Wire|Held|Unit|Figures|Chunks)$", "CommModel, ParamCount, LayerCost, StepTable, StageCosts"),
    "quiet": (r"(?:^|_)quiet(?:_|$)", "compute_only"),
    "rerun": (r"(?:^|_)rerun(?:_|$)", "recomputed"),
    "stretch": (r"(?:^|_)stretch(?:_|$)", "clock_slowdown"),
    "pace": (r"(?i)(?:^|_)paces?(?:_|$)", "efficiency, relative_throughput"),
    "products": (r"(?i)(?:^|_)products(?:_|$)", "gemm, matmul"),
    "Ideas": (r"(?:^|_)[Ii]deas(?:_|$)", "AppliedTechniques"),
    "why_not": (r"^why_not$", "reject_reason"),
    "beside_bytes": (r"^beside_bytes$", "extra_bytes"),
    "in_words": (r"^in_words$", "expressed_by_config"),
    "Words": (r"^(?:Words|Asked)$", "Question"),
    "nowhere": (r"(?:^|_)nowhere(?:_|$)", "infeasible"),
    "Tried": (r"^Tried$", "TechniqueComparison"),
    "Said": (r"^Said$", "Claim"),
    "shelf": (r"(?i)(?:^|_)(?:shelf|shelves)(?:_|$)", "index"),
    "derive": (r"^derive[ds]?$|rederived", "reproduce"),
    "Taken": (r"^(?:Taken|Intake)$", "ImageTokens, VisionPreprocessor"),
    "stand_ins": (r"(?:^|_)stand_ins?(?:_|$)", "dispatch overrides"),
    "trouble": (r"(?:^|_)trouble(?:_|$)", "trace errors"),
    "Residents": (r"(?i)(?:^|_)residents(?:_|$)", "BatchState"),
    "crew": (r"(?i)(?:^|_)crew(?:_|$)", "batch"),
    "NOBODY": (r"^NOBODY$", "NO_REQUEST"),
    "flying": (r"(?:^|_)flying(?:_|$)", "in_flight"),
    "hold_back": (r"(?:^|_)h(?:o|e)ld_back(?:_|$)", "delay"),
    "kept_bytes": (r"(?:^|_)kept_bytes(?:_|$)", "saved activation bytes"),
    "BRINK": (r"^_?(?:BRINK|DOUBTFUL|SETTLING|WORTH|FED|ODD|THIN|QUICK)$", "a noun that says which quantity"),
}
"""In code: identifiers, keywords and names of files."""


def phrases(text: str) -> Counter[str]:
    """How often each phrase stands in a text; what is in backticks is code."""
    said = re.sub(r"`[^`\n]*`", "`…`", text)
    counts = {name: len(re.findall(pattern, said)) for name, (pattern, _) in PHRASES.items()}
    return Counter({name: count for name, count in counts.items() if count})


def prose(page: str) -> str:
    """A page of Markdown without listings: what commands print is checked where it comes from."""
    return re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)


def read(source: str) -> tuple[list[str], str]:
    """The identifiers of a module, and all its texts, docstrings among them."""
    texts = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    identifiers = [token.string for token in tokens if token.type == tokenize.NAME]
    return identifiers, "\n".join(token.string for token in tokens if token.type in texts)


@cache
def named(identifier: str) -> tuple[str, ...]:
    """The entries that an identifier falls under."""
    return tuple(name for name, (pattern, _) in NAMES.items() if re.search(pattern, identifier))


def by_file() -> Iterator[tuple[str, Counter[str], Counter[str]]]:
    """Each file of the package with its names and its phrases, and how often they stand in it."""
    for path in sorted((*SRC.rglob("*.py"), *SRC.rglob("*.yaml"))):
        place, text = path.relative_to(SRC), path.read_text(encoding="utf-8")
        if path.suffix == ".yaml":
            yield place.as_posix(), Counter(), phrases(re.sub(r"(?m)^[\s-]*\w+:", "", text))
            continue
        identifiers, texts = read(text)
        found = [name for each in (*identifiers, *place.with_suffix("").parts) for name in named(each)]
        yield place.as_posix(), Counter(found), phrases(texts)


def in_code() -> tuple[Counter[str], Counter[str]]:
    """Names and phrases of the package, and how often they stand in it."""
    names: Counter[str] = Counter()
    said: Counter[str] = Counter()
    for _, more, others in by_file():
        names.update(more)
        said.update(others)
    return names, said


def main(wanted: Collection[str]) -> None:
    """The counts that are left; of the entries that are asked for, in which files."""
    for kind, found in zip(("NAMES_LEFT", "PHRASES_LEFT"), in_code(), strict=True):
        print(f"{kind} = {dict(sorted(found.items()))}")
    for place, names, said in by_file():
        for name, count in sorted((names + said).items()):
            if name in wanted:
                print(f"{place}: {name} {count}")


if __name__ == "__main__":
    main(sys.argv[1:])
