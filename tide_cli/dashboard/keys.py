"""The keys of the dashboard, in words."""

from __future__ import annotations


def key_table(*, attached: bool, readonly: bool) -> list[tuple[str, str, str]]:
    """Key, what it does in a word, and in full; the first one leaves. attached: on the terminal of `tide up`."""
    if attached:
        way_out = [
            ("q", "close", "close the dashboard; the appliance goes on in this terminal, as plain lines"),
            ("^C", "END", "end the appliance in order; once more: kill it"),
        ]
    else:
        way_out = [("q", "detach", "leave; nothing else ends, Ctrl-C does the same")]
    orders = [
        ("p", "pause", "pause adaptation, or resume it"),
        ("t", "train", "begin a training cycle now"),
        ("r", "rollback", "serve the version before the present one (asks)"),
    ]
    return [
        *way_out,
        ("?", "help", "this page"),
        *([] if readonly else orders),
        ("l", "logs", "the ends of the logs, without what requests say"),
        ("1-5", "panel", "a panel alone, and back"),
        ("f", "freeze", "hold the picture still, or let it go on"),
        ("s", "SVG", "save a picture in the present folder"),
    ]
