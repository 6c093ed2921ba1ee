"""`tide plan` and `tide gpus` as a person runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, tide

from tide_cli.cli.plan_view import _part_table
from tide_cli.hardware.memory import Part
from tide_cli.hardware.plan import DeviceMemory
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.ring import Ring

INVENTORIES = ROOT / "tests" / "hardware" / "inventories"


def plan(name: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    file = INVENTORIES / f"{name}.json"
    return tide("plan", "--inventory", file if file.exists() else name, *arguments, **environment)


def test_gpus_prints_an_inventory_that_plan_reads(tmp_path: Path) -> None:
    answer = tide("gpus", "--json")
    file = tmp_path / "machine.json"
    file.write_text(answer.stdout)
    assert json.loads(answer.stdout)["version"] == 1
    planned = tide("plan", "--inventory", file, "--gpus", "cpu", "--state-dir", tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert "cores" in tide("gpus").stdout


def test_a_plan_as_json(tmp_path: Path) -> None:
    answer = plan("8xH100", "--target", "gpt-oss-120b", "--tp", "4", "--json", "--state-dir", tmp_path / "state")
    assert answer.returncode == 0, answer.stderr
    made = json.loads(answer.stdout)
    assert (made["target"], made["tensor_parallel"], made["trainer"]) == ("gpt-oss-120b", 4, "own")
    assert (made["serve"]["gpus"], made["train"]["gpus"]) == ([0, 1, 2, 3], [7])
    for device in made["memory"]:
        assert device["total"] == device["used"] + device["free"] + sum(part["size"] for part in device["parts"])
    pause = made["swap_pause"]
    # fc and norms, a quarter of the rest, the map (test_swap_pause.py)
    assert pause["copied_bytes"] == 24_894_720 * 2 + 280_903_680 * 2 // 4 + 8 * 32_000
    assert pause["pageable_bytes"] == (11_796_480 + 47_185_920) * 2 // 4  # of o and down
    assert pause["milliseconds"] == 5.53  # 161.0 MB at 50.4 GB/s, 29.5 at 12.6
    assert pause["basis"] == "80% of PCI Express 5.0 x16, 63.0 GB/s"
    engine, trainer = made["commands"]["engine"], made["commands"]["trainer"]
    argv = engine["argv"]
    for flag, value in (
        ("--tp-size", "4"),
        ("--max-total-tokens", str(made["max_total_tokens"])),
        ("--mem-fraction-static", f"{made['mem_fraction_static']:.3f}"),
        ("--chunked-prefill-size", "8192"),
        ("--model-path", "openai/gpt-oss-120b"),
    ):
        assert argv[argv.index(flag) + 1] == value
    assert engine["env"]["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert trainer["env"]["CUDA_VISIBLE_DEVICES"] == "7"
    assert "tide_cli.training" in trainer["argv"]
    assert not (tmp_path / "state").exists()


def test_a_plan_counts_the_disk_for_old_samples(tmp_path: Path) -> None:
    where = ("--target", "gpt-oss-120b", "--state-dir", tmp_path)
    made = json.loads(plan("8xH100", *where, "--json").stdout)
    # 64 GiB are less than a tenth of 1 TiB; 240 samples of 1,024 tokens of 8 * 2880 + 12 bytes
    assert (made["spool_size"], made["reservoir_size"]) == (2**36, 240 * 1024 * 23_052)
    assert ", spool of 64.0 GiB" in (text := plan("8xH100", *where).stdout)
    assert ", reservoir of 5.3 GiB" in text
    assert "about 3.3 ms: 115 MiB to each serving GPU at 50.4 GB/s (80% of PCI Express 5.0 x16, 63.0 GB/s)" in text
    assert ", 14 MiB of them, by way of memory that is not pinned, at 12.6 GB/s" in text
    assert re.search(r"KV cache of \d,\d{3},\d{3} tokens", text)
    chosen = json.loads(plan("8xH100", *where, "--json", TIDE_RESERVOIR_SIZE="3GiB").stdout)
    assert chosen["reservoir_size"] == 3 * 2**30
    assert json.loads(plan("8xH100", *where, "--json", "--no-training").stdout)["reservoir_size"] is None


def test_a_spool_that_the_disk_cannot_hold_is_said(tmp_path: Path) -> None:
    where = ("--target", "gpt-oss-120b", "--state-dir", tmp_path, "--spool-size", "2TiB")
    text = plan("8xH100", *where).stdout
    assert "note: the disk has 1024.0 GiB free, spool and old samples take 2053.3: a start refuses it" in text
    assert "a start refuses" not in plan("8xH100", *where, "--no-capture").stdout


def test_a_plan_of_this_machine_shows_the_ring_that_is_there(tmp_path: Path) -> None:
    spool, wanted = tmp_path / "spool", ("--json", "--state-dir", tmp_path, "--gpus", "cpu", "--spool-size", "64MiB")
    spool.mkdir()
    Ring.create(spool, RowLayout(576, target="smollm2-135m"), 2**24).close()
    size = (spool / "ring.bin").stat().st_size
    here = json.loads(tide("plan", *wanted).stdout)
    assert (here["spool_size"], here["reservoir_size"]) == (size, size // 8)
    assert sum(note.startswith("--spool-size has no effect") for note in here["notes"]) == 1
    other = json.loads(plan("8xH100", *wanted).stdout)
    assert (other["spool_size"], other["reservoir_size"]) == (2**26, 2**23)
    assert not any("--spool-size" in note for note in other["notes"])


def test_a_plan_names_known_troubles_of_the_pair(tmp_path: Path) -> None:
    where = ("--target", "gpt-oss-120b", "--state-dir", tmp_path)
    own = json.loads(plan("8xH100", *where, "--json").stdout)["troubles"]
    assert [trouble["issue"] for trouble in own] == ["sgl-project/sglang#28569"]
    other = plan("8xH100", *where, "--draft", "nvidia/gpt-oss-120b-Eagle3-v3").stdout
    assert "known trouble (sgl-project/sglang#32226): NVIDIA's draft v3" in other
    assert "  TIDE: refuses it" in other
    assert "28569" not in other
    assert "known trouble" not in plan("8xH100", *where, "--speculation", "off").stdout


def draft(folder: Path, *names: str, **config: object) -> Path:
    """Of gpt-oss, with tensors of one number each."""
    folder.mkdir()
    values = {"hidden_size": 2880, "vocab_size": 201_088, "draft_vocab_size": 32_000, **config}
    (folder / "config.json").write_text(json.dumps(values))
    header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in names}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    return folder


def test_a_known_pair_is_recognised_in_folders(tmp_path: Path) -> None:
    """By its figures: the parsers and the troubles are then the same; what is fetched is not."""
    config = {
        **{"model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880, "intermediate_size": 2880},
        **{"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201_088},
        **{"max_position_embeddings": 131_072, "num_local_experts": 128},
    }
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps(config))
    (target / "model.safetensors").write_bytes(bytes(2**16))
    layer = {"intermediate_size": 16_384, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    own = draft(tmp_path / "own", "lm_head.weight", "d2t", "t2d", **layer)
    where = ("--state-dir", tmp_path / "state", "--json")
    made = json.loads(plan("8xH100", "--target", target, "--draft", own, *where).stdout)
    assert "--reasoning-parser gpt-oss --tool-call-parser gpt-oss" in " ".join(made["commands"]["engine"]["argv"])
    assert "the target has the figures of gpt-oss-120b" in " ".join(made["notes"])
    assert "the draft has the figures of lmsys/EAGLE3-gpt-oss-120b-bf16" in made["notes"]
    assert "sgl-project/sglang#28569" in [trouble["issue"] for trouble in made["troubles"]]
    fresh = json.loads(plan("8xH100", "--target", target, *where).stdout)
    assert fresh["troubles"] == []
    assert "--draft lmsys/EAGLE3-gpt-oss-120b-bf16" in fresh["notes"][-1]
    (target / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 35}))
    other = json.loads(plan("8xH100", "--target", target, "--draft", own, *where).stdout)
    assert (other["troubles"], "figures of" in " ".join(other["notes"])) == ([], False)
    assert "--reasoning-parser" not in other["commands"]["engine"]["argv"]


def test_a_draft_that_would_accept_nothing_is_refused_before_anything_starts(tmp_path: Path) -> None:
    where = ("--target", "gpt-oss-120b", "--state-dir", tmp_path / "state", "--draft")
    whole = ("lm_head.weight", "d2t", "t2d", "fc.weight")
    beyond = {"eagle_aux_hidden_state_layer_ids": [24, 30, 40]}
    for made, words in (
        (draft(tmp_path / "headless", "d2t", "t2d"), "it has no lm_head.weight"),
        (draft(tmp_path / "unmapped", "lm_head.weight"), "it has no d2t"),
        (draft(tmp_path / "beyond", *whole, eagle_config=beyond), "not three layers of the target's 36"),
        (draft(tmp_path / "normed", *whole, norm_before_fc=True), "norm_before_fc"),
        (draft(tmp_path / "other", *whole, hidden_size=4096), "its hidden_size is 4096, the target's 2880"),
    ):
        answer = plan("8xH100", *where, made)
        assert answer.returncode == 2
        assert words in answer.stderr
    fitting = draft(tmp_path / "fitting", *whole, max_position_embeddings=2048)
    assert plan("8xH100", *where, fitting).returncode == 0
    assert plan("8xH100", *where, draft(tmp_path / "shared", "fc.weight", draft_vocab_size=None)).returncode == 0


def test_a_plan_as_text(tmp_path: Path) -> None:
    text = plan("a100-4x80-a6000-4x48", "--target", "gpt-oss-120b", "--state-dir", tmp_path).stdout
    lines = text.splitlines()
    bars = [line.split("[")[1].split("]")[0] for line in lines if line.startswith("GPU ") and "[" in line]
    assert len(bars) == 8
    assert {len(bar) for bar in bars} == {48}
    assert {letter for bar in bars[4:] for letter in bar} >= {"W", "K", "r"}
    assert set(bars[3]) == {"T", "."}
    assert set(bars[0]) == {"."}
    assert any(line.startswith("note: GPU 0-2 stay idle") for line in lines)
    assert "env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=4,5,6,7" in text
    assert "tide_cli.engine.serve" in text


def test_the_table_of_a_plan_adds_up_and_its_bar_shows_every_share(tmp_path: Path) -> None:
    where = ("--target", "gpt-oss-120b", "--state-dir", tmp_path)
    device = json.loads(plan("8xH100", *where, "--json").stdout)["memory"][-1]
    assert (device["name"], device["used"]) == ("main memory", 16 * 2**30)
    lines = plan("8xH100", *where).stdout.splitlines()
    bar = next(line for line in lines if line.startswith("CPU") and "[" in line).split("[")[1].split("]")[0]
    assert (len(bar), bar[:2], set(bar[2:])) == (48, "#T", {"."})  # 16 and 17 GiB of 2,048 are less than a cell
    begin = next(place for place, line in enumerate(lines) if line.startswith("for "))
    rows = lines[begin + 1 : lines.index("", begin)]
    for column in (-2, -1):
        *parts, used, free, whole = (float(row.split()[column].replace("-", "0")) for row in rows)
        assert sum(parts) + used + free == pytest.approx(whole, abs=0.001)
    assert [" ".join(row.split()[:-2]) for row in rows[-3:]] == ["used by others", "free", "total"]
    assert rows[-3].split()[-1] == "16.00"


def test_rounding_leaves_no_less_than_nothing_free() -> None:
    """0.336 GiB are printed as 0.34, three of them as 1.01."""
    parts = tuple(Part("engine", name, 336 * 2**30 // 1000) for name in ("target weights", "KV cache", "activations"))
    lines = _part_table([DeviceMemory(0, "x", sum(part.size for part in parts), 0, parts)])
    assert [line.split()[-1] for line in lines[1:]] == ["0.33", "0.34", "0.34", "0.00", "0.00", "1.01"]


def test_the_engine_of_tide_up_has_the_same_command(tmp_path: Path) -> None:
    """tide plan shows what the launcher makes, not a copy of it."""
    from tide_cli.engine.launch import engine_command
    from tide_cli.hardware.inventory_file import read_inventory
    from tide_cli.hardware.plan_settings import plan_for
    from tide_cli.settings import load_settings
    from tide_cli.supervisor.planned_commands import planned_commands
    from tide_cli.targets import PreparedTarget, resolve_target

    settings = load_settings({"state_dir": tmp_path, "cache_dir": tmp_path, "target": "qwen3-8b", "port": 31998})
    settings.paths.run.mkdir()
    target = resolve_target(settings.target, settings.paths)
    planned = plan_for(settings, target, read_inventory((INVENTORIES / "h100-2x80.json").read_text()))
    shown = planned_commands(settings, target, planned)["engine"]
    files = PreparedTarget(
        "qwen3-8b", Path("Qwen/Qwen3-8B"), "", 4096, 151936, 36, 40960, target.known.sglang_arguments
    )
    real = engine_command(settings, files, planned, served_version=0, run="r", spool_size=2**30)
    assert shown.argv == real.argv
    assert real.env.items() <= shown.env.items()


def test_plans_need_no_torch(tmp_path: Path) -> None:
    code = f"""
