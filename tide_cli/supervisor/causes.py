"""Why a child died: from its log's end, exit code and name to words and a remedy. Pure.

The texts are those of SGLang 0.5.23, torch, huggingface-hub and the kernel. What is not known here is told in the
child's own words (logs.last_words).
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from tide_cli.supervisor.logs import last_lines, last_words, own_words
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


@dataclass(frozen=True)
class Ending:
    """words: one line of what, where known a second one of what to do; excerpt: the log's last lines, if they help.

    explained: the words are a known cause that the log tells; final: see Cause.
    """

    words: str
    excerpt: tuple[str, ...] = ()
    explained: bool = False
    final: bool = False


def explain(tail: str, code: int, child: str, oom: bool = False) -> Ending:
    """How to speak of a child's end.

    tail: from logs.read_tail; code: negative for a signal, as subprocess has it; oom: whether the kernel has killed
    anything for want of memory while the child ran.
    """
    excerpt = tuple(last_lines(tail))
    told = cause_in_log(tail, child)
    if told is None and own_words(tail):
        return Ending(last_words(tail))
    if told is None and (part := _KILLED_PART.search(tail)):
        if not oom:
            return Ending(f"its {part['early'] or part['late']} was killed from outside (SIGKILL)", excerpt)
        told = _OUT_OF_MEMORY
    if cause := told or _cause_of_signal(tail, code, oom):
        words = f"{cause.what}\n{cause.remedy}"
        return Ending(words, () if cause.whole else excerpt, told is not None, cause.final)
    if code < 0 and not _FAILED.search(tail):
        # what it said last has nothing to do with it
        how = "crashed" if -code in _CRASHES else "was killed from outside"
        return Ending(f"it {how} ({signal_name(-code)})", excerpt)
    return Ending(last_words(tail), excerpt)


def cause_in_log(tail: str, child: str) -> Cause | None:
    """The cause that a child's log tells, None where it is not a known one or the child has explained itself."""
    for rule in _HOOKS:
        if match := rule.last_match(tail):
            return rule.cause(match, child)
    if own_words(tail):
        return None
    found = [(rule, match) for rule in _ANYWHERE if (match := rule.last_match(tail))]
    if found:  # the line that came last: an earlier trouble may have been overcome
        rule, match = max(found, key=lambda item: tail.rfind("\n", 0, item[1].start()))
        return rule.cause(match, child)
    end = last_words(tail)
    for rule in _AT_THE_END:
        if match := rule.last_match(end):
            return rule.cause(match, child)
    return None


def _cause_of_signal(tail: str, code: int, oom: bool) -> Cause | None:
    # SGLang kills itself with the same signal when one of its processes has failed
    if oom and code == -signal.SIGKILL and not re.search(r"sigquit|kill_process_tree called", tail, re.IGNORECASE):
        return Cause("it was killed by the kernel for want of memory", _MEMORY_REMEDY)
    return _SHARED_MEMORY if code == -signal.SIGBUS else None


class _Rule:
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
        last = None
        for last in self._pattern.finditer(text):  # noqa: B007  the last one is wanted
            pass
        return last

    def cause(self, match: re.Match[str], child: str) -> Cause:
        remedy = self._trainer if child == TRAINER and self._trainer else self._remedy
        words = _fill(self._what, match.groupdict()), _fill(remedy, match.groupdict())
        return Cause(*words, self._final, self._whole)


