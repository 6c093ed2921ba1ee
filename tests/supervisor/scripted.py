"""An appliance whose engine and trainer are small scripts: `python scripted.py appliance FOLDER PORT [SETTING=VALUE…]`.

Everything of the supervisor is the real one: processes, signals, sockets, lock, journal, swap over HTTP. Only the two
programs it starts are replaced, and it looks at them more often. The engine takes its time over a stop when
FOLDER/stubborn exists, refuses every swap when FOLDER/refuse exists, gives no token while FOLDER/mute exists, ends at
once with the words in FOLDER/crash, and has FOLDER/metrics for its page of metrics. The supervisor's wall clock is off
by the seconds in FOLDER/clock.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from tide_cli.drafts.store import DraftStore
from tide_cli.settings import Settings

if TYPE_CHECKING:
    from tide_cli.supervisor.specs import Workshop

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "vocab_size": 32,
    "num_hidden_layers": 6,
    "max_position_embeddings": 64,
}

SPECULATION = {
    "adaptive": True, "max_running_requests": 4, "steps": 2, "reason": "it pays", "batch": 1, "speedup": 1.3,
    "acceptance": [0.5, 0.25], "probe_share": 0.01, "rounds": {"2": 9}, "measuring": False,
    "judged": [20, 10], "accepted": [10, 4], "drift": 0.0,
    "now": [{"batch": 1, "seconds": [0.05, 0.05625, 0.0625], "speedups": [1.0, 1.333, 1.3]}],
}  # fmt: skip
PROFILE = {
    "conditions": {"target": "tiny", "device": "script", "dtype": "float32", "sglang": "0"},
    "measured": 1.0,
    "kept": [],
    "file": "/somewhere/profiles/0123456789abcdef.json",
    "rounds": [
        {"batch": 1, "steps": 0, "seconds": 0.05, "verify": 0.04},
        {"batch": 1, "steps": 1, "seconds": 0.0625, "draft": 0.01, "verify": 0.04, "extend": 0.005},
    ],
}


METRICS = b'sglang:gen_throughput{model="tiny"} 12.5\nsglang:spec_accept_length{model="tiny"} 1.75\n'


def make_target(folder: Path) -> Path:
    """A checkpoint folder with a shape and no weights to speak of."""
    target = folder / "tiny"
    target.mkdir(exist_ok=True)
    (target / "config.json").write_text(json.dumps(TARGET))
    (target / "model.safetensors").write_bytes(bytes(8))
    return target


def publish(drafts: Path, parent: int | None, scratch: Path, target: str = "tiny") -> int:
    """A version whose contents nobody looks into."""
    scratch.mkdir(exist_ok=True)
    (scratch / "model.safetensors").write_bytes(b"weights")
    (scratch / "config.json").write_text("{}")
    return DraftStore(drafts).publish(
        scratch,
        parent=parent,
        target=target,
        target_revision="local",
        vocab_map_hash="0",
        samples=1,
        tokens=10,
        gate={"gain": 0.25},
    )


class Engine(BaseHTTPRequestHandler):
    """The part of SGLang's HTTP API that TIDE uses."""

    folder: Path
    version = 0
    prepared: int | None = None
    refusal: str | None = None
    profile: dict[str, object] | None = None
    requests = 0
    table: mmap.mmap | None = None

    def do_GET(self) -> None:
        if self.path == "/metrics":
            page = self.folder / "metrics"
            self._answer(page.read_bytes() if page.exists() else METRICS)
        else:
            state = {"draft_version": Engine.version, "refusal": Engine.refusal, "swap_seconds": 0.01}
            state["prepared"] = Engine.prepared
            state["speculation"] = SPECULATION | {"profile": Engine.profile}
            state["fill"] = 0.25
            self._answer(json.dumps({"internal_states": [{"tide": state}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/set_internal_state":
            Engine.refusal = "not today" if (self.folder / "refuse").exists() else None
            asked = body["server_args"]
            if Engine.refusal is None:
                Engine.version = asked.get("tide_draft", Engine.version)
                Engine.prepared = asked.get("tide_prepare", Engine.prepared)
            if asked.get("tide_profile") == 0:
                Engine.profile = PROFILE | {"requests": Engine.requests, "measured": float(Engine.requests)}
        Engine.requests += self.path == "/generate"
        while self.path == "/generate" and (self.folder / "mute").exists():
            time.sleep(0.05)
        self._answer(b'{"text": " a"}')

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        print(format % arguments, flush=True)


def engine(folder: str, port: str, version: str) -> None:
    """Serves, with one grandchild in a session of its own, as a scheduler process might be."""
    if (Path(folder) / "crash").exists():
        sys.exit((Path(folder) / "crash").read_text())
    Engine.folder, Engine.version = Path(folder), int(version)
    if (Path(folder) / "stubborn").exists():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    part = ["sglang::scheduler", "-c", "import time; time.sleep(600)"]
    subprocess.Popen(part, executable=sys.executable, start_new_session=True)
    # as SGLang does: mapped by a process that is killed, and never removed
    with Path(f"/dev/shm/sglang_loads_{port}_{os.getpid()}.shm").open("w+b") as table:
        table.truncate(mmap.PAGESIZE)
        Engine.table = mmap.mmap(table.fileno(), mmap.PAGESIZE)
    print(time.strftime("[%Y-%m-%d %H:%M:%S] Load weight begin. avail mem=1.00 GB"), flush=True)
    ThreadingHTTPServer(("127.0.0.1", int(port)), Engine).serve_forever()


def trainer(folder: str, events: str) -> None:
    """Publishes a new version in each cycle; while there is a file `hold`, a cycle lasts until a command ends it."""
    state = Path(folder) / "state"

    def tell(**event: object) -> None:
        os.write(int(events), json.dumps(event).encode() + b"\n")

    tell(event="ready", seconds=0.1)
    commands = iter(sys.stdin)
    for cycle, line in enumerate(commands, start=1):
        command = json.loads(line)
        if command["cmd"] == "stop":
            return
        tell(event="progress", cycle=cycle, step=1, loss=2.0, tokens_s=9.0, elapsed_s=1.0, budget_s=2.0, tokens=10)
        if (Path(folder) / "hold").exists():
            next(commands)
            tell(event="cycle_end", cycle=cycle, seconds=1.0, published=None, reason="cancelled")
            continue
        tell(event="gate", cycle=cycle, passed=True, reason="gains 0.25", lower_bound=0.1)
        version = publish(state / "drafts", command["served"], Path(folder) / "scratch")
        tell(event="published", cycle=cycle, version=version, parent=command["served"])
        tell(event="cycle_end", cycle=cycle, seconds=1.0, published=version, reason="done")


def appliance(folder: str, port: str, *chosen: str) -> int:
    """Runs until it is ended, and prints its events."""
    from tide_cli.supervisor.appliance import run_with_signals, running_appliance
    from tide_cli.supervisor.journal import event_line

    workshop = scripted_workshop(folder, port, *chosen)
    with running_appliance(workshop, lambda event: print(event_line(event), flush=True)) as supervisor:
        return run_with_signals(supervisor)


def up(folder: str, port: str, *chosen: str) -> int:
    """What `tide up` does in the foreground."""
    from tide_cli.cli.up import foreground

    return foreground(scripted_workshop(folder, port, *chosen))


def scripted_workshop(folder: str, port: str, *chosen: str) -> Workshop:
    """A workshop whose programs are the scripts in this file."""
    from tide_cli.supervisor import watchers
    from tide_cli.supervisor.appliance import check_settings
    from tide_cli.supervisor.init import stay_as_init
    from tide_cli.supervisor.messages import DRAFT, ENGINE
    from tide_cli.supervisor.process import ChildSpec
    from tide_cli.supervisor.specs import Workshop

    class ScriptedWorkshop(Workshop):
        def spec(self, child: str, served: int | None) -> ChildSpec:
            if child == DRAFT:
                return self._python(child, self._any_partition, [__file__, "first", folder])
            if child == ENGINE:
                return self._python(child, self.plan.serve, [__file__, "engine", folder, port, str(served)])
            return self._python(child, self._training_partition, [__file__, "trainer", folder], talks=True)

    watchers._LOOK_EVERY = 0.25
    stay_as_init()  # as `tide` does: nothing, except where it is process 1
    shift_clock(Path(folder) / "clock")
    settings = scripted_settings(Path(folder), int(port), **dict(pair.split("=") for pair in chosen))
    found = check_settings(settings)
    return ScriptedWorkshop(settings, found.plan, found.target)


def shift_clock(file: Path) -> None:
    """From now on this process's wall clock follows `file`; the monotonic one does not."""
    right = time.time

    def shifted() -> float:
        return right() + (float(file.read_text() or 0) if file.exists() else 0.0)

    time.time = shifted


def scripted_settings(folder: Path, port: int, **chosen: object) -> Settings:
    """Small and quick."""
    values = {
        "state_dir": folder / "state",
        "cache_dir": folder / "cache",
        "target": str(make_target(folder)),
        "port": port,
        "spool_size": 2**20,
        "cycle_tokens": 100,
        "restart_limit": 3,
        "stop_timeout": 3.0,
        "start_timeout": 60.0,
    }
    return Settings(**{**values, **chosen})


def first(folder: str) -> None:
    """The draft step."""
    publish(Path(folder) / "state" / "drafts", None, Path(folder) / "scratch")


if __name__ == "__main__":
    roles = {"appliance": appliance, "up": up, "engine": engine, "trainer": trainer, "first": first}
    sys.exit(roles[sys.argv[1]](*sys.argv[2:]))
