"""What each child of an appliance is: its command, environment, cores and log. Nothing is started here."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tide_cli.drafts.store import DraftStore
from tide_cli.engine.launch import cpu_environment, engine_command
from tide_cli.errors import TideError, UsageError
from tide_cli.hardware import memory
from tide_cli.hardware.partition import partition_environment
from tide_cli.hardware.plan import Partition, Plan
from tide_cli.hardware.plan_settings import plan_for
from tide_cli.paths import Paths, config_file
from tide_cli.printable import size_words
from tide_cli.settings import Settings, load_with_origins
from tide_cli.spool.folder import check_ring
from tide_cli.spool.layout import RowLayout, row_bytes
from tide_cli.spool.ring import RING_FILE, Ring
from tide_cli.supervisor.family import Mark
from tide_cli.supervisor.journal import read_served
from tide_cli.supervisor.messages import DRAFT, ENGINE, TARGET, TRAINER
from tide_cli.supervisor.own_machine import own_inventory
from tide_cli.supervisor.process import ChildSpec
from tide_cli.targets import PreparedTarget, Target, describe
from tide_cli.targets.shape import draft_vocabulary_size
from tide_cli.training.config import TrainingConfig


@dataclass
class Workshop:
    """An appliance's settings, plan and target; turns the name of a child into how it is started."""

    settings: Settings
    plan: Plan
    target: Target
    prepared: PreparedTarget | None = None

    @property
    def paths(self) -> Paths:
        return self.settings.paths

    def steps(self) -> list[str]:
        """What must run once before the engine: the target's files, then a draft where the store may lack one."""
        fetch = self.target.embedded or self.target.folder is None
        return [
            *([TARGET] if fetch else []),
            *([DRAFT] if self.settings.speculates and self._store_is_empty() else []),
        ]

    def spec(self, child: str, served: int | None) -> ChildSpec:
        """How `child` is started now. Raises TideError where the target cannot be used."""
        if child == TARGET:
            arguments = [self._target_argument(), str(self.paths.cache), *self._draft_on_hub()]
            return self._python(child, self._any_partition, ["-m", "tide_cli.targets", *arguments])
        target = self.target_files()
        if child == ENGINE:
            command = engine_command(
                self.settings,
                target,
                self.plan,
                served_version=served or 0,
                run=uuid.uuid4().hex[:12],
                spool_size=spool_size(self.settings),
            )
            spec = self._spec(child, self.plan.serve, command.argv, command.env)
            # Three processes import SGLang, two of them at once: without a GPU there may be a single core to serve on.
            return spec if self.plan.serve.gpus else replace(spec, start_cores=self._any_partition.cores)
        config = self._write_training_config(target)
        if child == TRAINER:
            return self._python(child, self._training_partition, trainer_argv(config), talks=True)
        draft = self.settings.draft or target.draft_hub_id
        day_zero = ["-m", "tide_cli.training", "day-zero", "--config", str(config)]
        published = ["-m", "tide_cli.supervisor.first_draft", "--draft", str(draft), "--config", str(config)]
        return self._python(child, self._any_partition, published if draft else day_zero)

    def target_files(self) -> PreparedTarget:
        """The target, once its files are there."""
        if self.prepared is None:
            folder = self.target.folder or _fetched_folder(self._log(TARGET))
            prepared = describe(folder, self.target)
            if self.plan.serve.gpus and not self.plan.memory:
                self.plan = self._plan_of_files(folder)
            self.prepared = prepared
        return self.prepared

    def _plan_of_files(self, folder: Path) -> Plan:
        """The plan for a hub id whose shape was not known before its files were here. TideError where it cannot be."""
        plan = plan_for(self.settings, self.target, own_inventory(self.paths), folder)
        if self.plan.train and not plan.train:
            raise TideError("; ".join(plan.notes), remedy="pass --no-training to serve without it")
        return plan

    def draft_to_serve(self, instead: int | None = None) -> int | None:
        """The version to start with: the one served last, else the newest, that is not marked bad where there is such
        a one; None where speculation is off.

        instead: comes before these, if it can be served.
        Raises TideError where it is damaged or was made for another target.
        """
        if not self.settings.speculates:
            return None
        if instead is not None:
            with suppress(TideError):
                return self._checked(instead)
        store = DraftStore(self.paths.drafts)
        served, versions = read_served(self.paths.database), store.versions()
        if served in versions:
            return self._checked(served)
        with suppress(TideError):
            bad = store.marks().bad
            versions = [version for version in versions if version not in bad] or versions
        if not versions:
            raise TideError(f"there is no draft in {self.paths.drafts}", remedy="`tide logs supervisor` may say why")
        return self._checked(versions[-1])

    def _checked(self, version: int) -> int:
        """This version, whose files are sound and which was made for this target. TideError."""
        store = DraftStore(self.paths.drafts)
        store.verify(version)
        made_for = store.manifest(version).target
        if made_for != self.target.name:
            raise TideError(
                f"{self.paths.state} belongs to the target {made_for}",
                why=f"its drafts were trained on it, not on {self.target.name}",
                remedy=f"pass --target {made_for}, or another --state-dir",
            )
        return version

    def check_spool(self, hidden_size: int | None = None) -> None:
        """Raises TideError where the engine could not capture into the spool: damaged, too small, another target's.

        hidden_size: of the target, where its files are not here yet.
        """
        if self.settings.speculates and self.settings.capture:
            layout = RowLayout(hidden_size or self.target_files().hidden_size, target=self.target.name)
            check_ring(self.paths.spool, layout, spool_size(self.settings), self.settings.max_sample_tokens)

    def _store_is_empty(self) -> bool:
        return DraftStore(self.paths.drafts).latest() is None

    def _target_argument(self) -> str:
        return self.target.name if self.target.known else str(self.target.hub_id)

    def _draft_on_hub(self) -> list[str]:
        """The published draft that comes after the target, so that one that does not fit is found before the target."""
        own = self.target.known.draft_hub_id if self.target.known else None
        draft = self.settings.draft or own
        return [draft] if DRAFT in self.steps() and draft and not Path(draft).expanduser().is_dir() else []

    @property
    def _any_partition(self) -> Partition:
        """Until the engine serves, everything is free."""
        train = self.plan.train or self.plan.serve
        return replace(self.plan.serve, cores=tuple(sorted({*self.plan.serve.cores, *train.cores})))

    @property
    def _training_partition(self) -> Partition:
        return self.plan.train or self.plan.serve

    def _python(self, child: str, partition: Partition, argv: list[str], talks: bool = False) -> ChildSpec:
        # SpecForge imports parts of SGLang, which needs its stand-ins on a CPU
        env = cpu_environment() if partition.device == "cpu" else {}
        return self._spec(child, partition, [sys.executable, *argv], env, talks)

    def _spec(
        self, child: str, partition: Partition, argv: list[str], env: dict[str, str], talks: bool = False
    ) -> ChildSpec:
        inherited = dict(os.environ) | {"PYTHONUNBUFFERED": "1", "TMPDIR": str(self.paths.scratch)}
        inherited.setdefault("SGLANG_CACHE_DIR", str(self.paths.kernels))  # compiled kernels, kept
        return ChildSpec(
            argv=argv,
            env=inherited | partition_environment(partition, inherited) | env,
            cores=partition.cores,
            log=self._log(child),
            mark=Mark.of(self.paths.state, child),
            talks=talks,
        )

    def _log(self, child: str) -> Path:
        return self.paths.logs / f"{child}.log"

    def _write_training_config(self, target: PreparedTarget) -> Path:
        path = self.paths.run / "training.json"
        path.write_text(self._training_config(target).to_json())
        return path

    def _training_config(self, target: PreparedTarget) -> TrainingConfig:
        settings, partition = self.settings, self._training_partition
        processes = max(1, len(partition.gpus))
        return TrainingConfig(
            target=target.folder,
            target_name=target.name,
            target_revision=target.revision,
            spool=self.paths.spool,
            drafts=self.paths.drafts,
            state=self.paths.training,
            reservoir_size=reservoir_size(settings, target.hidden_size),
            device=partition.device,
            threads=max(1, len(partition.cores) // processes),
            dtype="bfloat16" if settings.dtype == "auto" else settings.dtype,
            draft_vocab_size=draft_vocabulary_size(target.vocab_size),
            # measured: one depth more than the engine drafts learns more slowly and ends no better
            ttt_length=settings.draft_steps,
            learning_rate=settings.learning_rate,
            batch_tokens=settings.batch_tokens,
            max_sample_tokens=settings.max_sample_tokens,
            cycle_seconds=settings.cycle_seconds,
            train_tokens=settings.train_tokens,
            early_stop=settings.early_stop,
            replay_share=settings.replay_share,
            gate_samples=settings.gate_samples,
            gate_margin=settings.gate_margin,
            gate_confidence=settings.gate_confidence,
            gate_floor=settings.gate_floor,
            gate_domain_floor=settings.gate_domain_floor,
            processes=processes,
            # the reason is known before the supervisor gives the trainer up
            process_timeout=settings.train_hang_timeout / 2,
            memory=self.plan.shared_memory,
            vocab_coverage=settings.vocab_coverage,
            draft_steps=settings.draft_steps,
            seed=settings.seed,
            retention_hours=settings.retention_hours,
        )


def trainer_argv(config: Path) -> list[str]:
    """Arguments of Python for the trainer; the descriptor of its events comes behind them."""
    return ["-m", "tide_cli.training", "worker", "--config", str(config), "--events-fd"]


def spool_size(settings: Settings) -> int:
    """Bytes of the ring: of the one that is there, else as set, else a tenth of the free disk, at most 64 GiB."""
    ring = settings.paths.spool / RING_FILE
    if ring.is_file():
        return ring.stat().st_size
    if settings.spool_size is not None:
        return settings.spool_size
    return memory.spool_size(free_disk(settings.paths.state))


def spool_size_ignored(settings: Settings, *, importing: bool = False) -> str | None:
    """What to say where a ring is there and another size is asked for; None where there is nothing to say.

    importing: it is written to whether the traffic is captured or not.
    """
    wanted, folder = settings.spool_size, settings.paths.spool
    if wanted is None or not (importing or (settings.speculates and settings.capture)):
        return None
    try:
        ring = Ring.open(folder)
    except (OSError, TideError):  # there is none, or none that a start would take
        return None
    with closing(ring):
        if wanted == ring.size_bytes or ring.layout.pages_in(wanted) == ring.pages:
            return None
        return (
            f"{_set_with('spool_size', wanted)} has no effect: the spool in {folder} keeps its"
            f" {size_words(ring.size_bytes)}; for another size stop TIDE and delete {folder / RING_FILE}, with the"
            " samples in it: the drafts and the reservoir stay"
        )


def _set_with(name: str, value: object) -> str:
    """What a setting was set to `value` with: its variable, its line in the settings file, else its flag."""
    with suppress(UsageError):
        without_flags, origins = load_with_origins()
        if getattr(without_flags, name) == value and origins[name] in ("environment", "file"):
            return f"TIDE_{name.upper()}" if origins[name] == "environment" else f"{name} in {config_file(None)}"
    return "--" + name.replace("_", "-")


def reservoir_size(settings: Settings, hidden_size: int) -> int:
    """Bytes of old samples kept: as set, else by the row of the target and the ring."""
    return memory.reservoir_size(
        settings.reservoir_size,
        # of the ring that is there: the free disk is another at every start, and what is kept would shrink with it
        ring=spool_size(settings),
        row=row_bytes(hidden_size),
        sample_tokens=settings.max_sample_tokens,
    )


def free_disk(folder: Path) -> int:
    """Free bytes where `folder` is, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _fetched_folder(log: Path) -> Path:
    """Where the target step says the checkpoint lies: its last `folder PATH` line."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("folder ")]
    if not lines:
        raise TideError("the target's files were not found", remedy=f"{log} may say why")
    return Path(lines[-1].removeprefix("folder "))
