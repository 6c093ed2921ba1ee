"""Writes made-up conversations into the spool of the folder given, until it is killed.

Prints, as JSON lines, what it is about to store or erase, and what it has stored: "storing" [id, tokens with a row],
"stored" id, "erasing" [ids].
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from spool_traffic import LAYOUT, LONGEST, Conversations, prefix_rows

from tide_cli.spool.writer import SpoolWriter

PAGES = 40


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    writer = SpoolWriter.open(
        folder, LAYOUT, LAYOUT.size_for(PAGES), run=f"from-{seed}", max_sample_tokens=LONGEST, held_out_share=0.2
    )
    talk = Conversations(chance)
    running: dict[str, tuple[list[int], int, int]] = {}  # text, prompt tokens, rows written
    number = 0
    while True:
        if len(running) < 3:
            number += 1
            prompt, hit = talk.prompt()
            running[f"r{number}"] = (prompt + talk.output(), len(prompt), hit)
        rid = chance.choice(list(running))
        text, prompt_tokens, start = running[rid]
        aux, final = prefix_rows(text)
        if start > prompt_tokens and chance.random() < 0.1:  # retracted
            start = chance.randint(0, start - 1)
            stop = min(len(text) - 1, start + chance.randint(1, 9))
            writer.put_rows(rid, start, aux[start:stop], final[start:stop], text[:stop])
        elif start < prompt_tokens:
            stop = min(prompt_tokens, start + chance.randint(1, 30))
            writer.put_rows(rid, start, aux[start:stop], final[start:stop], text[:stop])
            talk.computed(text[:stop])
        else:
            stop = min(len(text) - 1, start + chance.randint(1, 4))
            writer.put_rows(rid, start, aux[start:stop], final[start:stop])
        running[rid] = (text, prompt_tokens, stop)
        if stop < len(text) - 1:
            continue
        del running[rid]
        if chance.random() < 0.1:
            writer.abort(rid)
            continue
        talk.computed(text[:-1])
        say(storing=[writer.counters()["samples"] + 1, text[:-1]])
        sample = writer.finish(rid, text, prompt_tokens, draft_version=0, verify_steps=1, accepted_tokens=0)
        if sample is not None:
            say(stored=sample)
        if sample is not None and chance.random() < 0.1:
            erased = [sample - 1, sample - 2]
            say(erasing=erased)
            writer.erase(lambda known, _, erased=erased: known in erased)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
