"""Questions to be answered with one SQL query over one or two small tables."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class _Table:
    """label: the text column a row is called by; numbers: column -> (lowest, highest); kinds: column -> its values."""

    name: str
    label: str
    numbers: dict[str, tuple[int, int]]
    kinds: dict[str, tuple[str, ...]]


# (parent, child): the child has a column that refers to the parent
_PAIRS = (
    (
        _Table(
            "publishers", "name", {"founded": (1850, 2015), "staff": (3, 900)}, {"country": ("Spain", "Chile", "Japan")}
        ),
        _Table(
            "books",
            "title",
            {"pages": (60, 1200), "year": (1900, 2024), "price": (4, 90)},
            {"genre": ("poetry", "history", "crime"), "language": ("English", "Polish", "Greek")},
        ),
    ),
    (
        _Table(
            "stations", "name", {"platforms": (1, 24), "opened": (1840, 2020)}, {"region": ("north", "coast", "valley")}
        ),
        _Table(
            "departures",
            "train",
            {"delay_minutes": (0, 95), "cars": (2, 14), "passengers": (5, 800)},
            {"kind": ("local", "express", "night")},
        ),
    ),
    (
        _Table(
            "farms", "owner", {"hectares": (2, 700), "workers": (1, 60)}, {"county": ("Ashford", "Brook", "Linden")}
        ),
        _Table(
            "harvests",
            "crop",
            {"tonnes": (1, 400), "year": (1995, 2025), "rain_mm": (100, 1400)},
            {"quality": ("low", "fair", "high")},
        ),
    ),
    (
        _Table("clinics", "name", {"beds": (0, 450), "doctors": (1, 120)}, {"town": ("Varna", "Mondo", "Kirkby")}),
        _Table(
            "visits",
            "patient",
            {"age": (0, 99), "minutes": (5, 180), "cost": (0, 950)},
            {"reason": ("checkup", "injury", "vaccine"), "outcome": ("home", "referred", "admitted")},
        ),
    ),
    (
        _Table("teams", "name", {"titles": (0, 30), "members": (11, 45)}, {"league": ("first", "second", "youth")}),
        _Table(
            "matches",
            "opponent",
            {"goals": (0, 9), "visitors": (40, 60000), "cards": (0, 11)},
            {"place": ("home", "away"), "weather": ("dry", "rain", "snow")},
        ),
    ),
    (
        _Table("museums", "name", {"rooms": (1, 150), "opened": (1790, 2022)}, {"city": ("Turin", "Lagos", "Bergen")}),
        _Table(
            "exhibits",
            "title",
            {"weight_kg": (1, 5000), "year": (200, 2020), "value": (50, 90000)},
            {"material": ("bronze", "wood", "paper"), "era": ("ancient", "medieval", "modern")},
        ),
    ),
    (
        _Table("routes", "code", {"distance_km": (1, 900), "stops": (2, 60)}, {"mode": ("bus", "ferry", "tram")}),
        _Table(
            "tickets",
            "holder",
            {"fare": (1, 120), "zones": (1, 9), "uses": (1, 300)},
            {"class": ("adult", "student", "senior")},
        ),
    ),
    (
        _Table("kitchens", "chef", {"seats": (8, 220), "stars": (0, 5)}, {"cuisine": ("thai", "basque", "persian")}),
        _Table(
            "dishes",
            "name",
            {"calories": (40, 1800), "price": (3, 75), "minutes": (2, 240)},
            {"course": ("starter", "main", "dessert"), "diet": ("vegan", "meat", "fish")},
        ),
    ),
)


def sql_question(rng: random.Random) -> str:
    """One prompt: the tables, then a question about them."""
    parent, child = rng.choice(_PAIRS)
    link = f"{parent.name[:-1]}_id"
    if rng.random() < 0.6:
        table = rng.choice((parent, child))
        return _prompt([_definition(table, rng)], _single(table, rng))
    definitions = [_definition(parent, rng), _definition(child, rng, f"{link} INTEGER REFERENCES {parent.name}(id)")]
    return _prompt(definitions, _joined(parent, child, rng))


def _prompt(definitions: list[str], question: str) -> str:
    tables = "\n".join(definitions)
    return f"Write one SQL query that answers the question.\n\n{tables}\n\nQuestion: {question}"


def _definition(table: _Table, rng: random.Random, *extra: str) -> str:
    columns = [f"{table.label} TEXT", *(f"{name} INTEGER" for name in table.numbers)]
    columns += [f"{name} TEXT" for name in table.kinds]
    rng.shuffle(columns)
    return f"CREATE TABLE {table.name} (id INTEGER PRIMARY KEY, {', '.join([*columns, *extra])});"


def _single(table: _Table, rng: random.Random) -> str:
    rows, label = table.name, table.label
    first, second = rng.sample(list(table.numbers), k=2)
    kind = rng.choice(list(table.kinds))
    value, limit = rng.choice(table.kinds[kind]), rng.randint(*table.numbers[first])
    other = rng.randint(*table.numbers[second])
    return rng.choice(
        (
            f"How many {rows} have {first} above {limit} and {kind} equal to '{value}'?",
            f"List the {label} of all {rows} whose {first} is at most {limit}, ordered by {second}.",
            f"What is the average {second} of the {rows} for each {kind}, if {first} must be over {limit}?",
            f"Which {rng.randint(2, 20)} {rows} of the {kind} '{value}' have the highest {first}? Show their {label}.",
            f"For each {kind}, how many {rows} have {first} below {limit} or {second} above {other}?",
            f"Which {kind} has the largest average {first} among {rows} with {second} of at least {other}?",
            f"Find the {label} of the {rows} with {first} between {limit} and {limit + rng.randint(1, 400)}.",
            f"What are the least and greatest {first} of {rows} with {second} under {other} and {kind} not '{value}'?",
        )
    )


def _joined(parent: _Table, child: _Table, rng: random.Random) -> str:
    owners, rows = parent.name, child.name
    first, second = rng.choice(list(parent.numbers)), rng.choice(list(child.numbers))
    limit, other = rng.randint(*parent.numbers[first]), rng.randint(*child.numbers[second])
    group, kind = rng.choice(list(parent.kinds)), rng.choice(list(child.kinds))
    value = rng.choice(child.kinds[kind])
    return rng.choice(
        (
            f"Show {child.label} and {parent.label} of all {rows} of {owners} with {first} over {limit}.",
            f"How many {rows} with {kind} '{value}' and {second} over {other} does each of the {owners} have?",
            f"For each {group} with {first} of at least {limit}, what is the highest {second} of the '{value}' {rows}?",
            f"Which {owners} have no {rows} with {second} above {other}? Show {parent.label} and {first}.",
            f"List the {rng.randint(2, 15)} {owners} whose '{value}' {rows} have the highest average {second}.",
        )
    )
