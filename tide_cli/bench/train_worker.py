"""`python -m tide_cli.bench.train_worker CONFIG SPOOL PASSES DRAFT`: TIDE's trainer over the samples of a spool, timed.

Prints one JSON object: {"passes": [{"tokens", "seconds", "steps"}], "loss", "dtype"}. Each pass is over all samples.
DRAFT: an existing folder for the draft that comes out.
"""

from __future__ import annotations

import json
import random
import sys
import time
from functools import partial
from pathlib import Path

from tide_cli.training.config import TrainingConfig


def main(config_file: str, spool: str, passes: str, draft: str) -> int:
    import torch

    config = TrainingConfig.from_json(Path(config_file).read_text())
    torch.set_num_threads(config.threads)

    from tide_cli.drafts.store import DraftStore
    from tide_cli.spool.reader import SpoolReader
    from tide_cli.training.batches import Ref, plan_pass
    from tide_cli.training.trainer import DraftTrainer

    store = DraftStore(config.drafts)
    trainer = DraftTrainer(config, store.path(store.versions()[-1]))
    reader = SpoolReader.open(Path(spool))
    refs = [Ref(info.tokens, partial(reader.read, info)) for info in reversed(reader.samples())]
    chance, timed, loss = random.Random(config.seed), [], 0.0
    for _ in range(int(passes)):
        begun, tokens, steps = time.perf_counter(), 0, 0
        for batch in plan_pass(refs, [], replay_share=0, batch_tokens=config.batch_tokens, rng=chance):
            step = trainer.step([sample for ref in batch if (sample := ref.read()) is not None])
            tokens, steps, loss = tokens + step.tokens, steps + 1, step.loss
        timed.append({"tokens": tokens, "seconds": time.perf_counter() - begun, "steps": steps})
    trainer.export(Path(draft))
    print(json.dumps({"passes": timed, "loss": loss, "dtype": str(trainer.compute_dtype).removeprefix("torch.")}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