import sys
from tide_cli.cli import main
try:
    main({["plan", "--target", "gpt-oss-20b", "--inventory", "1xH200"]!r})
except SystemExit as stop:
    heavy = [name for name in ("torch", "sglang", "transformers") if name in sys.modules]
    print(stop.code, heavy, file=sys.stderr)
"""
    environment = {"PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path), "TIDE_STATE_DIR": str(tmp_path / "state")}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert answer.stderr.splitlines()[-1] == "0 []"


def test_a_longer_context_is_left_to_sglang_where_it_is_told_so(tmp_path: Path) -> None:
    asked = ("--target", "qwen3-8b", "--context-length", "131072", "--state-dir", tmp_path)
    assert plan("8xH100", *asked, SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN="1").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "gpt-oss-120b"], "49.1 GiB are missing on GPU 0"),
        (["--target", "qwen3-8b", "--tp", "3"], "--tp 3"),
        (["--target", "qwen3-8b", "--serve-gpus", "7"], "--serve-gpus"),
        (["--target", "qwen3-8b", "--serve-cores", "99"], "--serve-cores"),
        (["--target", "nothing"], "unknown target"),
        (["--inventory", "/no/such/file"], "/no/such/file"),
        (["--inventory", str(ROOT / "README.md")], "the inventory cannot be read"),
        (["--inventory", "/dev/zero"], "it has more than 64 MiB"),
        (["--config", "/dev/zero"], "it has more than 64 MiB"),
        (["--target", "smollm2-135m", "--spool-size", "1KiB"], "a spool of 1.0 KiB is too small"),
        (["--target", "qwen3-8b", "--spool-size", "0"], "a spool of 0 bytes is too small"),
        (["--target", "qwen3-8b", "--context-length", "40961"], "qwen3-8b takes at most 40960 tokens"),
        (["--target", "gpt-oss-20b", "--dtype", "float32"], "SGLang multiplies MXFP4 weights in 16 bits"),
    ],
)
def test_refusals(tmp_path: Path, arguments: list[str], words: str) -> None:
    answer = plan("rtx4090-1x24", "--state-dir", tmp_path, *arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert words in answer.stderr
    assert len(answer.stderr.splitlines()) <= 2


def test_an_unknown_hub_id_is_planned_without_its_memory(tmp_path: Path) -> None:
    answer = plan("h100-2x80", "--target", "someone/some-model", "--json", "--state-dir", tmp_path)
    made = json.loads(answer.stdout)
    assert (made["memory"], made["serve"]["gpus"], made["train"]["gpus"]) == ([], [0], [1])
    assert "not planned" in made["notes"][0]


def test_hidden_gpus_and_a_cpu_stay_as_they_are(tmp_path: Path) -> None:
    """The machine that runs the tests: half of its cores serve."""
    made = json.loads(tide("plan", "--json", "--state-dir", tmp_path, CUDA_VISIBLE_DEVICES="").stdout)
    assert made["serve"]["device"] == "cpu"
    argv = made["commands"]["engine"]["argv"]
    assert argv[argv.index("--max-total-tokens") + 1] == "16384"
    assert "--mem-fraction-static" not in argv
