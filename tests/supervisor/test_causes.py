"""Known causes of death, told from lines as SGLang, torch, the hub's client and the kernel write them."""

from __future__ import annotations

import signal

import pytest

from tide_cli.supervisor.causes import cause_in_log, explain
from tide_cli.supervisor.known_causes import Cause
from tide_cli.supervisor.messages import ENGINE, TRAINER

SIGQUIT = (
    "[2026-11-29 17:30:12] Received sigquit from a child process. It usually means the child failed.\n"
    "[2026-11-29 17:30:12] kill_process_tree called: parent_pid=4711, include_parent=True, pid=4711\n"
)


def scheduler(error: str) -> str:
    """An exception in SGLang's scheduler, up to the end of the process that then kills itself."""
    return (
        "[2026-11-29 17:30:11 TP0] Load weight begin. avail mem=78.61 GB\n"
        "[2026-11-29 17:30:12 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x/sglang/srt/managers/scheduler.py", line 6355, in run_scheduler_process\n'
        "    scheduler = Scheduler(server_args, port_args)\n"
        f"{error}\n\n"
    ) + SIGQUIT


def cause(tail: str, code: int = -signal.SIGKILL, child: str = ENGINE) -> Cause:
    """The known cause of an end: what and what to do are a line each."""
    ending = explain(tail, code, child, oom=True)
    what, remedy = ending.words.split("\n")
    return Cause(what, remedy, ending.final)


OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 312.00 MiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 2.19 MiB is free. Including non-PyTorch memory, this process has 79.12 GiB memory in use."
)
NO_ROOM = (
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
    "Current value: mem_fraction_static=0.842"
)
NO_ROOM_FOR_DRAFT = (
    "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.8. "
    "Raise --mem-fraction-static above 0.871 (minimum viable = 1 - available/pre = 0.8706). "
    "If using speculative decoding, draft weights are now counted."
)
DIED = (
    "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common "
    "cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
)
CRASHED = "[2026-11-29 17:30:12] Subprocess scheduler_0 (pid=99) crashed with exit code -9. Triggering SIGQUIT…\n"
ALLOCATOR = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:116] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 4294967296 bytes. Error code 12 (Cannot allocate memory)"
)
BIND = (
    "[2026-11-29 17:30:12] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): "
    "address already in use\n[2026-11-29 17:30:12] INFO:     Waiting for application shutdown.\n"
)
GATED = (
    "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-66f4b037)\n\n"
    "Cannot access gated repo for url https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct/resolve/main/config.json."
    "\nAccess to model meta-llama/Llama-3.1-8B-Instruct is restricted. You must have access to it and be authenticated."
)
UNKNOWN_REPOSITORY = (
    "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1-2)\n\n"
    "Repository Not Found for url: https://huggingface.co/api/models/nobody/nothing."
)
OFFLINE = (
    "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing "
    "traffic has been disabled. To enable hf.co look-ups and downloads online, set 'local_files_only' to False."
)
OLD_DRIVER = (
    "RuntimeError: The NVIDIA driver on your system is too old (found version 12040). Please update your GPU driver by "
    "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx"
)
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
INCOMPATIBLE = (
    "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
    "The current PyTorch install supports CUDA capabilities sm_70 sm_75 sm_80 sm_86 sm_90."
)
ILLEGAL = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIll…"
NCCL = (
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n"
    "Last error:\nError while creating shared memory segment /dev/shm/nccl-vzIpS6 (size 9637888)"
)
EXTEND = "NCCL WARN Error: failed to extend /dev/shm/nccl-gV to 96 bytes, error: No space left on device (28)"
ARCHITECTURE = "ValueError: Model architectures ['FooForCausalLM'] are not supported for now. Supported…"


@pytest.mark.parametrize(
    ("error", "what", "remedy", "final"),
    [
        (OUT_OF_MEMORY, "the GPU ran out of memory", "--mem-fraction-static 0.7", False),
        ("torch.AcceleratorError: CUDA error: out of memory", "the GPU ran out of memory", "nvidia-smi", False),
        (NO_ROOM, "too little of the GPU's memory for the KV cache", "--mem-fraction-static 0.9", False),
        (NO_ROOM_FOR_DRAFT, "too little of the GPU's memory for the KV cache", "--max-running-requests", False),
        (DIED, "the machine ran out of memory", "smaller target", False),
        (ALLOCATOR, "the machine ran out of memory", "dmesg", False),
        ("MemoryError", "the machine ran out of memory", "dmesg", False),
        ("OSError: [Errno 12] Cannot allocate memory", "the machine ran out of memory", "dmesg", False),
        (ILLEGAL, "illegal memory access", "--disable-decode-cuda-graph", False),
        (NCCL, "/dev/shm", "--shm-size", True),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/x'", "/dev/shm", "--shm-size", True),
        (EXTEND, "/dev/shm", "--ipc=host", True),
        ("OSError: [Errno 28] No space left on device", "the disk is full", "tide paths", False),
        ("OSError: [Errno 122] Disk quota exceeded: '/home/u/x'", "the disk is full", "tide paths", False),
        ("zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:5570')", "is taken", "--port", False),
        (GATED, "meta-llama/Llama-3.1-8B-Instruct is gated", "hf auth login", True),
        (UNKNOWN_REPOSITORY, "the hub has no nobody/nothing", "check the name", True),
        (OFFLINE, "the hub is out of reach", "HF_HUB_OFFLINE", True),
        ("RuntimeError: Cannot find any model weights with `/models/x`", "/models/x has no weights", "anew", True),
        ("safetensors_rust.SafetensorError: Error while deserializing header: too large", "damaged", "anew", True),
        (ARCHITECTURE, "['FooForCausalLM']", "--target", True),
        (NO_KERNEL, "no kernels for this GPU", "./install.sh", True),
        (INCOMPATIBLE, "no kernels for this GPU", "./install.sh", True),
        (OLD_DRIVER, "too old for this torch (it speaks CUDA 12040)", "newer driver", True),
        ("RuntimeError: CUDA driver version is insufficient for CUDA runtime version", "too old", "driver", True),
        ("PermissionError: [Errno 13] Permission denied: '/m/x.json'", "it may not use /m/x.json", "right", True),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/m/a.json'", "/m/a.json is missing", "anew", False),
        ("RuntimeError: tide: SGLang did not apply the hooks on a.b, c.d", "hooks on a.b, c.d", "./install.sh", True),
    ],
)  # fmt: skip
def test_an_exception_in_the_scheduler(error: str, what: str, remedy: str, final: bool) -> None:
    found = cause(scheduler(error))
    assert what in found.what
    assert remedy in found.remedy
    assert found.final is final


