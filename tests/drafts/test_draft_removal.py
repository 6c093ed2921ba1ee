"""Marks and removal: nothing is ever half there, whenever the process is killed."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tide_cli
from tide_cli.drafts import store as draft_store
from tide_cli.drafts.store import DraftStore
from tide_cli.errors import TideError


@pytest.fixture
def store(tmp_path: Path, publish: Callable[..., int]) -> DraftStore:
    for parent in (None, 0, 1):
        publish(parent=parent)
    return DraftStore(tmp_path / "state" / "drafts")


def test_marks_last_and_go_with_their_version(store: DraftStore):
    assert (store.marks().pinned, store.marks().bad) == (frozenset(), {})
    store.pin(0)
    store.pin(1)
    store.pin(0, False)
    store.mark_bad(2, "fell short")
    marks = DraftStore(store.root).marks()
    assert (marks.pinned, marks.bad) == ({1}, {2: "fell short"})
    assert stat.S_IMODE((store.root / "marks.json").stat().st_mode) == 0o600
    store.remove(1)
    store.remove(2)
    assert (store.marks().pinned, store.marks().bad) == (frozenset(), {})
    assert store.versions() == [0]
    store.remove(2)  # gone already
    with pytest.raises(TideError, match="no draft v0002"):
        store.pin(2)


def test_a_lock_that_somebody_keeps_is_not_waited_for_for_ever(store: DraftStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(draft_store, "_PATIENCE", 0.0)
    store.pin(0)
    with (store.root / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for change in (lambda: store.pin(1), lambda: store.mark_bad(1, "fell short"), lambda: store.remove(1)):
            with pytest.raises(TideError, match="cannot be changed") as refused:
                change()
            assert "another process has held their lock" in refused.value.why
    store.remove(1)
    assert (store.marks().pinned, store.versions()) == ({0}, [0, 2])


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"pinned": ["x"], "bad": {}}', '{"pinned": [1], "bad": []}'])
def test_unreadable_marks_are_named(store: DraftStore, content: str):
    (store.root / "marks.json").write_text(content)
    with pytest.raises(TideError, match=r"marks\.json"):
        store.marks()
    with pytest.raises(TideError, match=r"marks\.json"):
        store.pin(0)


# kills the process at the n-th call that changes a folder or flushes a file
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from tide_cli.drafts.store import DraftStore
left = int(sys.argv[3])
def counted(call):
    def inner(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    return inner
for name in ("rename", "replace", "unlink", "rmdir", "fsync", "open", "mkdir"):
    setattr(os, name, counted(getattr(os, name)))
store = DraftStore(Path(sys.argv[1]))
if sys.argv[2] == "remove":
    store.remove(1)
elif sys.argv[2] == "pin":
    store.pin(1)
else:
    fields = dict(target="t", target_revision="r", vocab_map_hash="h", samples=0, tokens=0, gate=None)
    store.publish(Path(sys.argv[2]), parent=None, **fields)
print("done", flush=True)
"""


@pytest.mark.parametrize("what", ["remove", "pin", "publish"])
def test_a_kill_at_any_step_leaves_nothing_half(
    tmp_path: Path, store: DraftStore, make_draft: Callable[..., Path], what: str
):
    argument = str(make_draft()) if what == "publish" else what
    environment = os.environ | {"PYTHONPATH": str(Path(tide_cli.__file__).parents[1])}
    for step in range(60):
        command = [sys.executable, "-c", KILLED, str(store.root), argument, str(step)]
        child = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        assert child.returncode in (0, -signal.SIGKILL), child.stderr
        for version in store.versions():
            store.verify(version)
        assert store.marks().pinned in (frozenset(), {1})
        store.mark_bad(0, "somebody takes the lock")  # and so clears away what was left
        names = {path.name for path in store.root.iterdir() if not path.name.startswith("v")}
        assert names <= {".lock", "marks.json", ".marks.json"}
        if child.returncode == 0:
            break
    assert child.stdout == "done\n"
    if what == "remove":
        assert 1 not in store.versions()
    elif what == "pin":
        assert store.marks().pinned == {1}
    else:
        assert len(store.versions()) >= 4
    assert step >= 3
