"""A matrix as it is measured, on stub engines; and as a process that is interrupted, on real ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded import plan
from stub_engine import StubEngine

from tide_cli.bench import matrix_run
from tide_cli.bench.interrupts import Interrupts
from tide_cli.bench.matrix import Load
from tide_cli.bench.results import Results
from tide_cli.cli import main
from tide_cli.errors import TideError
from tide_cli.settings import Settings


class StubAppliance:
    """What the bench asks of an appliance, in front of a stub engine."""

    def __init__(self, settings: Settings, engine: StubEngine) -> None:
        self.settings, self.stub = settings, engine
        self.url, self.model = engine.url, "m"
        self.engine = SimpleNamespace(speculation=lambda: None)

    def wait_until_ready(self) -> None: ...

    def flush_cache(self) -> None:
        self.stub.flushes += 1

    def metrics(self) -> dict[str, float]:
        return {"sglang:token_usage": 0.25}

    def memory(self) -> int:
        return 1


class Machine:
    """started: the modes of the engines in the order of their starts; standing: those that have not been ended."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.standing: dict[str, StubAppliance] = {}
        self.chats: dict[str, int] = {}
        self.device = "cpu"
        self.most_standing = 0
        self.failing: str | None = None
        self.refusing: tuple[str, ...] = ()

    @contextmanager
    def running(self, settings: Settings, interrupts: Interrupts) -> Iterator[StubAppliance]:
        mode = settings.paths.state.name
        engine = StubEngine(script)
        if mode in self.refusing:
            engine.refusal = 500, "no memory"
        appliance = StubAppliance(settings, engine)
        if mode == self.failing:
            appliance.wait_until_ready = self._fail  # type: ignore[method-assign]
        self.started.append(mode)
        self.standing[mode] = appliance
        self.most_standing = max(self.most_standing, len(self.standing))
        try:
            yield appliance
        finally:
            del self.standing[mode]
            self.chats[mode] = self.chats.get(mode, 0) + len(engine.chats)
            engine.close()

    def _fail(self) -> None:
        raise TideError("no memory", remedy="`tide logs engine`")


