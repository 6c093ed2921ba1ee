from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tide_cli.telemetry.figures import EngineCounters, EngineFigures, read_engine
from tide_cli.telemetry.prometheus import parse_page, read_samples

PAGE = """
# HELP sglang:gen_throughput The generation throughput (token/s).
# TYPE sglang:gen_throughput gauge
sglang:gen_throughput{engine_type="unified",model_name="a b} 7",tp_rank="0"} 37.5
sglang:spec_accept_length{model_name="m"} 1.77
sglang:num_running_reqs{model_name="m",dp_rank="0"} 3.0
sglang:num_running_reqs{model_name="m",dp_rank="1"} 1.0
sglang:num_running_reqs_of_another_kind{model_name="m"} 9.0
sglang:num_queue_reqs 2 1700000000
sglang:token_usage{model_name="m"} 0.25
sglang:odd_one{model_name="m"} NotANumber
sglang:realtime_tokens_total{mode="prefill_compute",model_name="m"} 100.0
sglang:realtime_tokens_total{mode="prefill_cache",model_name="m"} 20.0
sglang:realtime_tokens_total{mode="decode",model_name="m"} 30.0
sglang:time_to_first_token_seconds_bucket{is_streaming="true",le="0.1"} 1.0
sglang:time_to_first_token_seconds_bucket{is_streaming="true",le="+Inf"} 2.0
sglang:time_to_first_token_seconds_bucket{is_streaming="false",le="0.1"} 1.0
sglang:time_to_first_token_seconds_bucket{is_streaming="false",le="+Inf"} 1.0
sglang:time_to_first_token_seconds_count{is_streaming="true"} 2.0
sglang:time_to_first_token_seconds_count{is_streaming="false"} 1.0
sglang:inter_token_latency_seconds_bucket{le="0.002"} 5.0
sglang:inter_token_latency_seconds_count 5.0
not a line at all
"""


def test_a_page_of_the_engine() -> None:
    figures, counters = read_engine(PAGE)
    assert figures == EngineFigures(tok_s=37.5, accept_length=1.77, running=4, queued=2, kv_use=0.25)
    assert counters == EngineCounters(
        output=33, input=120, events=8, first_token={0.1: 2, math.inf: 3}, later_token={0.002: 5}
    )


def test_what_is_absent_counts_as_nothing() -> None:
    assert read_engine("") == (EngineFigures(0.0, None, 0, 0, None), EngineCounters())


def test_labels() -> None:
    (sample,) = read_samples('a{b="1",cd="x\\"y",d="2"} 3', {"a"})
    assert (sample.label("d"), sample.label("cd"), sample.label("e")) == ("2", 'x\\"y', None)


@given(st.dictionaries(st.from_regex(r"[a-z_:]{1,20}", fullmatch=True), st.floats(allow_nan=False), max_size=8))
def test_what_was_written_is_read(values: dict[str, float]) -> None:
    page = "\n".join(f'{name}{{label="x"}} {value!r}' for name, value in values.items())
    assert parse_page(page) == values
