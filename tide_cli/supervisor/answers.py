"""Why an order cannot be carried out now, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tide_cli.supervisor.lifecycle import Child, State
from tide_cli.supervisor.messages import ENGINE, TRAINER

NO_TRAINING = "training is off on this appliance"


def why_no_restart(children: Mapping[str, Child], names: Sequence[str], stopping: bool) -> str | None:
    """Why these children cannot be started anew; None where they can."""
    if stopping:
        return "the appliance is ending"
    if not names:
        return f"neither {ENGINE} nor {TRAINER} is named"
    if len(set(names)) < len(names):
        return "one is named twice"
    for name in names:
        if name not in children:
            return f"this appliance has no {name}"
        if name not in (ENGINE, TRAINER):
            return f"the {name} is prepared once, before the {ENGINE} starts"
        if children[name].state in (State.WAITING, State.STOPPING):
            return f"the {name} is {children[name].state}; try again later"
    return None


def why_no_training(children: Mapping[str, Child]) -> str | None:
    """Why no cycle can begin; None where one can."""
    trainer, engine = children.get(TRAINER), children[ENGINE]
    if trainer is None:
        return NO_TRAINING
    if trainer.state is State.FATAL:
        return f"the trainer has been given up ({trainer.reason}); `tide logs trainer`, then `tide down` and `tide up`"
    for child in (trainer, engine):
        if child.state is not State.READY:
            return f"the {child.name} is not ready ({child.state}); try again when `tide ps` says READY"
    return None
