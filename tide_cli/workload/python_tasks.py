"""Small Python functions to be written, each with an example whose result is computed here and therefore right."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

_Step = tuple[str, Callable[[Any], Any]]


def python_task(rng: random.Random) -> str:
    """One prompt: what the function takes and returns, its name, and an example."""
    described, name, argument, result = (_numbers if rng.random() < 0.5 else _words)(rng)
    return f"Write a Python function {name} that {described}.\n\nExample: {name}({argument!r}) == {result!r}"


def _numbers(rng: random.Random) -> tuple[str, str, list[int], Any]:
    n = rng.randint(2, 12)
    limit = rng.randint(-40, 160)
    keep = rng.choice(
        (
            (f"divisible by {n}", lambda x: x % n == 0),
            (f"greater than {limit}", lambda x: x > limit),
            (f"smaller than {limit}", lambda x: x < limit),
            ("even", lambda x: x % 2 == 0),
            ("odd", lambda x: x % 2 == 1),
            ("negative", lambda x: x < 0),
            (f"whose last digit is {n % 10}", lambda x: abs(x) % 10 == n % 10),
        )
    )
    change = rng.choice(
        (
            ("squares them", lambda x: x * x),
            (f"multiplies each by {n}", lambda x: x * n),
            (f"adds {limit} to each", lambda x: x + limit),
            ("takes their absolute values", abs),
            (f"takes each modulo {n}", lambda x: x % n),
            ("changes the sign of each", lambda x: -x),
        )
    )
    end = rng.choice(
        (
            ("their sum", sum),
            ("how many different ones there are", lambda xs: len(set(xs))),
            ("them as a sorted list", sorted),
            ("them in reverse order", lambda xs: xs[::-1]),
            (f"the first {n} of them", lambda xs: xs[:n]),
            ("the largest of them, or None if there are none", lambda xs: max(xs, default=None)),
            ("a dictionary that counts each of them", lambda xs: {x: xs.count(x) for x in xs}),
        )
    )
    argument = [rng.randint(-99, 199) for _ in range(rng.randint(4, 8))]
    result = end[1]([change[1](x) for x in argument if keep[1](x)])
    name = f"{rng.choice(('select', 'filter', 'collect', 'process', 'combine'))}_{rng.choice(_NOUNS)}"
    return f"takes a list of integers, keeps those {keep[0]}, {change[0]}, and returns {end[0]}", name, argument, result


def _words(rng: random.Random) -> tuple[str, str, str, Any]:
    words = [rng.choice(_WORDS) for _ in range(rng.randint(4, 8))]
    one = rng.choice(words)
    letter, n, mark = rng.choice(one), rng.randint(2, 7), rng.choice("-_*#+/.")
    keep = rng.choice(
        (
            (f"that contain the letter {letter!r}", lambda w: letter in w),
            (f"that start with {one[0]!r}", lambda w: w.startswith(one[0])),
            (f"that end with {one[-1]!r}", lambda w: w.endswith(one[-1])),
            (f"longer than {n} letters", lambda w: len(w) > n),
            (f"of at most {n} letters", lambda w: len(w) <= n),
            (f"without the letter {letter!r}", lambda w: letter not in w),
        )
    )
    change = rng.choice(
        (
            ("puts them in capitals", str.upper),
            ("reverses each of them", lambda w: w[::-1]),
            (f"cuts each to its first {n} letters", lambda w: w[:n]),
            ("removes the vowels from each", lambda w: "".join(c for c in w if c not in "aeiou")),
            (f"replaces {letter!r} by {mark!r} in each", lambda w: w.replace(letter, mark)),
        )
    )
    end: _Step = rng.choice(
        (
            (f"them joined by {mark!r}", lambda ws: mark.join(ws)),
            ("how many letters they have together", lambda ws: sum(map(len, ws))),
            ("a dictionary from each of them to its length", lambda ws: {w: len(w) for w in ws}),
            ("them sorted from Z to A", lambda ws: sorted(ws, reverse=True)),
            ("the longest of them, or an empty string", lambda ws: max(ws, key=len, default="")),
        )
    )
    result = end[1]([change[1](w) for w in words if keep[1](w)])
    name = f"{rng.choice(('pick', 'rewrite', 'scan', 'convert', 'arrange'))}_{rng.choice(_TEXTS)}"
    return f"takes a text, keeps the words {keep[0]}, {change[0]}, and returns {end[0]}", name, " ".join(words), result


_NOUNS = ("numbers", "values", "readings", "scores", "prices", "counts", "samples", "weights", "ages", "levels")
_TEXTS = ("words", "names", "tokens", "labels", "titles", "lines", "tags", "terms", "keys", "notes")
_WORDS = (
    "river", "stone", "lantern", "paper", "copper", "garden", "window", "silver", "market", "orange", "bridge",
    "candle", "forest", "harbor", "island", "jacket", "kettle", "ladder", "mirror", "needle", "oyster", "pencil",
    "rabbit", "saddle", "tunnel", "violin", "walnut", "anchor", "basket", "cotton", "desert", "engine", "feather",
    "ginger", "hammer", "iron", "jungle", "kitten", "lemon", "marble", "nectar", "onion", "pepper", "quiver",
    "ribbon", "spoon", "timber", "umbrella", "velvet", "whistle", "yellow", "zebra", "apple", "bread", "cloud",
    "drum", "eagle", "flute", "grape", "honey", "ink", "jade", "kite", "leaf", "moon", "nest",
)  # fmt: skip
