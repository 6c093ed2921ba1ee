"""What every test runs under: no hub, one thread, and on a machine without a GPU the CPU stand-ins for SGLang."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tide_cli.engine.launch import STAND_INS, cpu_environment

# a shell that runs the tests in the background has them ignore Ctrl-C, and every process they start as well
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
for name in [
    name
    for name in os.environ
    if name.startswith("TIDE_")
    and name not in ("TIDE_WORKLOADS", "TIDE_TEST_SAMPLES", "TIDE_TEST_ROUNDS", "TIDE_TEST_PICTURES")
]:
    del os.environ[name]  # the tests choose their own settings

# a slow example on a busy machine is no fault
settings.register_profile("tide", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tide")

if not Path("/dev/nvidia0").exists():
    # before anything imports SGLang in this process
    os.environ.update(cpu_environment())
    sys.path.insert(0, str(STAND_INS))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those of the real engine first where two processes share the work, for they take half of the time; else last."""
    shared = hasattr(config, "workerinput")
    items.sort(key=lambda item: (item.get_closest_marker("engine") is not None) != shared)


@pytest.hookimpl(optionalhook=True)  # absent under `-p no:xdist`
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling:
    """Two processes share the files of tests, in their order; the tests of the one real engine stay in one process."""

    class EngineInOne(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "e2e" if nodeid.startswith("tests/e2e/") else super()._split_scope(nodeid)

    config.option.loadscopereorder = False
    return EngineInOne(config, log)


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever a test or a child process writes to a home folder lands in the temporary one."""
    home = tmp_path_factory.mktemp("home")
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        os.environ[name] = str(home)
