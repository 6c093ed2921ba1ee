from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.errors import UsageError
from tide_cli.hardware.core_division import divide_cores
from tide_cli.hardware.cores import format_cores, parse_cores


def divided(*nodes: range, training: bool = True, serve: str | None = None, train: str | None = None):
    return divide_cores([tuple(node) for node in nodes], training=training, serve_cores=serve, train_cores=train)


@pytest.mark.parametrize(
    ("cores", "serve", "train"),
    [(1, (0,), (0,)), (2, (0,), (1,)), (3, (0, 1), (2,)), (8, (0, 1, 2, 3), (4, 5, 6, 7))],
)
def test_one_node_is_halved(cores: int, serve: tuple[int, ...], train: tuple[int, ...]) -> None:
    assert divided(range(cores))[:2] == (serve, train)


@pytest.mark.parametrize(
    ("nodes", "serve", "train"),
    [
        ((range(4), range(4, 8)), "0-3", "4-7"),
        ((range(2), range(2, 8)), "0-1", "2-7"),  # a whole node rather than half of the cores
        ((range(2), range(2, 4), range(4, 6), range(6, 8)), "0-3", "4-7"),
        ((range(2), range(2, 4), range(4, 6)), "0-3", "4-5"),
        ((range(0), range(2)), "0", "1"),  # a node of memory alone
    ],
)
def test_whole_nodes_are_given(nodes: tuple[range, ...], serve: str, train: str) -> None:
    found = divided(*nodes)
    assert tuple(map(format_cores, found[:2])) == (serve, train)
    assert found[2] == []


def test_named_cores_win_and_the_rest_goes_to_the_other() -> None:
    assert divided(range(4), serve="1-3")[1] == (0,)
    assert divided(range(4), train="0")[0] == (1, 2, 3)
    assert "share core 2:" in divided(range(4), serve="0-2", train="2")[2][0]
    assert "share cores 1-2:" in divided(range(4), serve="0-2", train="1-2")[2][0]
    with pytest.raises(UsageError, match="cores 4-5 are not available here"):
        divided(range(4), serve="3-5", train=None)
    assert divided(range(4), training=False)[:2] == ((0, 1, 2, 3), ())


@pytest.mark.parametrize("text", ["", "x", "3-1", "1-", "-1", "0-9999999", "9", "²"])
def test_wrong_cores_are_the_users_mistake(text: str) -> None:
    with pytest.raises(UsageError, match="--serve-cores"):
        divided(range(4), serve=text)


@given(st.sets(st.integers(0, 500), min_size=1))
def test_cores_survive_writing_and_reading(cores: set[int]) -> None:
    assert parse_cores(format_cores(cores)) == tuple(sorted(cores))
