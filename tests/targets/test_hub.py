"""First downloads, by the child that does them, from a hub on loopback."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hub_server import COMMIT, Hub, etag, serving

from tide_cli.errors import TideError
from tide_cli.paths import Paths
from tide_cli.supervisor.control_client import ask

TARGET, DRAFT = "some/target", "some/draft"
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "vocab_size": 32, "num_hidden_layers": 12}
DRAFT_CONFIG = {"hidden_size": 8, "vocab_size": 32, "draft_vocab_size": 12}
WEIGHTS = bytes(range(256)) * 4000  # 1 MB
INDEX = json.dumps({"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}).encode()


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": b"{}" * 1000,
        "model.safetensors.index.json": INDEX,
        "model-1-of-2.safetensors": WEIGHTS,
        "model-2-of-2.safetensors": WEIGHTS[::-1],
        "original/model.safetensors": b"the same once more" * 100,
        "README.md": b"no file of the model's",
    }
    with serving({TARGET: files, DRAFT: {"config.json": json.dumps(DRAFT_CONFIG).encode()}}) as hub:
        yield hub


class Fetching:
    """Starts the child in an environment of its own."""

    def __init__(self, hub: Hub, home: Path) -> None:
        self._home = home
        self._env = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0"}
        self._env.pop("HF_TOKEN", None)

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        return self._start("tide_cli.targets", *arguments, **env)

    def start_tide(self, *arguments: str) -> subprocess.Popen[str]:
        return self._start("tide_cli", *arguments)

    def _start(self, module: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=self._env | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, target: str = TARGET, *draft: str, **env: str) -> tuple[int, list[str], list[str]]:
        """Exit code, lines of stdout, lines of stderr that are meant for people."""
        with self.start(target, str(self._home / "cache"), *draft, **env) as child:
            out, err = child.communicate(timeout=60)
        ours = [line.removeprefix("tide: ") for line in err.splitlines() if line.startswith("tide: ")]
        return child.returncode, out.splitlines(), ours

    def blobs(self) -> Path:
        return self._home / "hub" / "models--some--target" / "blobs"


@pytest.fixture
def fetching(hub: Hub, tmp_path: Path) -> Fetching:
    return Fetching(hub, tmp_path / "home")


def test_every_file_of_the_model_and_no_other(hub: Hub, fetching: Fetching) -> None:
    code, out, err = fetching.run()
    assert (code, err) == (0, [])
    folder = Path(out[-1].removeprefix("folder "))
    assert folder.name == COMMIT
    wanted = set(hub.files[TARGET]) - {"original/model.safetensors", "README.md"}
    assert {path.name for path in folder.iterdir()} == wanted
    assert (folder / "model-2-of-2.safetensors").read_bytes() == WEIGHTS[::-1]
    ends = [line for line in out if line.startswith("say model-1-of-2.safetensors: 0.00 GiB of 0.00 GiB; together ")]
    assert ends
    assert "5 files" in out[0]


def test_what_is_here_is_used_without_asking(hub: Hub, fetching: Fetching) -> None:
    first = fetching.run()[1][-1]
    hub.asked.clear()
    assert fetching.run() == (0, [first], [])
    assert fetching.run(HF_HUB_OFFLINE="1") == (0, [first], [])
    assert hub.asked == []


def test_a_killed_download_is_taken_up_where_it_was(hub: Hub, fetching: Fetching, tmp_path: Path) -> None:
    large = hub.files[TARGET]["model-1-of-2.safetensors"] = WEIGHTS * 24
    hub.stall = 12 * 2**20  # the client hands on 10 MiB at a time
    with fetching.start(TARGET, str(tmp_path / "cache")) as child:
        partial = fetching.blobs() / f"{etag(large)}.incomplete"
        while not (partial.exists() and partial.stat().st_size):
            assert child.poll() is None
        child.kill()
    have = partial.stat().st_size
    assert 0 < have < len(large)
    hub.stall = None
    hub.goes_on.set()
    hub.asked.clear()
    code, out, err = fetching.run()
    assert (code, err) == (0, [])
    assert ("model-1-of-2.safetensors", f"bytes={have}-") in hub.fetched()
    assert (Path(out[-1].removeprefix("folder ")) / "model-1-of-2.safetensors").read_bytes() == large
    assert list(fetching.blobs().glob("*.incomplete")) == []


def test_a_file_that_came_damaged_is_not_kept(hub: Hub, fetching: Fetching) -> None:
    hub.damaged = True
    code, _, err = fetching.run()
    assert code == 1
    assert "came damaged: its SHA-256 is not the hub's" in err[0]
    hub.damaged = False
    assert fetching.run()[0] == 0


def test_a_disk_that_is_too_small_is_told_before_anything_is_fetched(hub: Hub, fetching: Fetching) -> None:
    hub.sizes["model-1-of-2.safetensors"] = 10**17
    code, _, err = fetching.run()
    assert code == 1
    assert err[0].startswith("some/target does not fit on the disk: 93132257.5 GiB are missing of it, ")
    assert "HF_HOME" in err[1]
    assert hub.fetched() == []


@pytest.mark.parametrize(
    ("token", "words"),
    [("", "its owner wants its licence accepted"), ("hf_made_up", "the account of your token has no access to it")],
)
def test_a_gated_model_says_what_to_accept(hub: Hub, fetching: Fetching, token: str, words: str) -> None:
    hub.gated.add(TARGET)
    code, _, err = fetching.run(**({"HF_TOKEN": token} if token else {}))
    assert code == 1
    assert err[0] == f"some/target is gated: {words}"
    assert err[1].startswith(f"accept it at {hub.url}/some/target")
    assert ("HF_TOKEN" in err[1]) is not token


def test_names_that_the_hub_does_not_know(fetching: Fetching) -> None:
    code, _, err = fetching.run("some/thing")
    assert code == 1
    assert err[0] == "the hub has no some/thing, or it is private"


def test_a_pinned_commit_that_is_gone(fetching: Fetching, hub: Hub) -> None:
    hub.files["Qwen/Qwen3-8B"] = hub.files[TARGET]
    code, _, err = fetching.run("qwen3-8b")
    assert code == 1
    assert err[0].startswith("Qwen/Qwen3-8B has no revision b968826d")
    assert "hf download Qwen/Qwen3-8B" in err[1]


@pytest.mark.parametrize("draft", [[], [DRAFT]])
def test_offline_without_the_files(hub: Hub, fetching: Fetching, draft: list[str]) -> None:
    code, _, err = fetching.run(TARGET, *draft, HF_HUB_OFFLINE="1")
    assert code == 1
    assert err[0] == "some/target is not complete in the local cache: HF_HUB_OFFLINE forbids to fetch it"
    assert hub.asked == []


def test_a_hub_out_of_reach(fetching: Fetching) -> None:
    code, _, err = fetching.run(HF_ENDPOINT="http://127.0.0.1:9")
    assert code == 1
    assert err[0].startswith("some/target cannot be fetched from http://127.0.0.1:9: ")


def test_a_draft_that_does_not_fit_is_found_before_the_target_is_fetched(hub: Hub, fetching: Fetching) -> None:
    hub.files[DRAFT]["config.json"] = json.dumps(DRAFT_CONFIG | {"hidden_size": 16}).encode()
    code, _, err = fetching.run(TARGET, DRAFT)
    assert code == 1
    assert err[0] == "the draft some/draft does not belong to some/target: its hidden_size is 16, the target's 8"
    assert {name for name, _ in hub.fetched()} == {"config.json"}
    hub.files[DRAFT]["config.json"] = json.dumps(DRAFT_CONFIG).encode()


def test_an_appliance_shows_how_far_its_download_is(hub: Hub, fetching: Fetching, tmp_path: Path) -> None:
    hub.files[TARGET]["model-1-of-2.safetensors"] = WEIGHTS * 24
    hub.stall = 12 * 2**20
    state = tmp_path / "state"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    where = ("--state-dir", str(state))
    up = fetching.start_tide("up", "--target", TARGET, *where, "--port", port, "--spool-size", "64MiB")
    try:
        phase = None
        while not phase or "together" not in phase["words"]:
            assert up.poll() is None, up.communicate()
            time.sleep(0.05)
            with suppress(TideError):  # not up yet
                phase = ask(Paths.under(state, state).socket, "GET", "/v1/status")["children"]["target"]["phase"]
        assert phase["name"] == "files"
        assert re.fullmatch(r"\S+: \S+ GiB of \S+ GiB; together \S+ GiB of \S+ GiB \(.*\)", phase["words"])
        shown = fetching.start_tide("ps", *where).communicate(timeout=60)[0]
        assert re.search(r"target .*STARTING .*: .* GiB of ", shown)
    finally:
        up.terminate()
        up.communicate(timeout=60)