def test_a_moved_hook_is_named() -> None:
    tail = (
        "tide: this SGLang is not 0.5.23 as TIDE knows it:\n  a.B.c is missing\n  d.E.f takes other arguments\n"
        "tide: run ./install.sh, which installs sglang==0.5.23\n"
    )
    found = cause(tail, code=1)
    assert found.what.endswith("a.B.c is missing d.E.f takes other arguments")
    assert found.final


def test_arguments_that_sglang_does_not_know() -> None:
    tail = "usage: sglang serve [-h] --model-path MODEL_PATH\nsglang serve: error: unrecognized arguments: --bogus 3\n"
    found = cause(tail, code=2)
    assert found.what == "SGLang does not accept its arguments: unrecognized arguments: --bogus 3"
    assert explain(tail, 2, ENGINE).excerpt == ()
    assert found.final


def test_the_port_that_is_taken_is_named() -> None:
    assert cause(BIND, code=1).what == "port 30000 is taken"


def test_a_scheduler_killed_by_the_kernel() -> None:
    assert cause(CRASHED + SIGQUIT).what == "the machine ran out of memory"


@pytest.mark.parametrize("log", [CRASHED + SIGQUIT, DIED])
def test_a_scheduler_killed_by_somebody_else(log: str) -> None:
    ending = explain(log, -signal.SIGKILL, ENGINE)
    assert (ending.words, ending.explained) == ("its scheduler was killed from outside (SIGKILL)", False)
    assert explain(log, -signal.SIGKILL, ENGINE, oom=True).explained


def test_a_kill_from_outside_is_the_kernels_only_where_it_has_killed() -> None:
    assert explain("", -signal.SIGKILL, ENGINE).words == "it was killed from outside (SIGKILL)"
    assert "memory" in cause("[2026-11-29 17:30:12] Decode batch, #running-req: 1\n").what
    assert "memory" in cause("", child=TRAINER).what


def test_sglang_killing_itself_is_not_the_kernel() -> None:
    ending = explain(scheduler("AssertionError: something else"), -signal.SIGKILL, ENGINE)
    assert ending.words == "AssertionError: something else"
    assert not ending.final
    assert not ending.explained
    assert len(ending.excerpt) <= 8
    assert ending.excerpt[-1].endswith("pid=4711")


def test_a_bus_error_is_shared_memory() -> None:
    assert "/dev/shm" in cause("", code=-signal.SIGBUS).what


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGSEGV, "it crashed (SIGSEGV)"),
        (-signal.SIGTERM, "it was killed from outside (SIGTERM)"),
        (-40, "it was killed from outside (signal 40)"),
    ],
)
def test_a_signal_is_named_where_the_log_says_nothing_of_a_failure(code: int, words: str) -> None:
    assert explain("[2026-11-29 17:30:12] Decode batch\n", code, ENGINE).words == words


def test_the_trainer_has_other_remedies() -> None:
    assert "batch_tokens" in cause(OUT_OF_MEMORY, code=1, child=TRAINER).remedy


def test_what_was_said_last_counts() -> None:
    assert "disk" in cause(scheduler(OUT_OF_MEMORY) + "OSError: [Errno 28] No space left on device\n", code=1).what
    assert "GPU" in cause("OSError: [Errno 28] No space left on device\n" + scheduler(OUT_OF_MEMORY), code=1).what


def test_a_trouble_that_was_overcome_is_no_cause() -> None:
    tail = "PermissionError: [Errno 13] Permission denied: '/sys/x'\nthen\nKeyError: 'y'\n"
    assert cause_in_log(tail, ENGINE) is None
    assert explain(tail, 1, ENGINE).words == "KeyError: 'y'"


def test_the_childs_own_words_win() -> None:
    tail = "OSError: [Errno 28] No space left on device\ntide: the draft is damaged\ntide: pass another one\n"
    ending = explain(tail, 1, "draft")
    assert ending.words == "the draft is damaged\npass another one"
    assert ending.excerpt == ()


def test_words_of_a_known_cause_are_two_lines() -> None:
    ending = explain(scheduler(NO_ROOM), -9, ENGINE)
    assert len(ending.words.split("\n")) == 2
    assert ending.excerpt


def test_a_cause_is_explained_by_the_log_or_guessed_from_the_signal() -> None:
    assert explain(CRASHED + SIGQUIT, -signal.SIGKILL, ENGINE, oom=True).explained
    assert not explain("", -signal.SIGKILL, ENGINE).explained


def test_an_ordinary_end_has_no_cause() -> None:
    assert explain("", 0, ENGINE).words == ""
    assert (
        cause_in_log("[2026-11-29 17:30:12] Ignore import error when loading x: No module named 'y'\n", ENGINE) is None
    )
