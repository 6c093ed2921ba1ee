"""gpt-oss answers in several messages (harmony): what of them the trainer learns.

The channels `analysis` and `final` of the answer, and the special tokens between them, which the target samples and
the engine verifies like any other. Not the prompt: neither its messages nor the results of tools, and not what the
assistant said in earlier turns, which was captured when it was said. The mask by position does just that.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tide_cli.spool.samples import Sample, SampleInfo
from tide_cli.training.batches import collate
from tide_cli.training.eagle3_rows import GeneratedRowsEagle3

# o200k_harmony, the tokenizer of both gpt-oss
RETURN, CONSTRAIN, CHANNEL, START, END, MESSAGE, CALL = 200002, 200003, 200005, 200006, 200007, 200008, 200012
ASSISTANT, ANALYSIS, FINAL, COMMENTARY = 173781, 35644, 17196, 12606
SYSTEM, USER, TOOL = 17360, 1428, 78  # stand for the words of the other authors


def message(author: list[int], text: list[int], end: int = END) -> list[int]:
    return [START, *author, MESSAGE, *text, end]


OPENING = message([SYSTEM], [1, 2]) + message([USER], [3, 4, 5])
EARLIER = message([ASSISTANT, CHANNEL, FINAL], [6, 7]) + message([USER], [8])
CALLED = message([ASSISTANT, CHANNEL, COMMENTARY, TOOL, CONSTRAIN], [9, 10], CALL) + message([TOOL], [11, 12, 13])
PROMPTED = [START, ASSISTANT]  # the chat template's end
ANSWER = [CHANNEL, ANALYSIS, MESSAGE, 21, 22, END, START, ASSISTANT, CHANNEL, FINAL, MESSAGE, 23, 24, RETURN]
TO_A_TOOL = [CHANNEL, ANALYSIS, MESSAGE, 21, END, START, ASSISTANT, CHANNEL, COMMENTARY, TOOL, MESSAGE, 25, CALL]


def sample(prompt: list[int], answer: list[int], stored_from: int = 0) -> Sample:
    """As the engine stores it: the last token has no row, and the beginning may be missing."""
    ids = (prompt + answer)[stored_from:-1]
    info = SampleInfo(1, "run", 0, 0.0, len(ids), len(prompt), stored_from, 1, 0, "train", 0, ())
    mask = torch.from_numpy(np.arange(stored_from, stored_from + len(ids)) >= info.prompt_tokens)
    return Sample(info, torch.tensor(ids), mask, torch.zeros(len(ids), 6), torch.zeros(len(ids), 2))


def answered(ids: list[int]) -> list[int]:
    """Reads the messages: the tokens of the last turn, in whatever channel, behind the words that opened it."""
    turn = len(ids)
    for place in range(len(ids) - 1, -1, -1):
        if ids[place] == START:
            if ids[place + 1] != ASSISTANT:
                break
            turn = place + 2
            if place and ids[place - 1] == CALL:
                break
    return ids[turn:]


def learned(stored: Sample) -> list[int]:
    """The tokens that the draft is trained to propose: a row t that counts proposes token t + 2."""
    batch = collate([stored], 999, torch.float32)
    ids, attention = batch["input_ids"], batch["attention_mask"]
    draft = type("Draft", (), {"t2d": torch.ones(201_088, dtype=torch.bool)})()
    objective = type("Objective", (), {"draft_model": draft, "_teacher_head": lambda self, head: head})()
    shifted = torch.nn.functional.pad(ids[:, 1:], (0, 1))
    counts, *_ = GeneratedRowsEagle3._teacher(
        objective, shifted, attention, batch["loss_mask"][..., None], batch["target"], torch.zeros(3, 2)
    )
    return [int(ids[0, t + 2]) for t in counts[0].nonzero().flatten().tolist()]


@pytest.mark.parametrize("answer", [ANSWER, TO_A_TOOL])
@pytest.mark.parametrize("history", [OPENING, OPENING + EARLIER, OPENING + CALLED, OPENING + EARLIER + CALLED])
def test_the_answer_in_all_of_its_channels_and_nothing_else(history: list[int], answer: list[int]) -> None:
    prompt = history + PROMPTED
    assert answered(prompt + answer) == answer
    # the prompt's forward pass gives the first token, so no draft proposes it; the last one has no row of its own
    assert learned(sample(prompt, answer)) == answer[1:-1]


@pytest.mark.parametrize("missing", [3, len(OPENING) + 2])
def test_a_beginning_that_another_sample_holds_changes_nothing(missing: int) -> None:
    assert learned(sample(OPENING + PROMPTED, ANSWER, missing)) == ANSWER[1 if missing == 3 else 2 : -1]