def signal_name(number: int) -> str:
    """'SIGSEGV'; a real-time signal has no name of its own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _fill(text: str, groups: Mapping[str, str | None]) -> str:
    for name, value in groups.items():
        text = text.replace(f"{{{name}}}", " ".join((value or "").split())[:200])
    return text


# signals that a program gets for a fault of its own
_CRASHES = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP}

# a part of SGLang that got SIGKILL: from the kernel for want of memory, or from anybody else
_KILLED_PART = re.compile(
    r"(?P<early>scheduler) died during initialization \(exit code: -9\)"
    r"|Subprocess (?P<late>[a-z]+)\S* \(pid=\d+\) crashed with exit code -9\."
)

# what SGLang says before it ends all of its processes because one has failed
_FAILED = re.compile(r"hit an exception|scheduler died during initialization", re.IGNORECASE)

_MEMORY_REMEDY = "end other programs, or serve a smaller target; the kernel's log (`dmesg`) names what it has killed"
_OUT_OF_MEMORY = Cause("the machine ran out of memory", _MEMORY_REMEDY)
_ROOM = "end what else uses it (`nvidia-smi`), or lower --context-length or --max-running-requests"
_SHARED_MEMORY = Cause(
    "shared memory (/dev/shm) is full", "give it more: in a container --shm-size 16g or --ipc=host", final=True
)

_HOOKS = (
    _Rule(
        r"^tide: this SGLang is not \S+ as TIDE knows it:\n(?P<names>(?:^ +.+\n?)+)",
        "this SGLang is not the one TIDE is written for: {names}",
        "./install.sh installs that one; `tide doctor` checks it",
        final=True,
    ),
    _Rule(
        r"tide: SGLang did not apply the hooks on (?P<names>.+)",
        "SGLang did not apply TIDE's hooks on {names}",
        "./install.sh installs the SGLang that TIDE is written for; `tide doctor` checks it",
        final=True,
    ),
)

# Where one line fits two of them, the first is taken.
_ANYWHERE = (
    _Rule(
        r"^sglang serve: error: (?P<words>.+)$",
        "SGLang does not accept its arguments: {words}",
        "mend what stands after `--` or in sglang_arguments; `python -m sglang.launch_server --help` lists SGLang's",
        final=True,
        whole=True,
    ),
    _Rule(
        r"Not enough memory\. Please try to increase --mem-fraction-static"
        r"|Loaded weights leave no GPU memory for the KV cache"
        r"|Not enough GPU memory for hybrid",
        "the weights leave too little of the GPU's memory for the KV cache",
        f"{_ROOM}, or give SGLang a larger share: `-- --mem-fraction-static 0.9`",
    ),
    _Rule(
        r"(?:CUDA|HIP) out of memory\. Tried to allocate|(?:CUDA|HIP) error: out of memory",
        "the GPU ran out of memory",
        f"{_ROOM}, or give SGLang a smaller share: `-- --mem-fraction-static 0.7`",
        trainer="end what else uses it (`nvidia-smi`), or lower batch_tokens or max_sample_tokens (`tide config`)",
    ),
    _Rule(
        r"The memory capacity is unbalanced\. Some GPUs may be occupied by other processes\. pre",
        "other programs hold memory of some of the GPUs",
        "end them (`nvidia-smi` names them)",
    ),
    _Rule(
        r"DefaultCPUAllocator: can't allocate memory|\[Errno 12\] Cannot allocate memory|^MemoryError\b",
        _OUT_OF_MEMORY.what,
        _OUT_OF_MEMORY.remedy,
    ),
    _Rule(
        r"(?:shared memory segment|failed to extend) /dev/shm/nccl|\[Errno 28\] No space left on device: '/dev/shm/",
        _SHARED_MEMORY.what,
        _SHARED_MEMORY.remedy,
        final=True,
    ),
    _Rule(
        r"error while attempting to bind on address \('[^']*', (?P<port>\d+)[^\n]*address already in use",
        "port {port} is taken",
        "end what listens there, or choose another --port",
    ),
    _Rule(
        r"Port is already in use\.|\[Errno 98\] Address already in use|ZMQError: Address already in use",
        "a port that SGLang uses between its processes is taken",
        "`tide up` again: SGLang looks for other ones; else choose another --port",
    ),
    _Rule(
        r"Cannot access gated repo for url https?://[^/]+/(?:api/models/)?(?P<id>[^/\s]+/[^/\s]+)",
        "{id} is gated",
        "accept its terms on the hub, then `hf auth login`, then try again",
        final=True,
    ),
    _Rule(
        r"Repository Not Found for url: https?://[^/]+/(?:api/models/)?(?P<id>[^/\s]+/[^/\s.]+)",
        "the hub has no {id}, or it is private",
        "check the name; for a private one `hf auth login`",
        final=True,
    ),
    _Rule(
        r"^OSError: (?P<id>\S+) is not a local folder and is not a valid model identifier",
        "{id} is neither a folder nor on the hub",
        "check the name, or pass a checkpoint folder",
        final=True,
    ),
    _Rule(
        r"Cannot find any model weights with `(?P<path>[^`]+)`",
        "{path} has no weights",
        "fetch the checkpoint anew: *.safetensors files are wanted",
        final=True,
    ),
    _Rule(
        r"^Error while deserializing header: .*|SafetensorError: (?P<words>.+)",
        "a file of weights is damaged",
        "fetch the checkpoint anew",
        final=True,
    ),
    _Rule(
        r"Model architectures (?P<names>\[[^\]]*\]) (?:are not supported for now|failed)",
        "SGLang cannot serve the architecture {names}",
        "choose another --target; `tide logs engine` may say which package it lacks",
        final=True,
    ),
    _Rule(
        r"no kernel image is available for execution on the device"
        r"|with CUDA capability sm_\d+ is not compatible with the current PyTorch installation",
        "this torch has no kernels for this GPU",
        "./install.sh installs the build for your driver; GPUs that torch no longer supports cannot be used",
        final=True,
    ),
    _Rule(
        r"The NVIDIA driver on your system is too old \(found version (?P<version>\d+)\)",
        "the NVIDIA driver is too old for this torch (it speaks CUDA {version})",
        "install a newer driver",
        final=True,
    ),
    _Rule(
        r"CUDA driver version is insufficient for CUDA runtime version"
        r"|forward compatibility was attempted on non supported HW",
        "the NVIDIA driver is too old for this torch",
        "install a newer driver",
        final=True,
    ),
    _Rule(
        r"Driver/library version mismatch",
        "the NVIDIA driver was updated while it was in use",
        "restart the machine",
        final=True,
    ),
    _Rule(
        r"No space left on device|Disk quota exceeded",
        "the disk is full",
        "free some space: `tide paths` shows where TIDE writes",
    ),
)

# Lines that programs also write about troubles they get over: they count only where they are the last word.
_AT_THE_END = (
    _Rule(
        r"outgoing traffic has been disabled|We couldn't connect to '[^']+' to load the files",
        "a file of the checkpoint is not in the hub's cache, and the hub is out of reach",
        "connect (and unset HF_HUB_OFFLINE), or pass a complete checkpoint folder with --target",
        final=True,
    ),
    _Rule(
        r"PermissionError: \[Errno 13?\] [^:]+: '(?P<path>[^']+)'",
        "it may not use {path}",
        "give this user the right to, or name another folder (`tide paths`)",
        final=True,
    ),
    _Rule(
        r"FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<path>[^']+)'",
        "{path} is missing",
        "if it belongs to a checkpoint or a draft, fetch that anew; `tide logs` shows who looked for it",
    ),
)
