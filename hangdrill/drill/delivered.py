"""The controller's own look at what was delivered and at what deletes it, when the job is over. Facts only."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hangdrill.delivery.inspection import Question, ask
from hangdrill.drill.collector_command import delivery_of
from hangdrill.drill.layout import RunLayout, write_json
from hangdrill.drill.plan_values import CONTROLLER_MARKS, Plan
from hangdrill.model.delivery import Delivered

if TYPE_CHECKING:
    from hangdrill.delivery.retention import What

__all__ = ["look_at_delivered"]


def look_at_delivered(plan: Plan, environ: Mapping[str, str]) -> Delivered | None:
    """Write `delivered.json`; None where the scenario delivers and promises nothing. At most some 25 s."""
    url, keep_days = delivery_of(plan.scenario).url, plan.scenario.recorder.keep_days
    if url is None and keep_days is None:
        return None
    layout = RunLayout(Path(plan.run_dir))
    place: tuple[str, What] = (str(layout.evidence), "evidence") if url is None else (url, "delivered")
    question = Question(
        evidence=str(layout.evidence) if url is not None else "", kept=() if keep_days is None else (place,)
    )
    marks = {key: plan.environment[key] for key in CONTROLLER_MARKS}
    found = ask(question, {**environ, **marks})
    write_json(layout.delivered, found)
    return found
