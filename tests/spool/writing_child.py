"""Writes made-up traffic into the spool of the folder given, until it is killed. Prints the id of each sample."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch
from spool_traffic import LAYOUT, LONGEST, states, token_ids

from tide_cli.spool.writer import SpoolWriter

torch.set_num_threads(1)
folder, first_seed = Path(sys.argv[1]), int(sys.argv[2])
chance = random.Random(first_seed)
writer = SpoolWriter.open(
    folder, LAYOUT, LAYOUT.size_for(60), run=f"from-{first_seed}", max_sample_tokens=LONGEST, held_out_share=0.2
)
running: dict[int, tuple[torch.Tensor, torch.Tensor, int, int]] = {}
seed = first_seed
while True:
    if len(running) < 4:
        seed += 1
        running[seed] = (*states(seed, 900), 0, chance.randint(6, 40))
    chosen = chance.choice(list(running))
    aux, final, start, length = running[chosen]
    stop = start + (chance.randint(1, 12) if start == 0 else chance.randint(1, 4))
    writer.put_rows(str(chosen), start, aux[start:stop], final[start:stop])
    running[chosen] = (aux, final, stop, length)
    if stop >= length:
        del running[chosen]
        if chance.random() < 0.1:
            writer.abort(str(chosen))
        else:
            sample = writer.finish(
                str(chosen), token_ids(chosen, length), 2, draft_version=0, verify_steps=1, accepted_tokens=0
            )
            print(sample, flush=True)
