"""The keys of the dashboard, and what it shows of an appliance that is not well."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from piloted import Piloted, Taken, piloted

from tide_cli.dashboard.pages import log_lines
from tide_cli.errors import TideError

PROMPT = "my secret question"
TITLES = ("1 Engine", "2 Speculation", "3 Adaptation", "4 Devices", "5 Events")
SWAPS = [
    {"id": 1, "kind": "swap", "data": {"version": 2, "before": 1}},
    {"id": 2, "kind": "gate", "data": {}},
    {"id": 3, "kind": "swap", "data": {"version": 3, "before": 2}},
]
SERVED_3 = {"drafts": {"served": 3, "latest": 3, "versions": []}}


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (60, 20), (100, 24), (160, 30)])
def test_every_panel_is_there(size: tuple[int, int]) -> None:
    async def use(top: Piloted) -> None:
        text = await top.text()
        assert text.startswith("TIDE READY")
        assert [title for title in TITLES if title not in text] == [] or size == (60, 20)
        assert "1 Engine" in text
        assert "q detach" in text.splitlines()[-1]

    piloted(use, size=size)


def test_it_follows_the_size_of_the_terminal() -> None:
    async def use(top: Piloted) -> None:
        for width, height in ((80, 24), (30, 8), (1, 1), (200, 60), (120, 40)):
            await top.pilot.resize_terminal(width, height)
            lines = (await top.text()).splitlines()
            assert len(lines) == height
            assert {len(line) for line in lines} <= {width}
        assert all(title in "\n".join(lines) for title in TITLES)

    piloted(use)


def test_a_panel_alone_and_back() -> None:
    async def use(top: Piloted) -> None:
        for key, title in enumerate(TITLES, start=1):
            text = await top.press(str(key))
            assert [name for name in TITLES if name in text] == [title]
        for keys in (["5"], ["2", "escape"]):
            text = await top.press(*keys)
            assert [title for title in TITLES if title not in text] == []

    piloted(use, size=(80, 24))


def test_help_explains_each_key() -> None:
    async def use(top: Piloted) -> None:
        text = await top.press("question_mark")
        for words in ("leave; nothing else ends", "pause adaptation", "serve the version before", "acceptance length"):
            assert words in text
        assert "1 Engine" in await top.press("question_mark")

    piloted(use, size=(80, 24))


def test_orders() -> None:
    orders = Taken()

    async def use(top: Piloted) -> None:
        await top.press("p")
        await top.until("done: /v1/train/pause")
        top.feed.answer = replace(
            top.feed.answer,
            status={**top.feed.answer.status, "training": {"paused": True}, "cycle": {"state": "paused"}},
        )
        await top.press("p")
        await top.press("t")
        await top.until("done: /v1/train ")
        assert "paused by the user" in await top.text()

    piloted(use, orders=orders)
    assert sorted(orders.given, key=str) == sorted(
        [("/v1/train/pause", {"pause": True}), ("/v1/train/pause", {"pause": False}), ("/v1/train", None)], key=str
    )


def test_a_refused_order_says_why() -> None:
    orders = Taken()
    orders.failure = TideError("no training cycle has begun", why="one is running")

    async def use(top: Piloted) -> None:
        await top.press("t")
        await top.until("no training cycle has begun: one is running")

    piloted(use, orders=orders)


@pytest.mark.parametrize(("answer", "given"), [("y", [("/v1/drafts/use", {"version": 2})]), ("n", []), ("q", [])])
def test_a_rollback_asks_first(answer: str, given: list[object]) -> None:
    orders = Taken(SWAPS)

    async def use(top: Piloted) -> None:
        await top.press("r")
        await top.until("Serve v0002 again instead of v0003?")
        assert orders.given == []
        await top.press(answer)
        await top.until("done: /v1/drafts/use" if given else "nothing has changed")

    piloted(use, orders=orders, status=SERVED_3)
    assert orders.given == given


def test_there_may_be_nothing_to_go_back_to() -> None:
    async def use(top: Piloted) -> None:
        await top.press("r")
        await top.until("there is no version to go back to")

    piloted(use, orders=Taken(), status=SERVED_3)


def test_read_only() -> None:
    orders = Taken(SWAPS)

    async def use(top: Piloted) -> None:
        assert "t train" not in await top.text()
        for key in ("p", "t", "r"):
            assert "read only" in await top.press(key)
        await top.press("y")

    piloted(use, orders=orders, readonly=True)
    assert orders.given == []


def test_a_frozen_picture_stays_and_still_says_what_is_wrong() -> None:
    async def use(top: Piloted) -> None:
        text = await top.press("f")
        assert "FROZEN" in text
        load = {**top.feed.answer.status["load"], "running": 77}
        top.feed.answer = replace(top.feed.answer, status={**top.feed.answer.status, "load": load})
        assert "77 running" not in await top.text()
        top.feed.silence = 30.5
        assert "The supervisor has not answered for 30 s" in await top.text()
        top.feed.silence = 0.0
        text = await top.press("f")
        assert "77 running" in text
        assert "FROZEN" not in text

    piloted(use)


def test_a_picture_asks_for_nothing_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def use(top: Piloted) -> None:
        assert f"saved {tmp_path}" in re.sub(r"\s*\n", "", await top.press("s"))
        tmp_path.chmod(0o500)

    piloted(use, size=(200, 40))
    (picture,) = tmp_path.glob("tide-top-*.svg")
    text = picture.read_text()
    assert "Engine" in text
    assert set(re.findall(r"https?://[^\s\"<]*", text)) <= {
        "http://www.w3.org/2000/svg",
        "https://www.textualize.io",
        "http://127.0.0.1:30000/v1",
    }


def test_a_picture_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    async def use(top: Piloted) -> None:
        monkeypatch.setattr(Path, "write_text", full)
        text = await top.press("s")
        monkeypatch.undo()
        assert "cannot write" in text

    piloted(use, size=(200, 40))


def test_ascii_is_ascii() -> None:
    async def use(top: Piloted) -> None:
        for key in ("x", "2", "2", "question_mark", "escape", "l"):
            assert (await top.press(key)).isascii()

    piloted(use, ascii=True)
    piloted(use, ascii=True, size=(80, 24))


def test_no_color_means_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def use(top: Piloted) -> None:
        await top.text()
        for strip in top.app.screen._compositor.render_strips():
            for segment in strip:
                colours = (segment.style.color, segment.style.bgcolor) if segment.style else ()
                assert all(colour is None or colour.is_default for colour in colours)

    piloted(use)


def test_the_supervisor_gone_and_back() -> None:
    async def use(top: Piloted) -> None:
        running = top.feed.answer
        top.feed.answer = replace(running, gone=True)
        top.feed.silence = 5.0
        text = await top.text()
        assert "No supervisor runs" in text
        (alarm,) = [strip for strip in top.app.screen._compositor.render_strips() if "No supervisor" in strip.text]
        assert next(iter(alarm)).style.color.name == "red"
        assert "READY" in text  # the last that was known
        top.feed.answer, top.feed.silence = running, 0.0
        assert "No supervisor" not in await top.text()

    piloted(use, status={"notes": []})


def test_what_requests_say_is_not_shown(tmp_path: Path) -> None:
    """Lines as SGLang's --log-requests writes them, as text and as JSON, and the rest of one with a line break."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "engine.log").write_text(
        "[2026-11-29 10:00:00] Load weight begin. avail mem=1.00 GB\n"
        f"[2026-11-29 10:00:01] Receive: obj=GenerateReqInput(text='{PROMPT}', rid='1')\n"
        f"[2026-11-29 10:00:01] Receive OpenAI: obj={{'messages': '{PROMPT}'}}\n"
        f'{{"timestamp": "2026", "event": "request.received", "obj": {{"text": "{PROMPT}"}}}}\n'
        f"[2026-11-29 10:00:02] Finish: obj=GenerateReqInput(text='a\n{PROMPT}'), out={{'text': '{PROMPT}'}}\n"
        "[2026-11-29 10:00:03] Decode batch, #running-req: 1\x1b[2J\n"
    )
    (tmp_path / "logs" / "supervisor.log").write_text("2026-11-29 10:00:00 the engine is ready\n")

    async def use(top: Piloted) -> None:
        text = await top.press("l")
        assert "Load weight begin" in text
        assert "#running-req: 1 " in text
        assert "5 lines not shown" in text
        assert PROMPT not in text
        assert "empty" in await top.press("l")
        assert "the engine is ready" in await top.press("l")
        assert "1 Engine" in await top.press("l")

    piloted(use, folder=tmp_path)


