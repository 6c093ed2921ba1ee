"""`tide bench train`: TIDE's trainer beside SpecForge's own command line, in turns, on the same samples and cores.

Both begin with the same draft; in the end what each has made of it is walked over samples that neither was trained on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tide_cli import exec_child
from tide_cli.adaptation.gate import Walk
from tide_cli.bench.engines import bench_settings
from tide_cli.bench.interrupts import Interrupts
from tide_cli.bench.progress import PassTicks, Progress
from tide_cli.bench.rounds import in_turns
from tide_cli.bench.scratch import scratch_folder
from tide_cli.bench.train_figures import (
    FIRST,
    SPECFORGE,
    TIDE,
    Timed,
    accuracy_figures,
    specforge_pass,
    storage_figures,
    train_figures,
)
from tide_cli.drafts.describe import read_config
from tide_cli.drafts.store import DraftStore
from tide_cli.errors import TideError
from tide_cli.spool.importing import read_export
from tide_cli.supervisor.appliance import check_settings
from tide_cli.supervisor.lock import make_private
from tide_cli.supervisor.logs import last_lines, read_tail
from tide_cli.supervisor.messages import TRAINER
from tide_cli.supervisor.process import ChildSpec
from tide_cli.supervisor.specs import Workshop
from tide_cli.training.config import TrainingConfig

T = TypeVar("T")

_MADE_UP = "made-up samples have nothing to learn"
_NOT_HELD_OUT = "the export has no held-out samples"


@dataclass(frozen=True)
class TrainBench:
    """samples: a folder made by `tide spool export`, None for `count` made-up ones. settings: as for an appliance.

    passes: over all samples, in each round; the last one is timed.
    """

    rounds: int
    passes: int
    count: int
    samples: Path | None
    settings: Mapping[str, Any]

    def run(self, progress: Progress) -> dict[str, Any]:
        """`train_figures`, and what they were taken on. Nothing is left behind, also after INT, TERM or HUP.

        Raises TideError or UsageError, and KeyboardInterrupt for a signal.
        """
        if self.samples is not None:
            read_export(self.samples)  # before minutes are spent on the target
        with Interrupts() as interrupts, scratch_folder() as scratch, interrupts.allowed():
            workshop = check_settings(bench_settings(scratch / "state", **self.settings))
            progress.say("preparing target and draft")
            trainer = _prepare(workshop)
            config = TrainingConfig.from_json(_config_file(trainer).read_text())
            files, held_out = self._files(config, scratch)
            contest = TrainContest(trainer, config, files, held_out, scratch, self.rounds, self.passes, progress)
            found = contest.run()
        unknown = _NOT_HELD_OUT if self.samples else _MADE_UP
        return found | {
            "samples": "exported" if self.samples else "made up",
            "acceptance_note": None if found["acceptance_length"] else unknown,
        }

    def _files(self, config: TrainingConfig, scratch: Path) -> tuple[list[Path], Path | None]:
        from tide_cli.bench.train_samples import exported, make_samples

        hidden = json.loads((config.target / "config.json").read_text())["hidden_size"]
        if self.samples is not None:
            return exported(self.samples, hidden)
        made = make_samples(scratch / "made", self.count, hidden, range(config.draft_vocab_size), config.seed)
        return made, None


class TrainContest:
    """trainer: how TIDE's trainer is started; SpecForge gets the same cores and environment.

    files: samples; held_out: a folder of others, None: there are none.
    """

    def __init__(
        self,
        trainer: ChildSpec,
        config: TrainingConfig,
        files: Sequence[Path],
        held_out: Path | None,
        scratch: Path,
        rounds: int,
        passes: int,
        progress: Progress,
    ) -> None:
        from tide_cli.bench.train_samples import lengths

        self._trainer, self._config, self._scratch = trainer, config, scratch
        self._held_out, self._rounds, self._passes, self._progress = held_out, rounds, passes, progress
        self._dtype = "bfloat16"
        counts = [min(count, config.max_sample_tokens) for count in lengths(files)]
        self._batch = min(len(counts), max(1, round(config.batch_tokens * len(counts) / sum(counts))))
        whole = len(counts) // self._batch * self._batch  # SpecForge drops what fills no batch
        self._files, self._tokens = files[:whole], sum(counts[:whole])
        self._spool, self._folder = scratch / "spool", scratch / "samples"
        self._first, self._draft = DraftStore(config.drafts).path(0), scratch / "draft"
        self._run_folder, self._vocabulary = scratch / "specforge", scratch / "vocabulary.pt"

    def run(self) -> dict[str, Any]:
        from tide_cli.bench.train_storage import store_both

        self._progress.say(f"storing {len(self._files)} samples, in a spool and as SpecForge's files")
        stored = store_both(self._files, self._spool, self._folder, self._config.target_name)
        rounds = []
        # the walks count as one more
        passes = PassTicks(self._progress, 2 * self._rounds + (self._held_out is not None))

        def turn(contestant: Callable[[], T]) -> T:
            ended = passes.begin(1)
            result = contestant()
            ended(result)
            return result

        contestants = {TIDE: lambda: turn(self._tide), SPECFORGE: lambda: turn(self._specforge)}
        for results in in_turns(contestants, seconds=0, least=self._rounds, clock=time.monotonic):
            rounds.append(results)
            words = ", ".join(f"{name} {timed.tokens_s:.0f} tokens/s" for name, timed in results.items())
            self._progress.say(f"  round {len(rounds)} of {self._rounds}: {words}")
        walks = turn(self._walks) if self._held_out is not None else {}
        return (
            train_figures(rounds)
            | storage_figures(stored, rounds)
            | accuracy_figures(walks)
            | {
                "passes": self._passes,
                "sample_count": len(self._files),
                "specforge_loss": "triton" if self._config.device == "cuda" else "torch",
                "specforge_batch_size": self._batch,
                "batch_tokens": self._config.batch_tokens,
                "depths": self._config.ttt_length,
                "dtype": self._dtype,
                "threads": self._config.threads,
                "target": self._config.target_name,
            }
        )

    def _tide(self) -> Timed:
        self._draft.mkdir(exist_ok=True)
        arguments = [str(_config_file(self._trainer)), str(self._spool), str(self._passes), str(self._draft)]
        output = self._run("tide", "tide_cli.bench.train_worker", arguments)
        measured = json.loads(output.splitlines()[-1])
        self._dtype = measured["dtype"]
        return Timed(**measured["passes"][-1])

    def _specforge(self) -> Timed:
        config = self._scratch / "specforge.json"
        config.write_text(json.dumps(self._specforge_config()))
        output = self._run("specforge", "tide_cli.bench.train_specforge", ["train", "--config", str(config)])
        return specforge_pass(output, self._tokens, self._passes)

    def _walks(self) -> dict[str, list[Walk]]:
        """Each draft's walks of the held-out samples."""
        self._progress.say("walking the drafts over the held-out samples")
        drafts = {FIRST: self._first, TIDE: self._draft, SPECFORGE: self._specforge_draft()}
        arguments = [str(_config_file(self._trainer)), str(self._held_out), *map(str, drafts.values())]
        output = self._run("walk", "tide_cli.bench.train_walk", arguments)
        found = json.loads(output.splitlines()[-1])
        return {name: [Walk(*pair) for pair in walks] for name, walks in zip(drafts, found, strict=True)}

    def _specforge_draft(self) -> Path:
        """What SpecForge's last run has saved: exported by its own command, taken up as `tide drafts import` does."""
        from tide_cli.drafts.checks import publish_foreign

        folder, shape = self._scratch / "specforge-draft", self._first / "config.json"
        arguments = ["export", "--to", "sglang", "--checkpoint", str(self._run_folder), "--draft-config", str(shape)]
        arguments += ["--output-dir", str(folder), "--vocab-mapping", str(self._vocabulary)]
        self._run("specforge-export", "tide_cli.bench.train_specforge", arguments)
        store, config = DraftStore(self._config.drafts), read_config(self._first)
        version = publish_foreign(
            folder,
            store,
            target=self._config.target_name,
            target_revision=self._config.target_revision,
            target_config=config,
            remedy="the versions of `specforge` and TIDE may not belong together: `tide doctor`",
            beside=config,
        )
        return store.path(version)

    def _specforge_config(self) -> dict[str, Any]:
        from tide_cli.bench.train_samples import index_of, vocabulary_map

        config, draft = self._config, self._first
        target, head = index_of(config.target, self._scratch / "target")
        return {
            "run_id": "tide-bench",
            "output_dir": str(self._run_folder),
            "model": {
                "target_model_path": str(target),
                "draft_model_config": str(draft / "config.json"),
                "draft_checkpoint_path": str(draft),
                "vocab_mapping_path": str(vocabulary_map(draft, self._vocabulary)),
                "lm_head_key": head,
                "torch_dtype": self._dtype,
            },
            "data": {
                "hidden_states_path": str(self._folder),
                "max_length": config.max_sample_tokens,
                "dataloader_num_workers": 0,  # no threads beside those that both are given
                "cache_dir": str(self._scratch / "cache"),
            },
            "training": {
                "num_epochs": self._passes,
                "batch_size": self._batch,
                "learning_rate": config.learning_rate,
                "lr_scheduler": "constant",
                "ttt_length": config.ttt_length,
                "attention_backend": "sdpa" if config.device == "cpu" else "flex_attention",
                "compact_teacher": True,
                "fsdp_sharding": "NO_SHARD",
                "log_interval": 1,
                "seed": config.seed,
            },
        }

    def _run(self, name: str, module: str, arguments: Sequence[str]) -> str:
        spec = self._trainer
        log = self._scratch / f"{name}.log"
        _run([sys.executable, "-m", module, *arguments], spec, log)
        return log.read_text(errors="replace")


def _prepare(workshop: Workshop) -> ChildSpec:
    """Target and first draft on the disk; returns how the trainer would be started."""
    paths = workshop.paths
    for folder in (paths.state, paths.run, paths.logs, paths.scratch, paths.drafts):
        make_private(folder)
    for step in workshop.steps():
        spec = workshop.spec(step, None)
        _run(spec.argv, spec, spec.log)
    return workshop.spec(TRAINER, 0)


def _config_file(trainer: ChildSpec) -> Path:
    return Path(trainer.argv[list(trainer.argv).index("--config") + 1])


def _run(argv: Sequence[str], spec: ChildSpec, log: Path) -> None:
    """Run a program as `spec` says, on its cores, its life bound to ours. TideError with the end of its log."""
    command = exec_child.bound(spec.cores, argv)
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=dict(spec.env), stdout=file, stderr=file, start_new_session=True)
        try:
            code = process.wait()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if code:
        raise TideError(f"{argv[2]} ended with code {code}", excerpt=last_lines(read_tail(log)))
