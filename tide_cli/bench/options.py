"""What a part's bench was asked for, as its report says it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from tide_cli.bench.engines import settings_in_force

# each bench says itself what these are
_OF_THE_BENCH = ("speculation", "capture", "training", "max_running_requests")


def options_of(bench: Any, **more: Any) -> dict[str, Any]:
    """{settings: those in force for its engines, TIDE_* and the settings file included; the other fields of the bench;
    of its requests their number, the longest answer and a digest; more}, as JSON has them. Raises UsageError.

    bench: a dataclass with `settings`, and with `requests` where it sends some.
    """
    values = {field.name: getattr(bench, field.name) for field in fields(bench)}
    settings = settings_in_force(values.pop("settings"), without=_OF_THE_BENCH)
    if "requests" in values:
        sent = [asdict(request) for request in values["requests"]]
        digest = hashlib.sha256(json.dumps(sent).encode()).hexdigest()
        longest = max(one["max_tokens"] for one in sent)
        values |= {"requests": len(sent), "max_tokens": longest, "prompts_sha256": digest}
    found = {name: str(value) if isinstance(value, Path) else value for name, value in (values | more).items()}
    return found | {"settings": settings}