def test_a_log_scrolls(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "engine.log").write_text("".join(f"[2026-11-29 10:00:00] line {i}.\n" for i in range(100)))

    async def use(top: Piloted) -> None:
        assert "line 99." in await top.press("l")
        text = await top.press("up", "up", "up")
        assert "line 99." not in text
        assert "line 96." in text
        assert "line 0." in await top.press(*["pageup"] * 9)
        assert "line 99." in await top.press(*["pagedown"] * 9)

    piloted(use, folder=tmp_path, size=(80, 24))


def test_lines_of_no_known_shape_are_left_out() -> None:
    assert log_lines("INFO: fine\n  continuation of something\n\n") == (["INFO: fine"], 1)
    assert log_lines(f"a.b.OddError: '{PROMPT}'\nKeyError\n") == (["a.b.OddError: …", "KeyError"], 0)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_leaving(key: str) -> None:
    async def use(top: Piloted) -> None:
        await top.pilot.press(key)
        while top.app.is_running:
            await asyncio.sleep(0.01)

    piloted(use)


def test_on_the_terminal_of_tide_up_ctrl_c_ends_the_appliance_and_q_does_not() -> None:
    ended: list[int] = []

    async def use(top: Piloted) -> None:
        assert "q close  ^C END" in await top.text()
        text = await top.press("question_mark")
        assert "the appliance goes on in this terminal" in text
        assert "end the appliance in order; once more: kill it" in text
        assert "ending the appliance" in await top.press("ctrl+c")
        assert top.app.is_running
        await top.press("ctrl+c")
        assert ended == [1, 1]
        await top.pilot.press("q")

    piloted(use, interrupt=lambda: ended.append(1))
    assert ended == [1, 1]
