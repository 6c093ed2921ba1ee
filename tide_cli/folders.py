"""Folders that are made for something which may fail."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def taken_back(folder: Path) -> Iterator[None]:
    """Where the block fails, `folder` and those parents of it that it has made go again, as far as they are empty."""
    absent = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    try:
        yield
    except BaseException:
        for place in absent:
            with suppress(OSError):  # not made, or there is something in it
                place.rmdir()
        raise
