from __future__ import annotations

import math
from typing import Any

from tide_cli.supervisor.speculating import SpeculationNews, plain_tok_s


def report(judged: list[int], accepted: list[int], version: int = 0, **more: Any) -> dict[str, Any]:
    shown = dict.fromkeys(("adaptive", "steps", "reason", "batch", "speedup", "acceptance", "probe_share", "measuring"))
    return {**shown, "rounds": {}, "judged": judged, "accepted": accepted, "draft_version": version, **more}


def test_acceptance_by_position_is_that_of_the_served_draft() -> None:
    news = SpeculationNews()
    assert news.live()["by_position"] == []
    news.look(report([10, 4, 0], [4, 1, 0]), 0.0)
    assert news.live()["by_position"] == [0.4, 0.25, None]
    news.look(report([20, 12, 3], [12, 3, 3], version=1), 10.0)
    assert news.live()["by_position"] == [None, None, None]  # whose rounds those were is not known
    news.look(report([30, 20, 3], [20, 7, 3], version=1), 20.0)
    assert news.live()["by_position"] == [0.8, 0.5, None]
    news.look(report([8, 4, 2], [4, 2, 0], version=1), 30.0)  # an engine that began anew
    assert news.live()["by_position"] == [0.5, 0.5, 0.0]
    news.look(None, 40.0)
    assert set(map(str, news.live().values())) == {"[]", "None"}


def test_what_is_long_past_is_forgotten() -> None:
    news = SpeculationNews()
    for look in range(1, 200):
        right = 10 * min(look, 100)
        news.look(report([10 * look], [right]), 10.0 * look)
    assert news.live()["by_position"] == [0.0]


def test_plain_decoding_is_told_from_the_round_times() -> None:
    rounds = [{"batch": 1, "seconds": [0.05, 0.06]}, {"batch": 3, "seconds": [0.07, 0.09]}]
    assert plain_tok_s(report([], [], batch=2, now=rounds, drift=0.0)) == round(2 / 0.06, 2)
    assert plain_tok_s(report([], [], batch=1, now=rounds, drift=math.log(2))) == 10.0
    assert plain_tok_s(report([], [], batch=1)) is None
