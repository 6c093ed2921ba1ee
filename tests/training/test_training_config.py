from __future__ import annotations

import json

import pytest

from tide_cli.errors import TideError
from tide_cli.training.config import TrainingConfig


def test_a_configuration_survives_json(config: TrainingConfig) -> None:
    assert TrainingConfig.from_json(config.to_json()) == config


def test_missing_and_unknown_keys_are_named(config: TrainingConfig) -> None:
    values = json.loads(config.to_json())
    del values["seed"]
    with pytest.raises(TideError, match="colour, seed"):
        TrainingConfig.from_json(json.dumps(values | {"colour": "red"}))
    with pytest.raises(TideError, match="cannot be read"):
        TrainingConfig.from_json("{")
    for wrong in ([1], "2\0", None):
        values = json.loads(config.to_json()) | {"threads": wrong}
        with pytest.raises(TideError) as refused:
            TrainingConfig.from_json(json.dumps(values))
        assert refused.value.why == "threads is not what it should be"
