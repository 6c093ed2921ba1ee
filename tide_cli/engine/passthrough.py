"""Arguments that a user hands on to SGLang: which ones TIDE refuses, and what to use instead. Pure.

What is not refused stands behind TIDE's own arguments, where SGLang lets the later one win. Names that SGLang does not
know are not looked for here, because its list takes torch to load: SGLang itself ends within seconds of its start, and
long before it loads a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tide_cli.errors import UsageError


@dataclass(frozen=True)
class _Refused:
    """names: SGLang's; one that ends in `*` stands for all that begin so. unless: a flag of `tide up` that lifts it."""

    names: tuple[str, ...]
    why: str
    remedy: str
    unless: str | None = None


_ONE_WRITER = "each of its parts would capture hidden states, and the spool has one writer"
_OWN_CLIENT = "TIDE itself asks the engine for tokens, figures and swaps, by HTTP and without a key"
_ONE_MACHINE = "an appliance is one machine"
_PROXY = "put a proxy that asks for it in front of the port"

_REFUSED = (
    _Refused(("--model-path", "--model"), "the target is TIDE's", "use --target"),
    _Refused(("--host",), "TIDE asks the engine there", "use --host before the `--`"),
    _Refused(("--port",), "TIDE asks the engine there", "use --port before the `--`"),
    _Refused(("--dtype",), "training must know it", "use --dtype before the `--`"),
    _Refused(("--context-length",), "the plan counts with it", "use --context-length before the `--`"),
    _Refused(
        ("--max-running-requests",), "capture is laid out for it", "use --max-running-requests before the `--`"
    ),
    _Refused(("--max-total-tokens",), "the plan counts with it", "set max_total_tokens (`tide config`)"),
    _Refused(("--tp-size", "--tensor-parallel-size"), "the plan chooses it with the GPUs", "use --tp before the `--`"),
    _Refused(
        ("--device", "--base-gpu-id", "--gpu-id-step"),
        "the plan chooses the devices",
        "use --serve-gpus and --train-gpus before the `--`",
    ),
    _Refused(
        ("--speculative-*", "--no-speculative-*", "--decoupled-spec-*"),
        "the draft and its steps are TIDE's",
        "use --draft, the setting draft_steps, or --no-speculation",
    ),
    _Refused(
        ("--dp-size", "--data-parallel-size", "--attn-dp-size", "--attention-data-parallel-size",
         "--enable-dp-attention"),
        _ONE_WRITER, "serve without capture (--no-capture), or start an appliance for each replica", "--no-capture",
    ),
    _Refused(
        ("--enable-dp-attention-local-control-broadcast",),
        "its parts would be told of a new draft in different rounds, and wait for each other for ever",
        "leave it out",
    ),
    _Refused(
        ("--dcp-size", "--decode-context-parallel-size", "--attn-cp-size", "--attention-context-parallel-size"),
        "each rank would hold a part of every sequence, and one rank captures",
        "serve without capture: --no-capture",
        "--no-capture",
    ),
    _Refused(
        ("--pp-size", "--pipeline-parallel-size"),
        "a draft reads hidden states of first and last layers on one device",
        "use --tp before the `--`, or --no-speculation",
        "--no-speculation",
    ),
    _Refused(
        ("--nnodes", "--node-rank", "--dist-init-addr", "--nccl-init-addr", "--use-ray"),
        _ONE_MACHINE,
        "use --tp to span the GPUs of this one",
    ),
    _Refused(
        ("--disaggregation-*", "--encoder-only", "--language-only"),
        "one engine must see prompt and answer",
        "leave it out",
    ),
    _Refused(
        ("--grpc-mode", "--smg-grpc-mode"), _OWN_CLIENT, "leave it out; --grpc-port serves gRPC beside HTTP"
    ),
    _Refused(("--api-key", "--admin-api-key"), _OWN_CLIENT, _PROXY),
    _Refused(("--ssl-*", "--enable-ssl-refresh"), _OWN_CLIENT, _PROXY),
    _Refused(("--skip-tokenizer-init", "--is-embedding"), "TIDE asks for a token of text at the start", "leave it out"),
    _Refused(("--config",), "the file could contradict the plan", "write its arguments behind the `--`"),
    _Refused(("--help", "-h"), "SGLang would print it and end", "`python -m sglang.launch_server --help` prints it"),
)  # fmt: skip
REFUSED_NAMES = tuple(name for refused in _REFUSED for name in refused.names)


def check_sglang_arguments(arguments: Sequence[str], *, speculation: bool, capture: bool) -> None:
    """Raises UsageError for what contradicts the plan, with the reason and what to use instead.

    speculation, capture: whether the appliance speculates, and stores hidden states.
    """
    lifted = {flag for flag, on in (("--no-capture", capture), ("--no-speculation", speculation)) if not on}
    if arguments and not arguments[0].startswith("-"):
        raise UsageError(
            f"unexpected argument {arguments[0]!r}", remedy="SGLang's arguments stand behind `--` and begin with one"
        )
    for argument in arguments:
        typed = argument.partition("=")[0]
        for refused in _REFUSED:
            if refused.unless in lifted:
                if typed in refused.names:
                    break  # written out, it is no beginning of another name
                continue
            if name := next((name for name in refused.names if _means(typed, name)), None):
                meant = "" if name.rstrip("*") in typed else f" (to SGLang that is {name})"
                raise UsageError(f"{typed}{meant} is not handed on to SGLang", why=refused.why, remedy=refused.remedy)


def _means(typed: str, name: str) -> bool:
    """Whether SGLang takes `typed` for `name`: it accepts every beginning of a name that fits no other."""
    if name.endswith("*"):
        return typed.startswith(name[:-1])
    return typed == name or (len(typed) > 2 and typed.startswith("--") and name.startswith(typed))
