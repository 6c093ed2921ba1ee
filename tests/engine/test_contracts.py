"""What TIDE relies on in SGLang: the installed one keeps it all, and a copy in which one thing has moved is caught."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tide_cli.engine.contract_report import _moved, report
from tide_cli.engine.contracts import CONTRACTS, Contract
from tide_cli.engine.hook_points import SGLANG_VERSION
from tide_cli.engine.sglang_source import SglangSource
from tide_cli.errors import TideError, UsageError

INSTALLED = SglangSource.installed()
TIDE = Path(__file__).parents[2] / "tide_cli"

MUTATIONS = {
    "a hook target is renamed": (
        "srt/speculative/eagle_worker_v2.py",
        [(r"    def verify\(self, batch", "    def check_drafts(self, batch")],
        {("hooks", "EAGLEWorkerV2.verify")},
    ),
    "a parameter of a hook target is dropped": (
        "srt/managers/scheduler_components/batch_result_processor.py",
        [(r"(def process_batch_result_decode\(\s+self,\s+batch: ScheduleBatch,)\s+result: \S+,", r"\1")],
        {("hooks", "SchedulerBatchResultProcessor.process_batch_result_decode")},
    ),
    "a metric is renamed": (
        "srt/observability/metrics_collector.py",
        [('name="sglang:spec_accept_length"', 'name="sglang:acceptance_length"')],
        {("metrics", "sglang:spec_accept_length")},
    ),
    "an argument is renamed": (
        "srt/arg_groups/fields/spec.py",
        [("    speculative_adaptive_config: A", "    speculative_adaptive_file: A")],
        {("arguments", "--speculative-adaptive-config")},
    ),
    "an endpoint moves": (
        "srt/entrypoints/http_server.py",
        [(r'@app\.api_route\("/set_internal_state"', '@app.api_route("/internal_state"')],
        {("http", "set_internal_state")},
    ),
    "a field of a request goes": (
        "srt/managers/schedule_batch.py",
        [("self.spec_verify_ct = 0", "self.spec_rounds = 0")],
        {("objects", "Req")},
    ),
    "an imported name goes": (
        "srt/model_executor/forward_batch_info.py",
        [("class CaptureHiddenMode", "class HiddenMode")],
        {("objects", "CaptureHiddenMode"), ("imports", "CaptureHiddenMode")},
    ),
    "graphs are captured before the worker that asks for last states": (
        "srt/managers/scheduler.py",
        [
            (r"        self\.maybe_init_draft_worker\(\)\n", "        self.init_all_cuda_graphs()\n"),
            (r"(self\.init_all_attention_backends\(\)\n)        self\.init_all_cuda_graphs\(\)",
             r"\1        self.maybe_init_draft_worker()"),
        ],
        {("CUDA graphs", "Scheduler.init_model_worker")},
    ),
    "a replayed graph loses the last states": (
        "srt/model_executor/runner/decode_cuda_graph_runner.py",
        [(r"output\.last_hidden_states\[", "output.final_states[")],
        {("CUDA graphs", "DecodeCudaGraphRunner.execute")},
    ),
    "a replayed prefill loses the last states": (
        "srt/model_executor/runner/prefill_cuda_graph_runner.py",
        [(r"output\.last_hidden_states\[", "output.final_states[")],
        {("CUDA graphs", "PrefillCudaGraphRunner._trim_logits_output")},
    ),
    "a prefill's outputs stay in the pool of the graphs": (
        "srt/model_executor/runner_backend/breakable_cuda_graph_backend.py",
        [(r"self\._copy_output_to_buffer\(out, buffer, out_rows\)", "buffer = out")],
        {("CUDA graphs", "BreakableCudaGraphBackend.capture_one")},
    ),
    "the policy is no longer asked": (
        "srt/speculative/adaptive_runtime_state.py",
        [(r"self\.params\.get_steps_for_batch\(batch_size\)", "self.params.steps")],
        {("CUDA graphs", "AdaptiveController.activate_step_by_batch")},
    ),
    "the overlap schedule leaves the forward stream": (
        "srt/managers/scheduler.py",
        [(r"with self\.forward_stream_ctx:", "with self.copy_stream_ctx:")],
        {("overlap schedule", "Scheduler.run_batch")},
    ),
    "gpt-oss captures other layers": (
        "srt/models/gpt_oss.py",
        [(r"\[2, num_layers // 2, num_layers - 3\]", "[1, num_layers // 2, num_layers - 4]")],
        {("models", "GptOssForCausalLM.set_eagle3_layers_to_capture")},
    ),
    "a backend no longer drafts": (
        "srt/speculative/draft_utils.py",
        [(r'"trtllm_mha": self\._create_trtllm_mha_decode_backend,', "")],
        {("attention", "DraftBackendFactory.create_decode_backend")},
    ),
}  # fmt: skip


def mutated(root: Path, file: str, edits: list[tuple[str, str]]) -> SglangSource:
    """A copy of the installed SGLang, of links but for the one file that is edited: patterns and what replaces them."""
    copy, original = root / "sglang", INSTALLED.package
    for part in Path(file).parts:
        copy.mkdir()
        for entry in original.iterdir():
            if entry.name != part:
                (copy / entry.name).symlink_to(entry)
        copy, original = copy / part, original / part
    text = original.read_text()
    for pattern, replacement in edits:
        text, count = re.subn(pattern, replacement, text)
        assert count, f"{file} has no {pattern}"
    copy.write_text(text)
    return SglangSource(root / "sglang")


def test_the_installed_sglang_keeps_every_contract() -> None:
    assert INSTALLED.version == SGLANG_VERSION
    assert [finding.moved for finding in report(INSTALLED) if finding.moved] == []


@pytest.mark.parametrize("case", MUTATIONS)
def test_what_has_moved_is_named_and_nothing_else(tmp_path: Path, case: str) -> None:
    file, edits, expected = MUTATIONS[case]
    findings = report(mutated(tmp_path, file, edits))
    assert {(finding.topic, finding.what) for finding in findings if finding.moved} == expected


@pytest.mark.parametrize("content", [b"def f(:\n", b"\xff\xfe\x00"])
@pytest.mark.parametrize("module", ["observability.metrics_collector", "speculative.eagle_worker_v2"])
def test_what_stands_in_a_file_that_cannot_be_read_fails_alone(tmp_path: Path, module: str, content: bytes) -> None:
    file = f"srt/{module.replace('.', '/')}.py"
    source = mutated(tmp_path, file, [(r"\Z", "")])
    (source.package / file).write_bytes(content)
    findings = report(source)
    failed = [finding for finding in findings if finding.moved]
    assert len(findings) == len(report(INSTALLED))
    assert failed == [finding for finding in findings if finding.where.startswith(f"sglang.srt.{module}")]
    assert all(f"cannot read {source.package / file}: it is n" in finding.moved for finding in failed)


class Without(SglangSource):
    """The installed SGLang, where no definition says or has one thing."""

    def __init__(self, what: str) -> None:
        super().__init__(INSTALLED.package)
        self._what = what

    def text(self, name: str) -> str:
        return super().text(name).replace(self._what, "")

    def attributes(self, name: str) -> set[str]:
        return super().attributes(name) - {self._what}


@pytest.mark.parametrize(
    "contract", [pytest.param(one, id=one.where) for contracts in CONTRACTS.values() for one in contracts]
)
def test_no_contract_holds_without_any_one_thing_that_it_names(contract: Contract) -> None:
    assert contract.says or contract.has
    for named in contract.says + contract.has:
        assert named in (_moved(Without(named), contract) or "")


def test_nothing_holds_where_all_is_gone(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    findings = report(SglangSource(tmp_path / "sglang"))
    assert [(finding.topic, finding.what) for finding in findings if not finding.moved] == []
    assert len(findings) == len(report(INSTALLED))


def test_every_endpoint_that_is_asked_for_is_in_the_contracts() -> None:
    listed = {text.strip("'") for contract in CONTRACTS["http"] for text in contract.says if text.startswith("'/")}
    for file in ("engine/client.py", "demo/chat.py", "bench/client.py"):
        asked = {
            node.value
            for node in ast.walk(ast.parse((TIDE / file).read_text()))
            if isinstance(node, ast.Constant) and re.fullmatch(r"/[a-z_/0-9]+", str(node.value))
        }
        assert asked <= listed, file


def write(root: Path, **modules: str) -> SglangSource:
    package = root / "sglang"
    package.mkdir()
    for name, text in modules.items():
        (package / f"{name}.py").write_text(text)
    return SglangSource(package)


def test_names_are_followed_through_imports_and_bases(tmp_path: Path) -> None:
    source = write(
        tmp_path,
        base="class Base:\n    kept: int = 0\n    def run(self, batch):\n        self.seen = batch\n",
        star="from sglang.base import *\n",
        user="from .star import Base\n\nclass Own(Base):\n    LIMIT = 3\n",
    )
    assert source.attributes("sglang.user.Own") == {"kept", "run", "seen", "LIMIT"}
    assert "self.seen = batch" in source.text("sglang.user.Own.run")
    with pytest.raises(AttributeError, match="stop"):
        source.find("sglang.user.Own.stop")


def test_a_definition_under_a_condition_is_found(tmp_path: Path) -> None:
    source = write(
        tmp_path, user="try:\n    from kernels import fast\nexcept ImportError:\n    if True:\n        slow = None\n"
    )
    assert source.find("sglang.user.fast").module == "sglang.user"
    assert source.find("sglang.user.slow").module == "sglang.user"


def test_a_folder_without_sglang_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no SGLang"):
        SglangSource.below(tmp_path)


def test_a_file_that_is_no_python_is_named(tmp_path: Path) -> None:
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "broken.py").write_text("def f(:\n")
    source = SglangSource(package)
    for look in (lambda: source.find("sglang.broken.f"), lambda: list(source.strings("sglang.broken"))):
        with pytest.raises(TideError, match=r"broken\.py") as refused:
            look()
        assert refused.value.why == "it is no Python (line 1)"


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "importtime", "-m", "tide_cli", "doctor", "--engine", *arguments]
    return subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=240)


def test_doctor_reports_on_another_sglang_without_importing_it(tmp_path: Path) -> None:
    file, edits, expected = MUTATIONS["a metric is renamed"]
    mutated(tmp_path, file, edits)
    answer = doctor("--json", "--sglang", str(tmp_path))
    assert answer.returncode == 1
    said = json.loads(answer.stdout)
    assert (said["sglang"], said["expected"], said["moved"]) == (SGLANG_VERSION, SGLANG_VERSION, 1)
    assert {(row["topic"], row["what"]) for row in said["contracts"] if not row["ok"]} == expected
    assert not re.search(r"\| +(torch|sglang)$", answer.stderr, re.MULTILINE)
