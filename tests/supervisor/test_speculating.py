from __future__ import annotations

import math
from typing import Any

from tide_cli.supervisor.speculating import SpeculationNews

ROUNDS = [{"batch": 1, "seconds": [0.05, 0.06]}, {"batch": 3, "seconds": [0.07, 0.09]}]


def report(judged: list[int], accepted: list[int], version: int = 0, **more: Any) -> dict[str, Any]:
    shown = dict.fromkeys(("adaptive", "steps", "reason", "batch", "speedup", "acceptance", "probe_share", "measuring"))
    return {**shown, "rounds": {}, "judged": judged, "accepted": accepted, "draft_version": version, **more}


def at_work(version: int = 0, **more: Any) -> dict[str, Any]:
    """An engine that takes one draft step, half of whose proposals are right; its last round had 8 requests."""
    values = {"steps": 1, "batch": 8, "speedup": 1.2, "acceptance": [0.5], "reason": "it pays", "rounds": {"1": 9}}
    return report([10], [5], version, **values, now=ROUNDS, drift=0.0, **more)


def test_acceptance_by_position_is_that_of_the_served_draft() -> None:
    news = SpeculationNews()
    assert news.live(0, None)["by_position"] == []
    news.look(report([10, 4, 0], [4, 1, 0]), 0.0)
    assert news.live(0, None)["by_position"] == [0.4, 0.25, None]
    news.look(report([20, 12, 3], [12, 3, 3], version=1), 10.0)
    assert news.live(1, None)["by_position"] == [None, None, None]  # whose rounds those were is not known
    news.look(report([30, 20, 3], [20, 7, 3], version=1), 20.0)
    assert news.live(1, None)["by_position"] == [0.8, 0.5, None]
    news.look(report([8, 4, 2], [4, 2, 0], version=1), 30.0)  # an engine that began anew
    assert news.live(1, None)["by_position"] == [0.5, 0.5, 0.0]
    news.look(None, 40.0)
    assert set(map(str, news.live(1, None).values())) == {"[]", "None"}


def test_what_is_long_past_is_forgotten() -> None:
    news = SpeculationNews()
    for look in range(1, 200):
        right = 10 * min(look, 100)
        news.look(report([10 * look], [right]), 10.0 * look)
    assert news.live(0, None)["by_position"] == [0.0]


def test_figures_of_another_draft_than_the_served_one_are_not_shown_for_it() -> None:
    news = SpeculationNews()
    news.look(at_work(version=1), 0.0)
    assert news.live(1, 1)["speedup"] == 1.25
    taken_back = news.live(0, 1)
    assert (taken_back["by_position"], taken_back["speedup"], taken_back["why"]) == ([], None, None)
    assert (taken_back["draft_steps"], taken_back["plain_tok_s"]) == (1, 20.0)  # which no draft changes
    assert news.state is not None
    assert news.state["draft_version"] == 1
    news.look(at_work(version=0, measuring=False) | {"speedup": None}, 10.0)  # of which nothing was judged yet
    assert news.live(0, 1)["speedup"] is None


def test_plain_rate_and_speed_up_are_of_the_requests_that_run() -> None:
    news = SpeculationNews()
    news.look(at_work(), 0.0)
    assert (news.live(0, 1)["plain_tok_s"], news.live(0, 1)["speedup"]) == (20.0, round(1.5 * 5 / 6, 3))
    assert (news.live(0, 3)["plain_tok_s"], news.live(0, 3)["speedup"]) == (42.86, round(1.5 * 7 / 9, 3))
    assert news.live(0, 2)["plain_tok_s"] == round(2 / 0.06, 2)  # between what was measured
    assert news.live(0, 0) == news.live(0, 8)  # as in the last round
    news.look(at_work() | {"drift": math.log(2)}, 10.0)
    assert (news.live(0, 1)["plain_tok_s"], news.live(0, 1)["speedup"]) == (10.0, 1.25)
    news.look(report([], [], batch=1), 20.0)
    assert news.live(0, 1)["plain_tok_s"] is None


def test_going_over_to_plain_decoding_and_back_is_told() -> None:
    news = SpeculationNews()
    unknown = at_work() | {"speedup": None}
    assert news.look(unknown, 0.0) == news.look(unknown, 60.0) == []
    assert news.look(at_work(), 70.0) == []
    (note,) = news.look(at_work(), 100.0)
    assert note.text == "speculation with 1 draft step: it pays"
    plain = at_work() | {"steps": 0, "reason": "1 draft step promises little"}
    assert news.look(plain, 110.0) == []
    (note,) = news.look(plain, 140.0)
    assert note.text == "plain decoding: 1 draft step promises little"
