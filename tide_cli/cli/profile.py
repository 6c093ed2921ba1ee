"""`tide profile`: measure what decode rounds cost on the running engine, for the speculation policy."""

from __future__ import annotations

from typing import Any

from tide_cli.cli.app import app
from tide_cli.cli.output import complain, print_json, print_table
from tide_cli.cli.where import Config, Json, StateDir, appliance_paths
from tide_cli.errors import TideError, reason
from tide_cli.printable import many
from tide_cli.supervisor.control_client import ask

_PARTS = ("draft", "verify", "extend")


@app.command()
def profile(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Measure what a decode round costs.

    By batch size and draft steps; `--speculation auto` goes by it from now on, and `tide simulate --profile` by its
    file. Best without traffic and while no training cycle runs; batch sizes that other requests leave no rounds to keep
    their former figures, and a warning says so.
    """
    import httpx

    from tide_cli.engine.client import EngineClient

    paths = appliance_paths(state_dir, config)
    status = ask(paths.socket, "GET", "/v1/status")
    if status["state"] not in ("READY", "DEGRADED"):
        raise TideError(f"the engine is not ready ({status['state']})", remedy="try again when `tide ps` says READY")
    address = httpx.URL(status["address"])
    engine = EngineClient(address.host, address.port or 80, timeout=120.0)
    try:
        measured = engine.measure()
        doubts = _doubts(measured, status, ask(paths.socket, "GET", "/v1/status"))
    except httpx.HTTPError as error:
        raise TideError("the engine did not answer", why=reason(error), remedy="`tide status`") from None
    finally:
        engine.close()
    if json:
        print_json(measured)
    else:
        _print(measured)
    if doubts:
        complain(doubts)


def _print(measured: dict[str, Any]) -> None:
    """A round is the draft's steps, the target's verification, the draft's catching up, and what lies between."""
    conditions = measured["conditions"]
    print(", ".join(f"{name} {value}" for name, value in conditions.items()))
    header = ("batch", "steps", "round ms", *(f"{part} ms" for part in _PARTS), "plain / round")
    plain = {row["batch"]: row["seconds"] for row in measured["rounds"] if row["steps"] == 0}
    print_table(header, [_row(row, plain[row["batch"]]) for row in measured["rounds"]])
    if measured["file"]:
        print(f"kept in {measured['file']}")
    else:
        complain(["not kept for the next start", "`tide logs engine` says why"])


def _doubts(measured: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What else the machine did, by the status before and after, and what could not be measured; empty for nothing."""
    running = int((before["load"] or {}).get("running") or 0)  # afterwards some are the measurement's own
    trained = before["training"]["running"] or after["training"]["running"]
    beside = [many(running, "request")] if running else []
    beside += ["a training cycle"] if trained else []
    lines = [f"{' and '.join(beside)} ran meanwhile: the figures are those of a busy machine"] if beside else []
    there = {row["batch"] for row in measured["rounds"]}
    for known, become in ((True, "the former figures stay"), (False, "there are no figures")):
        sizes = ", ".join(str(size) for size in measured["unmeasured"] if (size in there) is known)
        lines += [f"not measured at batch size {sizes}: {become}"] if sizes else []
    pause = "`tide train pause`, then " if trained else ""
    return [*lines, f"{pause}`tide profile` again, when `tide status` shows no requests"] if lines else []


def _row(row: dict[str, Any], plain: float) -> list[object]:
    times = [row["seconds"], *(row.get(part) for part in _PARTS)]
    return [
        row["batch"],
        row["steps"],
        *(None if seconds is None else f"{1000 * seconds:.2f}" for seconds in times),
        f"{plain / row['seconds']:.3f}",
    ]
