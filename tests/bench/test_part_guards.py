"""Guards of the parts, and what the documentation says of their figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tide_cli.bench.part_guards import failures, judge_part, known_figures, part_guards
from tide_cli.cli import main
from tide_cli.errors import UsageError

MEASURING = Path(__file__).parents[2] / "docs" / "measuring.md"
SPOOL = Path(__file__).parents[2] / "docs" / "spool.md"


@pytest.mark.parametrize(
    ("name", "known", "text", "words"),
    [
        ("capture", {}, "throughput_ratio", "is not a guard"),
        ("capture", {}, "speed>=1", "there is no figure speed"),
        ("capture", {}, "throughput_ratio>=0.99x", "is compared under a name of its own"),
        ("capture", {}, "both:errors<=0", "both is not measured"),
        ("capture", {}, "on:throughput_ratio>=1", "there is no figure throughput_ratio"),
        ("swap", {}, "throughput_ratio>=1", "there is no figure throughput_ratio"),
        ("profile", {"sizes": [1, 4]}, "2:measured>=1", "2 is not measured"),
        ("train", {"lengths": False}, "length_difference>=0", "there is no figure length_difference"),
        ("train", {"lengths": False}, "tide:acceptance_length>=1", "there is no figure acceptance_length"),
        ("spool", {"sizes": [576]}, "2880:ingest_mb_s>=1", "2880 is not measured"),
    ],
)
def test_a_guard_that_nothing_can_answer_is_refused(name: str, known: Any, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        part_guards([text], known_figures(name, **known))


def verdicts(name: str, found: dict[str, Any], *texts: str, **known: Any) -> dict[str, bool]:
    figures = known_figures(name, **known)
    findings = judge_part(part_guards(texts, figures), name, found, figures)
    return {f"{one.guard} by {one.where}": one.met for one in findings}


def test_a_guard_speaks_of_every_place_that_has_its_figure() -> None:
    side = {"output_tok_s": 10.0, "itl_p95_ms": 50.0}
    capture = {"throughput_ratio": 0.98, "errors": 0, "on": side, "off": side | {"itl_p95_ms": 40.0}}
    assert verdicts("capture", capture, "throughput_ratio>=0.99", "itl_p95<=45", "off:tok_s>=10") == {
        "throughput_ratio>=0.99 by capture": False,
        "itl_p95<=45 by capture on": False,
        "itl_p95<=45 by capture off": True,
        "off:tok_s>=10 by capture off": True,
    }
    sizes = [{"hidden_size": 576, "ingest_mb_s": 9.0, "lmdb_mb_s": None, "paced": {"core_share": 0.01}}]
    spool = {"by_hidden_size": sizes}
    assert verdicts("spool", spool, "ingest_mb_s>=8", "core_share<=0.02", "lmdb_mb_s>=1", sizes=[576]) == {
        "ingest_mb_s>=8 by hidden size 576": True,
        "core_share<=0.02 by hidden size 576": True,
        "lmdb_mb_s>=1 by hidden size 576": False,  # not installed
    }
    batches = [{"batch": 4, "error": 0.2, "round_tokens": 1.8}]
    assert verdicts("profile", {"batches": batches}, "error<=0.1", "4:round_tokens>=1.5", sizes=[4]) == {
        "error<=0.1 by 4 at a time": False,
        "4:round_tokens>=1.5 by 4 at a time": True,
    }
    lengths = {"first": 1.0, "tide": 1.5, "specforge": 1.4}
    train = {"ratio": 1.2, "acceptance_length": lengths, "bytes_per_token": {}, "stored_bytes": {}}
    assert verdicts("train", train, "ratio>=1", "tide:al>=1.5", "specforge:al>=1.5") == {
        "ratio>=1 by train": True,
        "tide:al>=1.5 by tide": True,
        "specforge:al>=1.5 by specforge": False,
    }


def test_a_batch_size_that_was_left_out_meets_no_guard() -> None:
    found = {"batches": [{"batch": 1, "measured": 1.2}], "errors": 0, "left_out": [2]}
    assert list(verdicts("profile", found, "measured>=1", sizes=[1, 2]).values()) == [True, False]


def test_failures_that_guards_allow_are_none() -> None:
    found = {"failed_requests": 1, "reasons": ["broke off"], "refused_swaps": 2, "refusals": ["x"], "swaps": 3}
    known = known_figures("swap")
    assert failures("swap", found, ()) == ["1 request failed: broke off", "2 swaps refused: x"]
    allowed = part_guards(["failed_requests<=1", "refused_swaps<=2"], known)
    assert failures("swap", found, allowed) == []
    assert all(one.met for one in judge_part(allowed, "swap", found, known))
    assert len(failures("swap", found, part_guards(["errors<=0", "refused_swaps<=1"], known))) == 2


@pytest.mark.parametrize("name", ["capture", "swap", "train", "profile", "spool"])
def test_a_guard_is_refused_before_anything_is_measured(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(f"tide_cli.bench.{name}.{name.capitalize()}Bench.run", pytest.fail)
    for arguments, words in ((["--guard", "speed>=1"], "no figure speed"), (["--html", "/dev/null/x"], "cannot write")):
        with pytest.raises(SystemExit) as end:
            main(["bench", name, *arguments])
        assert end.value.code == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["capture", "swap", "train", "profile", "spool"])
def test_every_figure_of_a_guard_is_explained(name: str) -> None:
    page = (SPOOL if name == "spool" else MEASURING).read_text()
    known = known_figures(name, sizes=[1] if name in ("profile", "spool") else [])
    assert [figure for figures in known.values() for figure in figures if f"`{figure}`" not in page] == []
