"""Citations: BibTeX of what is known, one entry for every paper."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gnomon.cli.run import run
from gnomon.papers.citation import bibtex, unknown
from gnomon.papers.entries import paper, papers

GPTQ = """\
@misc{gptq,
  title         = {{GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers}},
  author        = {Elias Frantar and Saleh Ashkboos and Torsten Hoefler and Dan Alistarh},
  year          = {2022},
  month         = oct,
  eprint        = {2210.17323},
  archivePrefix = {arXiv},
  url           = {https://arxiv.org/abs/2210.17323},
  note          = {code: https://github.com/IST-DASLab/gptq},
}
"""


def test_a_paper_of_which_much_is_known() -> None:
    assert bibtex(paper("gptq")) == GPTQ
    assert unknown(paper("gptq")) == ("doi",)


def test_only_what_is_known_is_said() -> None:
    bare = replace(paper("gptq"), authors=(), arxiv="", date="", repository="", links=("https://a.b/c",))
    assert re.findall(r"^  (\w+)", bibtex(bare), re.MULTILINE) == ["title", "url"]
    assert unknown(bare) == ("author", "year", "eprint", "doi")
    assert "month" not in bibtex(replace(bare, date="2022")) and "url" not in bibtex(replace(bare, links=()))


def test_special_characters_are_escaped() -> None:
    odd = replace(paper("gptq"), title="50% of $5 & {more}_#1", authors=("Jörg Müßig",))
    assert r"{{50\% of \$5 \& \{more\}\_\#1}}" in bibtex(odd) and "Jörg Müßig" in bibtex(odd)


def test_every_paper_can_be_cited() -> None:
    for entry in papers():
        text = bibtex(entry)
        assert text.startswith(f"@misc{{{entry.slug},\n") and text.endswith("}\n")
        plain = re.sub(r"\\[{}]", "", text)
        assert plain.count("{") == plain.count("}"), entry.slug
        assert re.search(r"^  author +=", text, re.MULTILINE)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["papers", "cite", "gptq"]) == 0
    assert capsys.readouterr().out == f"{GPTQ}% not known: doi\n"
    assert run(["papers", "cite", "pipo"]) == 0
    assert "% written from memory: date" in capsys.readouterr().out
    assert run(["papers", "cite", "gptk"]) == 2
    assert "unknown paper 'gptk'. Near: gptq" in capsys.readouterr().err
