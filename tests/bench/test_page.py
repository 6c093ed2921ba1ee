"""The HTML report: one file, of every figure, with nothing from elsewhere."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from recorded import plan, recorded

from tide_cli.bench.guards import judge, parse_guard
from tide_cli.bench.matrix_figures import figures
from tide_cli.bench.matrix_page import matrix_page
from tide_cli.bench.page import NO_PLOTS, check_page, table, write_page
from tide_cli.bench.plots import Series, bars, lines
from tide_cli.bench.report import make_report, take_environment

VOID = {"meta", "br"}


def report(**steps: float) -> dict[str, Any]:
    found = figures(plan(*steps), recorded(steps))
    guards = judge([parse_guard("tok_s>=1.0x")], found["cells"], found["ratios"])
    findings = [{"met": one.met, "words": one.words()} for one in guards]
    matrix = {"plan": plan(*steps).to_json(), "domains": ["code", "sql"], "guards": findings, **found}
    return json.loads(json.dumps(make_report(take_environment(), matrix=matrix)))


class Structure(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(text: str) -> None:
    structure = Structure(text)
    assert structure.open == []
    assert [link for link in structure.links if not link.startswith("#")] == []  # within the file
    assert "<script" not in text
    light, dark = (set(re.findall(r"(--[\w-]+):", palette)) for palette in re.findall(r":root \{(.*?)\}", text, re.S))
    assert light == dark  # no colour is forgotten
    assert set(re.findall(r"var\((--[\w-]+)\)", text)) <= light


def test_the_page_holds_what_was_measured() -> None:
    pytest.importorskip("matplotlib")
    text = matrix_page(report(plain=0.2, static=0.25))
    check(text)
    assert text.count("<svg ") == 7  # three by load; by domain and acceptance by position for each of the two loads
    assert "How far the target went along with the draft, concurrency 4" in text
    assert "static at concurrency 1: 0.80 times the output of plain" in text
    assert "tok_s&gt;=1.0x is not met by static at concurrency 4 against plain: 0.8" in text
    assert "<td>4.0 (0.80)</td>" in text
    assert "in brackets: times plain" in text
    assert "revision r1" in text
    assert "dtype auto, draft_steps 3" in text


def test_the_page_says_that_the_machine_was_busy() -> None:
    measured = report(plain=0.2)
    measured["environment"].update(load=[13.5, 1.0, 1.0], cores=2)
    assert "13.5 1.0 1.0; this machine is busy" in matrix_page(measured)


def test_without_plots_it_has_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("tide_cli.bench.plots.has_plots", lambda: False)
    monkeypatch.setattr("tide_cli.bench.matrix_page.has_plots", lambda: False)
    text = matrix_page(report(plain=0.2))
    check(text)
    assert "<svg" not in text
    assert NO_PLOTS in text
    assert "<td>5.0</td>" in text


def test_plots_take_the_colours_of_the_page() -> None:
    pytest.importorskip("matplotlib")
    ended = [None, 3.0]
    drawn = [
        bars(["a", "b <c>"], [Series("one", [1.0, None]), Series("two", [2.0, 3.0], ended, ended)], unit="s", at=1.0),
        lines(
            {"one": [(0.0, 1.0), (1.0, 2.0)]}, x_unit="s", unit="tok/s", marks={"swap": [(0.5, "v0001")], "none": []}
        ),
        lines({}, x_unit="s", unit="tok/s"),
    ]
    for svg in drawn:
        assert svg is not None
        assert svg.startswith("<svg ")
        assert set(re.findall(r"(?:fill|stroke): (#\w+)", svg)) <= {"#ffffff"}  # no colour of matplotlib's own
    assert "var(--series-1)" in drawn[0]
    assert all(f">{words}<" in drawn[1] for words in ("v0001", "swap"))
    assert ">none<" not in drawn[1]
    two = {"a": [(0.0, 1.0), (1.0, 2.0)], "b": [(0.0, 1.0), (1.0, 2.0)]}
    plain, dashed = (lines(two, x_unit="s", unit="", dashes=dashes) or "" for dashes in (None, {"b": 1}))
    assert dashed.count("stroke-dasharray") > plain.count("stroke-dasharray")


def test_half_a_character_is_written_as_what_it_is(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", "a\ud800b", None)
    assert (tmp_path / "page.html").read_text() == "a\\ud800b"


def test_texts_are_texts() -> None:
    assert "<b>" not in table(["<b>"], [["<b>&"]])


def test_a_link_that_leads_nowhere_yet_stays(tmp_path: Path) -> None:
    (tmp_path / "latest.html").symlink_to(tmp_path / "new.html")
    check_page(tmp_path / "latest.html")
    assert (tmp_path / "latest.html").is_symlink()
    assert not (tmp_path / "new.html").exists()
