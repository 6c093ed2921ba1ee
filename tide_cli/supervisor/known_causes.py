"""The causes of a child's end that are known: patterns of its log, words and a remedy for each.

The texts are those of SGLang 0.5.23, torch, huggingface-hub and the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tide_cli.supervisor.messages import TRAINER


@dataclass(frozen=True)
class Cause:
    """what: in words, without a full stop; remedy: what to do.

    final: a start that ends so would end so again. Of a child that has been ready it says nothing.
    whole: the words say all that the log says.
    """

    what: str
    remedy: str
    final: bool = False
    whole: bool = False


class Rule:
    """A pattern of a log, and the cause it stands for; {names} in the words are the pattern's groups."""

    def __init__(
        self,
        pattern: str,
        what: str,
        remedy: str,
        *,
        trainer: str | None = None,
        final: bool = False,
        whole: bool = False,
    ) -> None:
        self._pattern = re.compile(pattern, re.MULTILINE)
        self._what, self._remedy, self._trainer = what, remedy, trainer
        self._final, self._whole = final, whole

    def last_match(self, text: str) -> re.Match[str] | None:
        """The last place in a log that says so, None for none."""
        last = None
        for last in self._pattern.finditer(text):  # noqa: B007  the last one is wanted
            pass
        return last

    def cause(self, match: re.Match[str], child: str) -> Cause:
        """In the words of that place, with the remedy for this child."""
        remedy = self._trainer if child == TRAINER and self._trainer else self._remedy
        words = _fill(self._what, match.groupdict()), _fill(remedy, match.groupdict())
        return Cause(*words, self._final, self._whole)


def _fill(text: str, groups: Mapping[str, str | None]) -> str:
    for name, value in groups.items():
        text = text.replace(f"{{{name}}}", " ".join((value or "").split())[:200])
    return text


MEMORY_REMEDY = "end other programs, or serve a smaller target; the kernel's log (`dmesg`) names what it has killed"
OUT_OF_MEMORY = Cause("the machine ran out of memory", MEMORY_REMEDY)
_ROOM = "end what else uses it (`nvidia-smi`), or lower --context-length or --max-running-requests"
SHARED_MEMORY = Cause(
    "shared memory (/dev/shm) is full",
    "give it more: in a container --shm-size 16g or --ipc=host; NCCL alone does without: NCCL_SHM_DISABLE=1",
    final=True,
)

HOOKS = (
    Rule(
        r"^tide: this SGLang is not \S+ as TIDE knows it:\n(?P<names>(?:^ +.+\n?)+)",
        "this SGLang is not the one TIDE is written for: {names}",
        "./install.sh installs that one; `tide doctor` checks it",
        final=True,
    ),
    Rule(
        r"tide: SGLang did not apply the hooks on (?P<names>.+)",
        "SGLang did not apply TIDE's hooks on {names}",
        "./install.sh installs the SGLang that TIDE is written for; `tide doctor` checks it",
        final=True,
    ),
)

