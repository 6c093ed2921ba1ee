"""Fixtures of the training tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny_target import Target, make_target, tiny_config
from worker_process import Worker

from tide_cli.training.config import TrainingConfig
from tide_cli.training.day_zero import publish_day_zero


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return make_target(tmp_path_factory.mktemp("target"))


@pytest.fixture
def config(target: Target, tmp_path: Path) -> TrainingConfig:
    return tiny_config(target, tmp_path)


@pytest.fixture
def day_zero(config: TrainingConfig) -> Path:
    """The folder of a published v0000."""
    assert publish_day_zero(config) == 0
    return config.drafts / "v0000"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[TrainingConfig], Worker]]:
    workers: list[Worker] = []

    def start_worker(config: TrainingConfig) -> Worker:
        workers.append(Worker(config, tmp_path))
        return workers[-1]

    yield start_worker
    for worker in workers:
        worker.close()
