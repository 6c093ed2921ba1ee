"""A prompt, and the split of many prompts into those that are measured and those that are traffic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """domain: what kind of request it is, in one word; messages: (role, text), the last one is the user's."""

    domain: str
    messages: tuple[tuple[str, str], ...]

    def openai(self) -> list[dict[str, str]]:
        """The `messages` of an OpenAI chat request."""
        return [{"role": role, "content": text} for role, text in self.messages]


@dataclass(frozen=True)
class Workload:
    """measured: never sent as traffic, so that no draft has been trained on them; traffic: without an end."""

    measured: tuple[Prompt, ...]
    traffic: Iterator[Prompt]
