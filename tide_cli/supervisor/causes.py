"""Why a child died: from its log's end, exit code and name to words and a remedy. Pure.

What is not among the known causes is told in the child's own words (logs.last_words).
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from tide_cli.supervisor.known_causes import (
    ANYWHERE,
    AT_THE_END,
    HOOKS,
    MEMORY_REMEDY,
    OUT_OF_MEMORY,
    SHARED_MEMORY,
    Cause,
)
from tide_cli.supervisor.logs import last_lines, last_words, own_words


@dataclass(frozen=True)
class Ending:
    """words: one line of what, where known a second one of what to do; excerpt: the log's last lines, if they help.

    explained: the words are a known cause that the log tells; final: see Cause.
    """

    words: str
    excerpt: tuple[str, ...] = ()
    explained: bool = False
    final: bool = False


def explain(tail: str, code: int, child: str, oom: bool = False) -> Ending:
    """How to speak of a child's end.

    tail: from logs.read_tail; code: negative for a signal, as subprocess has it; oom: whether the kernel has killed
    anything for want of memory while the child ran.
    """
    excerpt = tuple(last_lines(tail))
    told = cause_in_log(tail, child)
    if told is None and own_words(tail):
        return Ending(last_words(tail))
    if told is None and (part := _KILLED_PART.search(tail)):
        if not oom:
            return Ending(f"its {part['early'] or part['late']} was killed from outside (SIGKILL)", excerpt)
        told = OUT_OF_MEMORY
    if cause := told or _cause_of_signal(tail, code, oom):
        words = f"{cause.what}\n{cause.remedy}"
        return Ending(words, () if cause.whole else excerpt, told is not None, cause.final)
    if code < 0 and not _FAILED.search(tail):
        # what it said last has nothing to do with it
        how = "crashed" if -code in _CRASHES else "was killed from outside"
        return Ending(f"it {how} ({signal_name(-code)})", excerpt)
    return Ending(last_words(tail), excerpt)


def cause_in_log(tail: str, child: str) -> Cause | None:
    """The cause that a child's log tells, None where it is not a known one or the child has explained itself."""
    for rule in HOOKS:
        if match := rule.last_match(tail):
            return rule.cause(match, child)
    if own_words(tail):
        return None
    found = [(rule, match) for rule in ANYWHERE if (match := rule.last_match(tail))]
    if found:  # the line that came last: an earlier trouble may have been overcome
        rule, match = max(found, key=lambda item: tail.rfind("\n", 0, item[1].start()))
        return rule.cause(match, child)
    end = last_words(tail)
    for rule in AT_THE_END:
        if match := rule.last_match(end):
            return rule.cause(match, child)
    return None


def _cause_of_signal(tail: str, code: int, oom: bool) -> Cause | None:
    # SGLang kills itself with the same signal when one of its processes has failed
    if oom and code == -signal.SIGKILL and not re.search(r"sigquit|kill_process_tree called", tail, re.IGNORECASE):
        return Cause("it was killed by the kernel for want of memory", MEMORY_REMEDY)
    return SHARED_MEMORY if code == -signal.SIGBUS else None


def signal_name(number: int) -> str:
    """'SIGSEGV'; a real-time signal has no name of its own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# signals that a program gets for a fault of its own
_CRASHES = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP}

# a part of SGLang that got SIGKILL: from the kernel for want of memory, or from anybody else
_KILLED_PART = re.compile(
    r"(?P<early>scheduler) died during initialization \(exit code: -9\)"
    r"|Subprocess (?P<late>[a-z]+)\S* \(pid=\d+\) crashed with exit code -9\."
)

# what SGLang says before it ends all of its processes because one has failed
_FAILED = re.compile(r"hit an exception|scheduler died during initialization", re.IGNORECASE)
