"""How a child is ended: asked, or, when it runs and does not work, killed. Pure: it changes the table, others act."""

from __future__ import annotations

from tide_cli.printable import many
from tide_cli.supervisor.causes import signal_name
from tide_cli.supervisor.lifecycle import Child, Limits, State
from tide_cli.supervisor.messages import ENGINE, TRAINER, Action, Exited, Kill, Note, Tell, Terminate


def end(child: Child, limits: Limits, now: float) -> list[Action]:
    """Ask a living child to end, and see to it that it does."""
    kindly = child.name == TRAINER and child.state is State.READY
    child.stopping(now, limits.stop_timeout)
    if kindly:  # in the middle of a step it saves its state first
        child.terminate_at = now + limits.stop_timeout / 4
        return [Tell({"cmd": "stop"})]
    return [Terminate(child.name)]


def stop_note(by: str, requests: int | None, limits: Limits) -> Note:
    """The end has begun: what it waits for, and how long. requests: that run or wait; None: not known."""
    waits = f"{many(requests, 'request')} under way, " if requests else ""
    text = f"stopping: {by}; {waits}{limits.stop_timeout:g} s at most, then what still runs is killed"
    return Note("stop", text, {"requests": requests, "stop_timeout": limits.stop_timeout})


def kill_note(child: Child, waited: float | None = None) -> Note:
    """It is killed: at once, with all others, or because it has not ended in the seconds `waited`."""
    cut = child.name == ENGINE and child.alive and child.ready_since is not None
    after = "; a request that was still under way is cut" if cut else ""
    if waited is None:
        return Note("stop", f"stopping at once{after}")
    return Note("killed", f"the {child.name} has not ended within {waited:g} s and is killed{after}")


def give_up(child: Child, reason: str, limits: Limits, now: float) -> list[Action]:
    """End a child that does not work: it is not asked to finish. Its exit counts as a failure."""
    child.reason = reason
    child.stopping(now, limits.stop_timeout)
    return [Note("broken", f"the {child.name} does not work: {reason}"), Kill(child.name)]


def judge_silence(engine: Child, silence: float, limits: Limits, now: float) -> list[Action]:
    """silence: seconds without a token of an engine that is up. A third of what ends it makes it DEGRADED."""
    if silence >= limits.hang_timeout:
        return give_up(engine, f"no token for {silence:.0f} s", limits, now)
    if silence >= limits.hang_timeout / 3:
        if engine.state is State.DEGRADED:
            return []
        engine.degraded(now, f"no token for {silence:.0f} s")
        return [Note("degraded", f"the engine has given no token for {silence:.0f} s")]
    if engine.state is State.DEGRADED:
        engine.recovered(now)
        return [Note("recovered", "the engine gives tokens again")]
    return []


def exit_words(message: Exited) -> str:
    """How a process ended: its last words, and its exit code or signal."""
    how = signal_name(-message.code) if message.code < 0 else f"exit code {message.code}"
    first, *rest = message.last_words.split("\n")
    if first.endswith(f"({how})"):
        return message.last_words
    return "\n".join([f"{first} ({how})" if first else how, *rest])


def times_words(child: Child) -> str:
    """' 3 times in a row'; nothing the first time."""
    return f" {child.failures} times in a row" if child.failures > 1 else ""
