"""A workload of the user's own: one JSON object a line, with `messages` as in an OpenAI chat request.

`domain` is optional and only used to report on kinds of prompts apart. Other keys are ignored. Contents in parts are
joined as SGLang joins them. What a chat with tools is made of is refused: the prompt would be another without the
definitions of the tools and the calls.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tide_cli.errors import UsageError, reason
from tide_cli.printable import many
from tide_cli.regular_files import read_named
from tide_cli.workload.prompt import Prompt, Workload

_TAKES = "a workload is a JSONL file with OpenAI `messages`"
_WITH_TOOLS = "{} is of a chat with tools, which cannot be sent again"
_LARGEST = 2**30  # bytes
_ROLES = ("system", "developer", "user", "assistant")
_FEWEST = 8  # a quarter is kept for measuring, and one prompt alone would not say much


def file_workload(path: Path, seed: int, measured: int) -> Workload:
    """A quarter of the file's prompts, at most `measured`, is kept for measuring; the rest is sent over and over.

    Which ones, and in which order, is drawn with `seed`. Raises UsageError for an unusable file.
    """
    prompts = read_prompts(path)
    distinct = list(dict.fromkeys(prompts))
    if len(distinct) < _FEWEST:
        raise UsageError(
            f"{path} holds {many(len(distinct), 'different prompt')}",
            why="a quarter of them is kept for measuring",
            remedy=f"give at least {_FEWEST}",
        )
    random.Random(seed).shuffle(distinct)
    kept = min(measured, len(distinct) // 4)
    return Workload(tuple(distinct[:kept]), itertools.cycle(distinct[kept:]))


def read_prompts(path: Path) -> list[Prompt]:
    """Every prompt of a JSONL file; empty lines are skipped. Raises UsageError naming the line and what is wrong."""
    try:
        text = read_named(path, _LARGEST).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"cannot read the workload {path}", why=f"byte {error.start} is not UTF-8", remedy=_TAKES
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the workload {path}", why=reason(error), remedy=_TAKES) from None
    # not splitlines(): JSON strings may hold line separators other than \n
    prompts = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            prompts.append(_prompt(line))
        except ValueError as error:
            raise UsageError(
                f"{path}, line {number}",
                why=reason(error),
                remedy='a line looks like {"messages": [{"role": "user", "content": "Hello"}]}',
            ) from None
    if not prompts:
        raise UsageError(f"the workload {path} is empty", remedy="write one JSON object with `messages` a line")
    return prompts


def _prompt(line: str) -> Prompt:
    """Raises ValueError with the reason in words."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    if record.get("tools") or record.get("functions"):
        raise ValueError(_WITH_TOOLS.format("the line"))
    messages = record.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("`messages` is missing" if messages is None else "`messages` is not a list of messages")
    domain = record.get("domain", "file")
    if not isinstance(domain, str):
        raise ValueError("`domain` is not a text")
    read = tuple(_messages(messages))
    if read[-1][0] != "user":
        raise ValueError(f"the last message is from the {read[-1][0]}, not the user")
    return Prompt(domain, read)


def _messages(messages: list[Any]) -> Iterator[tuple[str, str]]:
    for index, message in enumerate(messages, start=1):
        if not isinstance(message, dict):
            raise ValueError(f"message {index} is not an object")
        role, content = message.get("role"), message.get("content")
        if role == "tool" or message.get("tool_calls"):
            raise ValueError(_WITH_TOOLS.format(f"message {index}"))
        if role not in _ROLES:
            raise ValueError(f"message {index} has the role {role!r}, not one of {', '.join(_ROLES)}")
        text = _joined(content, index) if isinstance(content, list) else content
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"message {index} has no text in `content`")
        yield role, text


def _joined(parts: list[Any], index: int) -> str:
    """The text of a content in parts. ValueError for a part that is none: the prompt would be another without it."""
    found = []
    for part in parts:
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, dict) else part
            raise ValueError(f"message {index} has a part {kind!r} in `content`, not a text")
        found.append(text)
    return " ".join(found)
