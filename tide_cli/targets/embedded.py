"""The embedded target: a GGUF file inside a PyPI package, converted once to a safetensors checkpoint."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tide_cli.errors import TideError, reason
from tide_cli.json_files import read_object
from tide_cli.targets.known import KnownTarget

_RECORD = "tide-conversion.json"


def convert(target: KnownTarget, folder: Path, say: Callable[[str], None]) -> Path:
    """Make `folder` the bf16 checkpoint of the target's GGUF file, unless it already is; returns `folder`.

    The GGUF file is checked against the known SHA-256, the checkpoint against the record written with it; a
    damaged checkpoint is made anew. Two processes may call this at once. Raises TideError when the package is
    missing or the file is another one.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_intact(folder, target):
            return folder
        source = _gguf_path(target)
        if _sha256(source) != target.gguf_sha256:
            raise TideError(f"{source} is not the file TIDE knows", why="its SHA-256 differs", remedy="./install.sh")
        say(f"converting {target.title} (once, about 10 seconds)")
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            _write_checkpoint(source, scratch)
            _write_record(scratch, target)
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(scratch, folder)
        except OSError as error:
            raise TideError(
                f"cannot write {folder}",
                why=reason(error),
                remedy="free some space or pass --cache-dir",
            ) from None
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _gguf_path(target: KnownTarget) -> Path:
    spec = importlib.util.find_spec(target.gguf_package)
    if spec is None or not spec.submodule_search_locations:
        raise TideError(f"the package {target.gguf_package} is not installed", remedy="./install.sh")
    return Path(spec.submodule_search_locations[0]) / target.gguf_file


def _write_checkpoint(source: Path, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
    model = AutoModelForCausalLM.from_pretrained(str(source.parent), gguf_file=source.name, dtype=torch.float32)
    tied = model.config.tie_word_embeddings
    weights = {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    os.chmod(folder / "model.safetensors", 0o644)
    config = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path"):
        config.pop(key, None)
    config |= {"architectures": [type(model).__name__], "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    tokenizer.save_pretrained(folder)


def _write_record(folder: Path, target: KnownTarget) -> None:
    digests = {path.name: _sha256(path) for path in sorted(folder.iterdir())}
    (folder / _RECORD).write_text(json.dumps({"source_sha256": target.gguf_sha256, "files": digests}, indent=1))


def _is_intact(folder: Path, target: KnownTarget) -> bool:
    try:
        record = read_object(folder / _RECORD)
        return record["source_sha256"] == target.gguf_sha256 and all(
            _sha256(folder / name) == digest for name, digest in record["files"].items()
        )
    except (OSError, ValueError, KeyError, AttributeError):
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
