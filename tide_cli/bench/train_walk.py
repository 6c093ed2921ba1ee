"""`python -m tide_cli.bench.train_walk CONFIG SAMPLES DRAFT …`: drafts of one make, walked over samples.

SAMPLES: a folder of files as `tide spool export` writes them; DRAFT: a draft's folder. Prints one JSON array: for each
draft [[tokens, rounds], …], one pair for each sample that has something to predict.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tide_cli.training.config import TrainingConfig


def main(config_file: str, samples: str, *drafts: str) -> int:
    import torch

    config = TrainingConfig.from_json(Path(config_file).read_text())
    torch.set_num_threads(config.threads)

    from tide_cli.bench.train_samples import read
    from tide_cli.drafts.tensors import read_draft
    from tide_cli.training.draft_model import DTYPES, build_draft, load_draft
    from tide_cli.training.target_weights import TargetWeights
    from tide_cli.training.walk import walk

    dtype = DTYPES[config.dtype]
    embedding = TargetWeights.read(config.target, dtype).embedding.to(config.device)
    walker = build_draft(Path(drafts[0]) / "config.json", embedding, dtype=dtype, attention="sdpa").eval()
    files, found = sorted(Path(samples).rglob("*.ckpt")), []
    for draft in drafts:
        load_draft(walker, read_draft(Path(draft)))
        walks = [walk(walker, read(file, number), config.draft_steps) for number, file in enumerate(files)]
        found.append([(one.tokens, one.rounds) for one in walks if one is not None])
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