# Where one line fits two of them, the first is taken.
ANYWHERE = (
    Rule(
        r"^sglang serve: error: (?P<words>.+)$",
        "SGLang does not accept its arguments: {words}",
        "mend what stands after `--` or in sglang_arguments; `python -m sglang.launch_server --help` lists SGLang's",
        final=True,
        whole=True,
    ),
    Rule(
        r"Not enough memory\. Please try to increase --mem-fraction-static"
        r"|Loaded weights leave no GPU memory for the KV cache"
        r"|Not enough GPU memory for hybrid",
        "the weights leave too little of the GPU's memory for the KV cache",
        f"{_ROOM}, or give SGLang a larger share: `-- --mem-fraction-static 0.9`",
    ),
    Rule(
        r"(?:CUDA|HIP) out of memory\. Tried to allocate|(?:CUDA|HIP) error: out of memory",
        "the GPU ran out of memory",
        f"{_ROOM}, or give SGLang a smaller share: `-- --mem-fraction-static 0.7`",
        trainer="end what else uses it (`nvidia-smi`), or lower batch_tokens or max_sample_tokens (`tide config`)",
    ),
    Rule(
        r"(?:CUDA|HIP) error: an illegal memory access was encountered",
        "a GPU kernel reached for memory that is not its own (illegal memory access)",
        "`tide plan` names known troubles of this target; without CUDA graphs, and slower, it may go on: "
        "`tide up ... -- --disable-decode-cuda-graph`",
    ),
    Rule(
        r"The memory capacity is unbalanced\. Some GPUs may be occupied by other processes\. pre",
        "other programs hold memory of some of the GPUs",
        "end them (`nvidia-smi` names them)",
    ),
    Rule(
        r"DefaultCPUAllocator: can't allocate memory|\[Errno 12\] Cannot allocate memory|^MemoryError\b",
        OUT_OF_MEMORY.what,
        OUT_OF_MEMORY.remedy,
    ),
    Rule(
        r"(?:shared memory segment|failed to extend) /dev/shm/nccl|\[Errno 28\] No space left on device: '/dev/shm/",
        SHARED_MEMORY.what,
        SHARED_MEMORY.remedy,
        final=True,
    ),
    Rule(
        r"error while attempting to bind on address \('[^']*', (?P<port>\d+)[^\n]*address already in use",
        "port {port} is taken",
        "end what listens there, or choose another --port",
    ),
    Rule(
        r"Port is already in use\.|\[Errno 98\] Address already in use|ZMQError: Address already in use",
        "a port that SGLang uses between its processes is taken",
        "`tide up` again: SGLang looks for other ones; else choose another --port",
    ),
    Rule(
        r"Cannot access gated repo for url https?://[^/]+/(?:api/models/)?(?P<id>[^/\s]+/[^/\s]+)",
        "{id} is gated",
        "accept its terms on the hub, then `hf auth login`, then try again",
        final=True,
    ),
    Rule(
        r"Repository Not Found for url: https?://[^/]+/(?:api/models/)?(?P<id>[^/\s]+/[^/\s.]+)",
        "the hub has no {id}, or it is private",
        "check the name; for a private one `hf auth login`",
        final=True,
    ),
    Rule(
        r"^OSError: (?P<id>\S+) is not a local folder and is not a valid model identifier",
        "{id} is neither a folder nor on the hub",
        "check the name, or pass a checkpoint folder",
        final=True,
    ),
    Rule(
        r"Cannot find any model weights with `(?P<path>[^`]+)`",
        "{path} has no weights",
        "fetch the checkpoint anew: *.safetensors files are wanted",
        final=True,
    ),
    Rule(
        r"^Error while deserializing header: .*|SafetensorError: (?P<words>.+)",
        "a file of weights is damaged",
        "fetch the checkpoint anew",
        final=True,
    ),
    Rule(
        r"Model architectures (?P<names>\[[^\]]*\]) (?:are not supported for now|failed)",
        "SGLang cannot serve the architecture {names}",
        "choose another --target; `tide logs engine` may say which package it lacks",
        final=True,
    ),
    Rule(
        r"no kernel image is available for execution on the device"
        r"|with CUDA capability sm_\d+ is not compatible with the current PyTorch installation",
        "this torch has no kernels for this GPU",
        "./install.sh installs the build for your driver; GPUs that torch no longer supports cannot be used",
        final=True,
    ),
    Rule(
        r"The NVIDIA driver on your system is too old \(found version (?P<version>\d+)\)",
        "the NVIDIA driver is too old for this torch (it speaks CUDA {version})",
        "install a newer driver",
        final=True,
    ),
    Rule(
        r"CUDA driver version is insufficient for CUDA runtime version"
        r"|forward compatibility was attempted on non supported HW",
        "the NVIDIA driver is too old for this torch",
        "install a newer driver",
        final=True,
    ),
    Rule(
        r"Driver/library version mismatch",
        "the NVIDIA driver was updated while it was in use",
        "restart the machine",
        final=True,
    ),
    Rule(
        r"No space left on device|Disk quota exceeded",
        "the disk is full",
        "free some space: `tide paths` shows where TIDE writes",
    ),
)

# Lines that programs also write about troubles they get over: they count only where they are the last word.
AT_THE_END = (
    Rule(
        r"outgoing traffic has been disabled|We couldn't connect to '[^']+' to load the files",
        "a file of the checkpoint is not in the hub's cache, and the hub is out of reach",
        "connect (and unset HF_HUB_OFFLINE), or pass a complete checkpoint folder with --target",
        final=True,
    ),
    Rule(
        r"PermissionError: \[Errno 13?\] [^:]+: '(?P<path>[^']+)'",
        "it may not use {path}",
        "give this user the right to, or name another folder (`tide paths`)",
        final=True,
    ),
    Rule(
        r"FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<path>[^']+)'",
        "{path} is missing",
        "if it belongs to a checkpoint or a draft, fetch that anew; `tide logs` shows who looked for it",
    ),
)
