"""The label that a client gave a request, from the writer to whatever reads it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from spool_traffic import LAYOUT, is_exact, states, token_ids

from tide_cli.errors import TideError
from tide_cli.spool.export import export
from tide_cli.spool.figures import take_figures
from tide_cli.spool.importing import open_spool, read_export, take_up
from tide_cli.spool.layout import PAGE_ENTRY
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.samples import DOMAIN_BYTES, domain_label

LONGEST_LABEL = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.fixture
def labelled(open_writer, folder):
    """Samples 1 to 4, of `code`, of nobody, of `code` and of a client that calls itself by a UUID."""
    writer = open_writer(pages=40)
    for seed, domain in ((1, "code"), (2, ""), (3, "code"), (4, LONGEST_LABEL)):
        aux, final = states(seed, 10)
        writer.put_rows("r", 0, aux, final)
        figures = {"draft_version": 3, "verify_steps": 5, "accepted_tokens": 7}
        writer.finish("r", token_ids(seed, 11), 2, domain=domain, **figures)
    writer.close()
    return folder


def domains(reader: SpoolReader) -> list[str]:
    return [info.domain for info in reader.samples()]


def test_it_is_stored_and_filtered_by(labelled, open_reader):
    reader = open_reader()
    assert domains(reader) == [LONGEST_LABEL, "code", "", "code"]
    assert all(is_exact(reader.read(info)) for info in reader.samples())
    for domain, ids in (("code", [3, 1]), ("", [2]), (LONGEST_LABEL, [4]), ("cod", [])):
        assert [info.id for info in reader.samples(domain=domain)] == ids
    tokens = {"samples": 1, "tokens": 10}
    assert take_figures(labelled, 0.0).by_domain == {
        "": tokens,
        "code": {"samples": 2, "tokens": 20},
        LONGEST_LABEL: tokens,
    }


def test_it_survives_the_loss_of_the_index(labelled, open_writer, open_reader):
    (labelled / "index.db").unlink()
    open_writer()
    reader = open_reader()
    assert domains(reader) == [LONGEST_LABEL, "code", "", "code"]
    assert all(reader.read(info) for info in reader.samples())


def test_an_index_of_before_there_were_labels(labelled, open_writer, open_reader):
    """A reader says what to do; a writer adds the column and fills it from the ring, and no counter is lost."""
    with closing(sqlite3.connect(labelled / "index.db")) as db:
        db.execute("alter table samples drop column domain")
        db.execute("insert into counters values ('dropped_gap', 5)")
        db.commit()
    with pytest.raises(TideError, match="cannot be read") as caught:
        open_reader().samples()
    assert "tide spool repair" in caught.value.remedy
    open_writer()
    reader = open_reader()
    assert domains(reader) == [LONGEST_LABEL, "code", "", "code"]
    assert reader.totals() == {"samples": 4, "tokens": 40, "dropped_gap": 5}


def test_entries_of_before_there_were_labels_read_as_unlabelled():
    before = np.array([b"0123456789ab".ljust(48, b"\0")], "S48")
    run, domain = PAGE_ENTRY["run"], PAGE_ENTRY["domain"]
    split = before.view([("run", run), ("domain", domain)])[0]
    assert (split["run"], split["domain"]) == (b"0123456789ab", b"")
    assert PAGE_ENTRY.fields["domain"][1] == PAGE_ENTRY.fields["run"][1] + run.itemsize


def test_it_goes_with_an_export(labelled, open_reader, tmp_path):
    reader = open_reader()
    export(reader, reader.samples(), tmp_path / "export", lambda done, total: None)
    written = read_export(tmp_path / "export")
    writer, samples = open_spool(written, tmp_path / "other", LAYOUT.size_for(40), overwrite=False)
    take_up(writer, written, samples, lambda done, total: None)
    writer.close()
    with closing(SpoolReader.open(tmp_path / "other")) as other:
        assert domains(other) == domains(reader)

    manifest = tmp_path / "export" / "manifest.json"  # as an export of before there were labels
    manifest.write_text(manifest.read_text().replace('"domain": ', '"was": '))
    assert {sample.info.domain for sample in read_export(tmp_path / "export").samples} == {""}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (None, ""),
        (7, ""),
        ("", ""),
        ("  code ", "code"),
        ("a\x00b\x1b[31m", "ab[31m"),
        ("é" * 40, "é" * (DOMAIN_BYTES // 2)),
        ("a" + "é" * 40, "a" + "é" * 17),  # no half a character
        ("\ud800x", "x"),
        (LONGEST_LABEL, LONGEST_LABEL),
    ],
)
def test_what_a_label_may_be(given: object, stored: str):
    assert domain_label(given) == stored
