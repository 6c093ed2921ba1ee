"""One real engine for the whole session, started by `tide up` on the embedded target; nothing on its path is mocked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engines import Appliance, plain_sglang, real_prompts
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from tide_cli.paths import Paths

PROMPTS = 24
PROMPT_TOKENS = 160  # most of the time is prefill; what is longer than the engine's chunks has a test of its own
TOKENS = 32


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def checkpoint(cache: Path) -> Path:
    """The embedded target, converted for this session."""
    # as the supervisor does it
    subprocess.run([sys.executable, "-m", "tide_cli.targets", "smollm2-135m", str(cache)], check=True)
    return Paths.under(cache / "unused", cache).embedded_target


@pytest.fixture(scope="session")
def tokenizer(checkpoint: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(checkpoint)


@pytest.fixture(scope="session")
def model(checkpoint: Path) -> PreTrainedModel:
    """The same checkpoint in transformers, fp32: the oracle."""
    import torch

    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def prompt_ids(tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Token ids of real chat prompts, each cut to its end."""
    return [
        tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"][
            -PROMPT_TOKENS:
        ]
        for messages in real_prompts(PROMPTS)
    ]


@pytest.fixture(scope="session")
def plain_outputs(checkpoint: Path, prompt_ids: list[list[int]], tmp_path_factory) -> list[list[int]]:
    """What plain SGLang says to the prompts, greedily; four at a time, because one at a time takes minutes."""
    with plain_sglang(checkpoint, tmp_path_factory.mktemp("plain") / "sglang.log") as engine:
        return [answer["output_ids"] for answer in engine.greedy(prompt_ids, TOKENS, 4, "plain")]


@pytest.fixture(scope="session")
def appliance(
    checkpoint: Path, cache: Path, plain_outputs: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Appliance]:
    """Engine and trainer, fp32; short cycles, none of which begins before test_loop.py lets it."""
    made = Appliance(tmp_path_factory.mktemp("appliance"), cache)
    made.tide(
        *("up", "--detach", "--wait", "--port", made.port, "--dtype", "float32", "--spool-size", "128MiB"),
        *("--cycle-tokens", 12000, "--cycle-seconds", 30),
        held_out_share=0.25,
    )
    made.tide("train", "pause")
    yield made
    made.tide("down", check=False)
