"""`tide bench train`: TIDE's trainer beside SpecForge's own command line, in turns, on the same samples and cores."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tide_cli import exec_child
from tide_cli.bench.engines import bench_settings
from tide_cli.bench.progress import Progress
from tide_cli.bench.rounds import Spread, in_turns, ratios
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

_PASSES = 2  # over all samples; the last one counts
_STEP = re.compile(r"^step \d+: (\{.*\})$", re.MULTILINE)


@dataclass(frozen=True)
class Timed:
    """One pass over all samples. tokens: without padding; steps: of the optimiser."""

    tokens: int
    seconds: float
    steps: int

    @property
    def tokens_s(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True)
class TrainBench:
    """samples: a folder made by `tide spool export`, None for `count` made-up ones. settings: as for an appliance."""

    rounds: int
    count: int
    samples: Path | None
    settings: Mapping[str, Any]

    def run(self, progress: Progress) -> dict[str, Any]:
        """`train_figures`, and what they were taken on. Nothing is left behind. Raises TideError."""
        if self.samples is not None:
            read_export(self.samples)  # before minutes are spent on the target
        with tempfile.TemporaryDirectory(prefix="tide-bench-") as scratch:
            workshop = check_settings(bench_settings(Path(scratch) / "state", **self.settings))
            progress.say("preparing target and draft")
            trainer = _prepare(workshop)
            config = TrainingConfig.from_json(_config_file(trainer).read_text())
            files = self._files(config, Path(scratch))
            found = TrainContest(trainer, config, files, Path(scratch), self.rounds, progress).run()
        return found | {"samples": "made up" if self.samples is None else "exported"}

    def _files(self, config: TrainingConfig, scratch: Path) -> list[Path]:
        from tide_cli.bench.train_samples import exported, make_samples

        hidden = json.loads((config.target / "config.json").read_text())["hidden_size"]
        if self.samples is not None:
            return exported(self.samples, hidden)
        return make_samples(scratch / "made", self.count, hidden, range(config.draft_vocab_size), config.seed)


class TrainContest:
    """trainer: how TIDE's trainer is started; SpecForge gets the same cores and environment. files: samples."""

    def __init__(
        self,
        trainer: ChildSpec,
        config: TrainingConfig,
        files: Sequence[Path],
        scratch: Path,
        rounds: int,
        progress: Progress,
    ) -> None:
        from tide_cli.bench.train_samples import lengths

        self._trainer, self._config, self._scratch = trainer, config, scratch
        self._rounds, self._progress = rounds, progress
        self._dtype = "bfloat16"
        counts = [min(count, config.max_sample_tokens) for count in lengths(files)]
        self._batch = min(len(counts), max(1, round(config.batch_tokens * len(counts) / sum(counts))))
        whole = len(counts) // self._batch * self._batch  # SpecForge drops what fills no batch
        self._tokens = sum(counts[:whole])
        self._folder = scratch / "samples"
        self._folder.mkdir()
        for number, file in enumerate(files[:whole]):
            (self._folder / f"{number:06d}.ckpt").symlink_to(file.absolute())

    def run(self) -> dict[str, Any]:
        rounds = []
        contestants = {"tide": self._tide, "specforge": self._specforge}
        for results in in_turns(contestants, seconds=0, least=self._rounds, clock=time.monotonic):
            rounds.append(results)
            words = ", ".join(f"{name} {timed.tokens_s:.0f} tokens/s" for name, timed in results.items())
            self._progress.say(f"  round {len(rounds)} of {self._rounds}: {words}")
        return train_figures(rounds) | {
            "specforge_loss": "triton" if self._config.device == "cuda" else "torch",
            "specforge_batch_size": self._batch,
            "batch_tokens": self._config.batch_tokens,
            "depths": self._config.ttt_length,
            "dtype": self._dtype,
            "threads": self._config.threads,
            "target": self._config.target_name,
        }

    def _tide(self) -> Timed:
        arguments = [str(_config_file(self._trainer)), str(self._folder), str(_PASSES)]
        output = self._run("tide", "tide_cli.bench.train_worker", arguments)
        measured = json.loads(output.splitlines()[-1])
        self._dtype = measured["dtype"]
        return Timed(**measured["passes"][-1])

    def _specforge(self) -> Timed:
        run = self._scratch / "specforge"
        config = self._scratch / "specforge.json"
        config.write_text(json.dumps(self._specforge_config(run)))
        output = self._run("specforge", "tide_cli.bench.train_specforge", ["train", "--config", str(config)])
        return specforge_pass(output, self._tokens)

    def _specforge_config(self, run: Path) -> dict[str, Any]:
        from tide_cli.bench.train_samples import index_of, vocabulary_map

        config = self._config
        draft = DraftStore(config.drafts).path(0)
        target, head = index_of(config.target, self._scratch / "target")
        return {
            "run_id": "tide-bench",
            "output_dir": str(run),
            "model": {
                "target_model_path": str(target),
                "draft_model_config": str(draft / "config.json"),
                "draft_checkpoint_path": str(draft),
                "vocab_mapping_path": str(vocabulary_map(draft, self._scratch / "vocabulary.pt")),
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
                "num_epochs": _PASSES,
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


def train_figures(rounds: Sequence[Mapping[str, Timed]]) -> dict[str, Any]:
    """Medians over the rounds, ratio the median of the rounds' ratios, under "spread" the quartiles around each:
    {tokens_s, specforge_tokens_s, ratio, rounds, tokens, steps, specforge_steps, spread}."""
    tide = [results["tide"] for results in rounds]
    specforge = [results["specforge"] for results in rounds]
    spreads = {
        "tokens_s": Spread.of([timed.tokens_s for timed in tide]),
        "specforge_tokens_s": Spread.of([timed.tokens_s for timed in specforge]),
        "ratio": ratios([timed.tokens_s for timed in tide], [timed.tokens_s for timed in specforge]),
    }
    return {name: spread.median for name, spread in spreads.items()} | {
        "rounds": len(rounds),
        "tokens": tide[0].tokens,
        "steps": tide[0].steps,
        "specforge_steps": specforge[0].steps,
        "spread": {name: [spread.low, spread.high] for name, spread in spreads.items()},
    }


def specforge_pass(output: str, tokens: int) -> Timed:
    """The last pass, from the line that SpecForge prints after each step. TideError where there is none."""
    steps = [ast.literal_eval(line) for line in _STEP.findall(output)]
    last = steps[len(steps) - len(steps) // _PASSES :]
    try:
        seconds = sum(step["perf/optimizer_step_time_s"] for step in last)
    except KeyError as error:
        raise TideError("SpecForge's output is not the expected one", why=f"it has no {error}") from None
    if not last:
        raise TideError("SpecForge has printed no step", why=" ".join(last_lines(output, 1)))
    return Timed(tokens, seconds, len(last))


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
    cores = ",".join(map(str, spec.cores))
    command = [sys.executable, "-I", "-S", exec_child.__file__, str(os.getpid()), cores, *argv]
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
