"""What the spool says about itself without reading a row."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from spool_traffic import LAYOUT

from tide_cli.errors import TideError
from tide_cli.spool.figures import take_figures
from tide_cli.spool.layout import PAGE_ENTRY


def test_figures_of_a_spool_in_use(open_writer, open_reader, store, folder):
    writer = open_writer()
    for seed, length in ((1, 10), (2, 7), (3, 4)):
        store(writer, seed=seed, length=length)
    writer.refuse("x", "queue_full")
    writer.abort("x")
    assert store(writer, seed=4, length=1) is None
    samples = open_reader().samples()
    now = samples[0].created + 100
    figures = take_figures(folder, now)
    assert (figures.target, figures.hidden_size, figures.page_tokens) == ("made-up", 8, 4)
    assert figures.row_bytes == (LAYOUT.bytes_per_page - PAGE_ENTRY.itemsize) // LAYOUT.page_tokens
    assert (figures.pages, figures.pages_used, figures.fill) == (12, 6, 0.5)
    assert figures.size_bytes == (folder / "ring.bin").stat().st_size
    assert (figures.samples, figures.tokens, figures.generated) == (3, 21, 15)
    assert figures.by_draft == {"v0003": {"samples": 3, "tokens": 21}}
    assert sum(part["tokens"] for part in figures.by_split.values()) == 21
    assert figures.age["newest"] == 100
    assert figures.age["oldest"] == now - samples[-1].created >= figures.age["median"] >= 100
    assert (figures.oldest, figures.newest) == (samples[-1].created, samples[0].created)
    assert figures.stored == {"samples": 3, "tokens": 21}
    assert figures.dropped == {"no_output": 1, "queue_full": 1}
    assert figures.reservoir == {"samples": 0, "bytes": 0}


def test_an_empty_spool(open_writer, folder):
    open_writer()
    (folder / "reservoir").mkdir()
    (folder / "reservoir" / "a.safetensors").write_bytes(b"12345")
    figures = take_figures(folder, 0.0)
    assert (figures.samples, figures.fill, figures.age, figures.oldest) == (0, 0.0, None, None)
    assert figures.reservoir == {"samples": 1, "bytes": 5}
    assert set(asdict(figures)) >= {"by_split", "dropped", "stored"}


@pytest.mark.parametrize("how", ["missing", "garbage", "half"])
def test_a_lost_index_names_the_way_to_mend_it(open_writer, store, folder, how: str):
    writer = open_writer()
    for seed in range(1, 4):
        store(writer, seed=seed, length=6)
    writer.close()
    path = folder / "index.db"
    if how == "missing":
        path.unlink()
    elif how == "garbage":
        path.write_bytes(b"garbage" * 1000)
    else:
        content = bytearray(path.read_bytes())
        content[4096:] = b"\xff" * (len(content) - 4096)
        path.write_bytes(content)

    with pytest.raises(TideError, match="index of the spool") as caught:
        take_figures(folder, 0.0)
    assert "tide spool repair" in caught.value.remedy


def test_no_spool(folder):
    with pytest.raises(TideError, match="no spool"):
        take_figures(folder, 0.0)
