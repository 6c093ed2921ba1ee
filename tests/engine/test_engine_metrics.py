"""What TIDE reads of SGLang's page of metrics, against the installed SGLang that writes it."""

from __future__ import annotations

from pathlib import Path

from sglang.srt.observability import metrics_collector

from tide_cli.telemetry.figures import READ

_PARTS = ("_bucket", "_count")  # what a histogram's name is followed by on the page


def test_sglang_has_every_metric_that_is_read() -> None:
    source = Path(metrics_collector.__file__).read_text()
    names = {name.removesuffix(part) for part in _PARTS for name in READ if name.endswith(part)}
    names |= {name for name in READ if not name.endswith(_PARTS)}
    assert [name for name in sorted(names) if f'"{name}"' not in source] == []
    assert all(f'"{mode}", {mode}_tokens' in source for mode in ("prefill_compute", "prefill_cache", "decode"))
