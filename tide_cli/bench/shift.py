"""The traffic of a shift experiment: which requests, in which order, in which pieces to which arm. Pure."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tide_cli.bench.requests import Request
from tide_cli.errors import UsageError
from tide_cli.printable import many

MIXED = "mixed"
GENERAL = "general traffic"  # measured in the end, beside the domains
_FEWEST = 4  # prompts of a domain that are left for traffic


@dataclass(frozen=True)
class Phase:
    """A stretch of traffic of one kind. visit: how often this kind has come before in the same run."""

    name: str
    visit: int
    requests: tuple[Request, ...]


def hold_out(name: str, requests: Sequence[Request], count: int, seed: int) -> tuple[list[Request], list[Request]]:
    """(measured, traffic): `count` of distinct prompts that are never sent as traffic, and the rest; drawn with `seed`.

    Raises UsageError where too few are left for traffic.
    """
    if len(requests) < count + _FEWEST:
        raise UsageError(
            f"the domain {name} has {many(len(requests), 'different prompt')}",
            why=f"{count} are kept for measuring, and {_FEWEST} must be left for traffic",
            remedy="give it more, or choose a smaller --held-out",
        )
    drawn = random.Random(f"{seed}/{name}").sample(requests, len(requests))
    return drawn[:count], drawn[count:]


def never_measured(name: str, traffic: Sequence[Request], measured: Iterable[Request]) -> list[Request]:
    """`traffic` of a domain without the prompts that another one, or a second copy, has among its measured ones.

    Raises UsageError where too few are left.
    """
    kept_out = [request.messages for request in measured]
    left = [request for request in traffic if request.messages not in kept_out]
    if len(left) < _FEWEST:
        raise UsageError(
            f"the domain {name} has {many(len(left), 'prompt')} left for traffic",
            why=f"the others are measured, some of them in another domain; {_FEWEST} must be left",
            remedy="give it more, or choose a smaller --held-out",
        )
    return left


def make_phases(traffic: Mapping[str, Sequence[Request]], order: Sequence[str], size: int, mixed: int) -> list[Phase]:
    """One phase of `size` requests for each name in `order`, then `mixed` requests of all of them in turn.

    A domain that is visited again goes on with prompts it has not sent yet; when they are used up it begins anew.
    """
    sources = {name: itertools.cycle(traffic[name]) for name in dict.fromkeys(order)}
    visits: Counter[str] = Counter()
    phases = []
    for name in order:
        phases.append(Phase(name, visits[name], tuple(itertools.islice(sources[name], size))))
        visits[name] += 1
    if mixed:
        phases.append(Phase(MIXED, 0, interleave(list(sources.values()), mixed)))
    return phases


def interleave(sources: Sequence[Sequence[Request] | itertools.cycle[Request]], count: int) -> tuple[Request, ...]:
    """`count` requests, one of each source in turn, each source over and over."""
    endless = [itertools.cycle(source) if isinstance(source, Sequence) else source for source in sources]
    return tuple(next(source) for source, _ in zip(itertools.cycle(endless), range(count), strict=False))


def pieces(requests: Sequence[Request], size: int) -> list[tuple[Request, ...]]:
    """Consecutive pieces of `size`; the last one may be shorter."""
    return [tuple(requests[start : start + size]) for start in range(0, len(requests), size)]


def turns(arms: Sequence[str], number: int) -> list[str]:
    """Who comes first with piece `number`: forwards and backwards by turns (A B, B A, A B, …).

    A drift of the machine's speed that is steady over a few pieces falls on all alike.
    """
    return list(arms) if number % 2 == 0 else list(reversed(arms))
