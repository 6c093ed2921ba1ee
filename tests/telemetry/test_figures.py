from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tide_cli.telemetry.figures import EngineFigures, engine_figures
from tide_cli.telemetry.prometheus import parse_page

PAGE = """
# HELP sglang:gen_throughput The generation throughput (token/s).
# TYPE sglang:gen_throughput gauge
sglang:gen_throughput{engine_type="unified",model_name="a b} 7",tp_rank="0"} 37.5
sglang:spec_accept_length{model_name="m"} 1.77
sglang:num_running_reqs{model_name="m",dp_rank="0"} 3.0
sglang:num_running_reqs{model_name="m",dp_rank="1"} 1.0
sglang:num_queue_reqs 2 1700000000
sglang:odd_one{model_name="m"} NotANumber
not a line at all
"""


def test_figures_of_a_page() -> None:
    assert engine_figures(parse_page(PAGE)) == EngineFigures(tok_s=37.5, accept_length=1.77, running=4, queued=2)


def test_what_is_absent_counts_as_nothing() -> None:
    assert engine_figures(parse_page("")) == EngineFigures(tok_s=0.0, accept_length=None, running=0, queued=0)


@given(st.dictionaries(st.from_regex(r"[a-z_:]{1,20}", fullmatch=True), st.floats(allow_nan=False), max_size=8))
def test_what_was_written_is_read(values: dict[str, float]) -> None:
    page = "\n".join(f'{name}{{label="x"}} {value!r}' for name, value in values.items())
    assert parse_page(page) == values