def script(request: dict[str, Any]) -> dict[str, Any]:
    return {"chunks": [1, 2], "gap": 0.001, "steps": 2, "histogram": [0, 2]}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(matrix_run, "running", made.running)
    serve = SimpleNamespace(serve=made)
    monkeypatch.setattr(matrix_run, "check_settings", lambda settings: SimpleNamespace(plan=serve))
    return made


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    folder = tmp_path / "workload"
    folder.mkdir()
    for domain in ("code", "sql"):
        lines = [json.dumps({"messages": [{"role": "user", "content": f"{domain} {i}"}]}) for i in range(4)]
        (folder / f"{domain}.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`tide bench matrix …` in this process, with everything it keeps in a temporary folder."""
    monkeypatch.setenv("TIDE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TIDE_STATE_DIR", str(tmp_path / "state"))

    def run(*arguments: object) -> int:
        with pytest.raises(SystemExit) as end:
            main(["bench", "matrix", *map(str, arguments)])
        return int(end.value.code or 0)

    return run


def small(workload: Path, *more: object) -> list[object]:
    return ["--workload", workload, "--requests", 4, "--rounds", 2, "--modes", "plain,static", *more]


def test_engines_that_run_together_all_stand_before_the_first_pass(
    matrix: Callable[..., int], machine: Machine, workload: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert matrix(*small(workload)) == 0
    told = capsys.readouterr().err.splitlines()
    starts, passes = ([i for i, line in enumerate(told) if words in line] for words in ("starting", "round "))
    assert (len(starts), len(passes)) == (2, 8)
    assert max(starts) < min(passes)


def test_every_pass_is_measured_and_nothing_is_left(
    matrix: Callable[..., int], machine: Machine, workload: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    assert matrix(*small(workload, "--json", "--html", page)) == 0
    found = json.loads(capsys.readouterr().out)["matrix"]
    assert [(cell["mode"], cell["concurrency"], cell["requests"]) for cell in found["cells"]] == [
        ("plain", 1, 8),
        ("static", 1, 8),
        ("plain", 4, 8),
        ("static", 4, 8),
    ]
    assert found["domains"] == ["code", "sql"]
    assert {entry["same_text"] for entry in found["ratios"]} == {1.0}
    assert machine.started == ["plain", "static"]
    assert machine.most_standing == 2
    assert machine.standing == {}
    assert machine.chats == {"plain": 4 + 4 * 4, "static": 4 + 4 * 4}  # to warm up, and four passes of four
    assert list((tmp_path / "cache" / "bench").iterdir()) == []
    written = page.read_text()
    for cell in found["cells"]:
        assert f"concurrency {cell['concurrency']}" in written
        assert f"{cell['output_tok_s']:,.1f}" in written


def test_a_page_is_tried_before_anything_starts(
    matrix: Callable[..., int], machine: Machine, workload: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert matrix(*small(workload, "--html", tmp_path / "absent" / "report.html")) == 2
    assert "cannot write" in capsys.readouterr().err
    assert machine.started == []
    assert matrix("--workload", tmp_path / "absent", "--html", tmp_path / "new.html") == 2
    assert "a workload is a JSONL file" in capsys.readouterr().err
    assert not (tmp_path / "new.html").exists()


def test_a_page_that_is_lost_costs_no_figures(
    matrix: Callable[..., int], machine: Machine, workload: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert matrix(*small(workload, "--json", "--html", "/dev/full")) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["matrix"]["cells"]
    (kept,) = (tmp_path / "cache" / "bench").iterdir()
    assert f"every pass is kept: `tide bench matrix --resume {kept} --html FILE`" in said.err
    elsewhere = shutil.copy(kept, tmp_path / "kept.jsonl")
    assert matrix("--resume", kept, "--html", tmp_path / "report.html") == 0
    assert (tmp_path / "report.html").exists()
    assert not kept.exists()  # nobody has asked for it
    assert matrix("--resume", elsewhere) == 0
    assert Path(elsewhere).exists()


def test_measurements_of_one_second_are_kept_apart(
    matrix: Callable[..., int], machine: Machine, workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tide_cli.cli.bench_matrix.time", SimpleNamespace(strftime=lambda form: "now"))
    other = tmp_path / "cache" / "bench" / "matrix-now.jsonl"
    for name in (other, other.with_name(f"matrix-now-{os.getpid() + 1}.jsonl")):
        name.parent.mkdir(parents=True, exist_ok=True)
        name.touch()
    assert matrix(*small(workload, "--concurrency", 2)) == 0
    assert len(list(other.parent.iterdir())) == 2


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_output_that_is_lost_costs_no_figures(
    how: list[str],
    matrix: Callable[..., int],
    machine: Machine,
    workload: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patched:
        full = Path("/dev/full").open("w")  # noqa: SIM115  the command takes its buffer over
        for name in ("stdout", "__stdout__"):
            patched.setattr(sys, name, full)
        assert matrix(*small(workload, "--concurrency", 2, *how)) == 1
        sys.stdout.close()
    (kept,) = (tmp_path / "cache" / "bench").iterdir()
    assert f"every pass is kept: `tide bench matrix --resume {kept}` shows them" in capsys.readouterr().err
    assert matrix("--resume", kept) == 0


def test_a_file_that_another_process_measures_into_is_left_alone(
    matrix: Callable[..., int], machine: Machine, workload: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.jsonl"
    machine.failing = "plain"
    assert matrix(*small(workload, "--results", kept)) == 1
    started = list(machine.started)
    with Results.resume(kept, "matrix"):
        assert matrix("--resume", kept) == 2
    assert f"another process measures into {kept}" in capsys.readouterr().err
    assert machine.started == started


def test_engines_on_gpus_stand_one_at_a_time(
    matrix: Callable[..., int], machine: Machine, workload: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.device = "cuda"
    assert matrix(*small(workload, "--rate", "50,100")) == 0
    assert machine.started == ["plain", "static", "plain"]  # the last one of a round stays for the next
    assert machine.most_standing == 1
    assert "100 requests/s, 4 requests in each of 2 rounds" in capsys.readouterr().out


def test_an_interrupted_matrix_goes_on_where_it_was(
    matrix: Callable[..., int],
    machine: Machine,
    workload: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = tmp_path / "kept.jsonl"
    measure, passes = matrix_run._measure, []

    def interrupted(*arguments: Any) -> Any:
        passes.append(arguments)
        if len(passes) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return measure(*arguments)

    monkeypatch.setattr(matrix_run, "_measure", interrupted)
    assert matrix(*small(workload, "--results", kept)) == 130
    assert machine.standing == {}
    errors = capsys.readouterr().err
    assert (
        f"interrupted: no engine is left behind, and 2 of 8 passes are kept\n      `tide bench matrix --resume {kept}`"
        in errors
    )
    begun = kept.read_text()

    assert matrix("--resume", kept, "--json") == 0
    assert len(passes) == 3 + 6
    assert kept.read_text().startswith(begun)
    found = json.loads(capsys.readouterr().out)["matrix"]
    assert [cell["requests"] for cell in found["cells"]] == [8] * 4

    assert matrix("--resume", kept) == 0  # shows it once more, and measures nothing
    assert len(passes) == 9
    (workload / "sql.jsonl").write_text('{"messages": [{"role": "user", "content": "other"}]}')
    assert matrix("--resume", kept) == 2
    assert "has changed since the measurement began" in capsys.readouterr().err


def test_a_busy_machine_is_said_before_engines_start_and_after_refusals(
    matrix: Callable[..., int],
    machine: Machine,
    workload: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tide_cli.bench.report.busy_warning", lambda environment: "it is busy")
    assert matrix(*small(workload)) == 0
    first, second, *rest = capsys.readouterr().err.splitlines()
    assert (first, second) == ("tide: it is busy", "tide: starting the engine for plain")
    assert "tide: it is busy" not in rest
    monkeypatch.setenv("TIDE_DTYPE", "float8")
    assert matrix(*small(workload)) == 2
    assert "it is busy" not in capsys.readouterr().err


def test_an_engine_that_does_not_start_ends_the_others(
    matrix: Callable[..., int], machine: Machine, workload: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.failing = "static"
    assert matrix(*small(workload)) == 1
    errors = capsys.readouterr().err
    assert "the engine for static does not start: no memory" in errors
    assert "tide logs" not in errors
    assert machine.standing == {}


def test_a_file_of_results_outlives_a_start_that_fails(
    matrix: Callable[..., int], machine: Machine, workload: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.jsonl"
    machine.failing = "plain"
    assert matrix(*small(workload, "--results", kept)) == 1
    begun = kept.read_text()
    assert matrix("--resume", kept) == 1
    assert kept.read_text() == begun
    machine.failing = None
    assert matrix("--resume", kept) == 0


@pytest.mark.parametrize(
    ("line", "change", "words"),
    [
        (0, lambda head: head.pop("plan"), "plan is missing"),
        (0, lambda head: head.pop("environment"), "environment is missing"),
        (0, lambda head: head["environment"].update(load=None), "contents are not what they should be"),
        (0, lambda head: head["plan"].pop("loads"), "loads is missing"),
        (0, lambda head: head["plan"].update(rounds=[3]), "rounds is not what it should be"),
        (0, lambda head: head["plan"].update(rounds=10**12), "rounds is not what it should be"),
        (0, lambda head: head["plan"].update(workload=None), "workload is not what it should be"),
        (0, lambda head: head["plan"]["workload"].pop("sha256"), "sha256 is missing"),
        (0, lambda head: head["plan"].update(loads=[{"concurrency": 5000}]), "loads.0 is not what it should be"),
        (0, lambda head: head["plan"].update(loads=[{"concurrency": 0}]), "loads.0 is not what it should be"),
        (0, lambda head: head["plan"].pop("settings"), "settings is missing"),
        (0, lambda head: head["plan"]["settings"].pop("static"), "settings is not what it should be"),
        (0, lambda head: head["plan"].update(loads=[{}]), "loads.0 is not what it should be"),
        (1, lambda one: one.pop("answers"), "line 2: answers is missing"),
        (1, lambda one: one.update(answers=[]), "line 2: 0 answers to 4 requests"),
        (1, lambda one: one["answers"][0].update(times="x"), "line 2: answers.0"),
        (1, lambda one: one.update(observed={"memory": "x"}), "line 2: figures.memory"),
        (1, lambda one: one.update(mode="fast"), "the pass of fast at concurrency 1 in round 1 is no part of its plan"),
        (1, lambda one: one.update(round=1), "the pass of plain at concurrency 1 in round 2 stands in it twice"),
    ],
)
def test_a_damaged_file_of_results_starts_nothing(
    line: int,
    change: Callable[[dict[str, Any]], object],
    words: str,
    matrix: Callable[..., int],
    machine: Machine,
    workload: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = tmp_path / "kept.jsonl"
    assert matrix(*small(workload, "--results", kept)) == 0
    started = list(machine.started)
    lines = [json.loads(one) for one in kept.read_text().splitlines()]
    change(lines[line])
    kept.write_text("".join(json.dumps(one) + "\n" for one in lines))
    capsys.readouterr()
    assert matrix("--resume", kept) == 2
    first, *_ = capsys.readouterr().err.splitlines()
    assert f"{kept} cannot be gone on with" in first
    assert words in first
    assert machine.started == started


def test_what_goes_on_with_another_draft_or_machine(
    matrix: Callable[..., int],
    machine: Machine,
    workload: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another draft is refused unless all is measured; another machine is told."""
    kept, draft = tmp_path / "kept.jsonl", tmp_path / "draft"
    draft.mkdir()
    (draft / "model.safetensors").write_text("weights")
    assert matrix(*small(workload, "--static", draft, "--results", kept)) == 0
    whole, started = kept.read_text(), list(machine.started)
    (draft / "model.safetensors").write_text("others")
    assert matrix("--resume", kept) == 0
    head, *passes = whole.splitlines()
    kept.write_text("\n".join([head, *passes[:-1], ""]))
    assert matrix("--resume", kept) == 2
    assert f"the draft of static, {draft}, is not there any more or was changed" in capsys.readouterr().err
    assert machine.started == started
    (draft / "model.safetensors").write_text("weights")
    began = json.loads(head)
    began["environment"]["cpu"] = "another one"
    kept.write_text("\n".join([json.dumps(began), *passes[:-1], ""]))
    assert matrix("--resume", kept) == 0
    assert "begun under other conditions: processor: another one before" in capsys.readouterr().err


def test_a_guard_that_is_not_met_names_its_cell(
    matrix: Callable[..., int], machine: Machine, workload: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert matrix(*small(workload, "--concurrency", 2, "--guard", "al>=2.5", "--guard", "errors<=0")) == 1
    errors = capsys.readouterr().err.splitlines()
    assert [line for line in errors if "is not met" in line] == [
        "tide: al>=2.5 is not met by static at concurrency 2: 1.5"
    ]


def test_other_settings_are_not_mixed_into_a_measurement(
    matrix: Callable[..., int],
    machine: Machine,
    workload: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = tmp_path / "kept.jsonl"
    monkeypatch.setenv("TIDE_DRAFT_STEPS", "2")
    assert matrix(*small(workload, "--concurrency", 2, "--results", kept)) == 0
    head, *passes = kept.read_text().splitlines()
    settings = json.loads(head)["plan"]["settings"]
    assert {mode: (one["draft_steps"], one["speculation"]) for mode, one in settings.items()} == {
        "plain": (2, "off"),
        "static": (2, "on"),
    }
    kept.write_text("\n".join([head, *passes[:-1], ""]))
    monkeypatch.setenv("TIDE_DRAFT_STEPS", "1")
    started = list(machine.started)
    assert matrix("--resume", kept) == 2
    assert "draft_steps of" in (errors := capsys.readouterr().err)
    assert "was 2 and is 1" in errors
    assert machine.started == started
    monkeypatch.setenv("TIDE_DRAFT_STEPS", "2")
    assert matrix("--resume", kept) == 0


@pytest.mark.parametrize("refused", [("static",), ("plain", "static")])
def test_a_mode_without_any_answer_is_a_failure_with_its_reason(
    refused: tuple[str, ...],
    matrix: Callable[..., int],
    machine: Machine,
    workload: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine.refusing = refused
    page = tmp_path / "report.html"
    assert matrix(*small(workload, "--concurrency", 2, "--html", page)) == 1
    errors = capsys.readouterr().err
    for mode in refused:
        words = f"{mode} at concurrency 2: 8 of 8 requests failed: refused (500): no memory"
        assert f"tide: {words}" in errors.splitlines()
        assert words in page.read_text()
    assert "Only one mode" not in page.read_text()


def test_modes_differ_as_they_say(
    machine: Machine, workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setenv("TIDE_DRAFT", "someone/else")
    asked = plan("plain", "static", "adapted", "policy")
    asked.drafts["adapted"] = asked.drafts["policy"] = {"draft": "/drafts/v0003", "sha256": None}
    made = {mode: matrix_run.mode_settings(tmp_path, mode, asked, None) for mode in asked.modes}
    assert {mode: (one.speculation, one.draft, one.capture) for mode, one in made.items()} == {
        "plain": ("off", None, False),
        "static": ("on", "/drafts/v0000", False),
        "adapted": ("on", "/drafts/v0003", True),
        "policy": ("auto", "/drafts/v0003", True),
    }
    assert not any(one.training for one in made.values())
    assert len({one.paths.state for one in made.values()}) == 4
    assert matrix_run.mode_settings(tmp_path, "plain", plan("plain"), None).max_running_requests == 8
    many = plan("plain")
    object.__setattr__(many, "loads", (Load(concurrency=32),))
    assert matrix_run.mode_settings(tmp_path, "plain", many, None).max_running_requests == 32


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--workload is missing"),
        (["--workload", "absent"], "cannot read the workload"),
        (["--workload", "W", "--domains", "law"], "has no law.jsonl"),
        (["--workload", "W", "--modes", "fast"], "there is no mode 'fast'"),
        (["--workload", "W", "--modes", "plain,plain"], "is not a list of names"),
        (["--workload", "W", "--modes", "adapted"], "there is no adapted draft to measure as adapted"),
        (["--workload", "W", "--adapted", "v0003"], "there is no draft v0003"),
        (["--workload", "W", "--concurrency", "0"], "is not a list of whole numbers from 1 to 4096"),
        (["--workload", "W", "--concurrency", "1,1"], "is not a list of whole numbers from 1 to 4096"),
        (["--workload", "W", "--concurrency", "1,5000"], "is not a list of whole numbers from 1 to 4096"),
        (["--workload", "W", "--rate", "inf"], "is not a list of numbers from 0.001 on"),
        (["--workload", "W", "--rate", "1e-300"], "is not a list of numbers from 0.001 on"),
        (["--workload", "W", "--rate", "1", "--concurrency", "1"], "exclude each other"),
        (["--workload", "W", "--guard", "fast"], "is not a guard"),
        (["--workload", "W", "--guard", "adapted:tok_s>=1x"], "adapted is not measured"),
        (["--workload", "W", "--target", "nothing"], "unknown target"),
        (["--workload", "W", "--requests", "1"], "--requests"),
        (["--workload", "MANY", "--requests", "4"], "--requests 4 leaves out some of 6 domains"),
        (["--workload", "/dev/zero"], "cannot read the workload /dev/zero"),
        (["--resume", "absent.jsonl"], "cannot read absent.jsonl"),
        (["--resume", "W", "--modes", "plain"], "--modes has no effect with --resume"),
        (["--resume", "W", "--rounds", "3"], "--rounds has no effect with --resume"),
        (["--resume", "W", "--seed", "1"], "--seed has no effect with --resume"),
        (["--resume", "W", "--temperature", "1"], "--temperature has no effect with --resume"),
    ],
)
def test_bad_usage_starts_nothing(
    arguments: list[str],
    words: str,
    matrix: Callable[..., int],
    machine: Machine,
    workload: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    several = tmp_path / "many"
    shutil.copytree(workload, several)
    for name in "abcd":
        shutil.copy(workload / "sql.jsonl", several / f"{name}.jsonl")
    folders = {"W": str(workload), "MANY": str(several)}
    assert matrix(*[folders.get(one, one) for one in arguments]) in (1, 2)
    errors = capsys.readouterr().err
    assert words in errors
    assert len(errors.splitlines()) <= 3
    assert machine.started == []
    assert not (tmp_path / "cache").exists()


def test_an_interruption_ends_real_engines(workload: Path, tmp_path: Path) -> None:
    """While the first engine is starting; what it wrote and every process of it is gone then."""
    # not below tmp_path, which is too long for the name of a socket where tests run in two processes
    temporary = Path(tempfile.mkdtemp(prefix="tide-test-"))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDE_")}
    mark = f"STARTED_BY_TEST={tmp_path}"
    process = subprocess.Popen(
        [sys.executable, "-m", "tide_cli", "bench", "matrix", "--workload", str(workload)],
        env=inherited
        | {
            "TMPDIR": str(temporary),
            "TIDE_CACHE_DIR": str(tmp_path / "cache"),
            "TIDE_STATE_DIR": str(tmp_path / "state"),
            "STARTED_BY_TEST": str(tmp_path),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert any("starting the engine for plain" in line for line in process.stderr)
        # the supervisor is up; os.walk, as folders come and go meanwhile
        while not any("control.sock" in names for _, _, names in os.walk(temporary)):
            assert process.poll() is None, process.stderr.read()
        assert len(_marked(mark)) > 1
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 130
        assert "Traceback" not in errors
        assert _marked(mark) == []
        assert list(temporary.iterdir()) == []
        assert list((tmp_path / "cache" / "bench").iterdir()) == []  # nothing was measured, nothing is kept
    finally:
        process.kill()
        process.wait()
        for pid in _marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(temporary, ignore_errors=True)


def _marked(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
