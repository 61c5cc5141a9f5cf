"""The look-up: rows are tried in order, the first that fits counts; None where nothing was measured."""

from collections.abc import Sequence

from hangdrill.arrival.row import Arrival, Version
from hangdrill.arrival.table import ARRIVALS
from hangdrill.model.scenario import FaultKind, Trigger

__all__ = ["expected_arrival", "version_of"]

CLASS_OF_REQUEST = {
    "gloo": "ProcessGroupGloo",
    "nccl2": "ProcessGroupNCCL2",
    "nccl-lazy": "ProcessGroupNCCLLazy",
    "nccl-legacy": "ProcessGroupNCCL",
}
"""The class behind a requested name; plain "nccl" is left out, it depends on the version and the environment."""

DEFAULT_INTERVAL_S = 60.0
"""How often torch's debug server polls when nobody says otherwise."""


def expected_arrival(
    *,
    torch: str,
    backend_class: str,
    backend_requested: str,
    trigger: Trigger,
    fault: FaultKind,
    interval_s: float = DEFAULT_INTERVAL_S,
    rows: Sequence[Arrival] = ARRIVALS,
) -> Arrival | None:
    """The first row that fits. torch is as torch spells it ("2.15.0+cu132"); interval_s is the debug server's."""
    ran = backend_class or CLASS_OF_REQUEST.get(backend_requested, "")
    version = version_of(torch)
    for row in rows:
        if (row.backend_classes and ran not in row.backend_classes) or trigger not in row.triggers:
            continue
        if row.faults and fault not in row.faults:
            continue
        if row.from_interval_s <= interval_s < row.below_interval_s and _holds_for(row, version):
            return row
    return None


def version_of(text: str) -> Version:
    """The leading numbers of a version: "2.15.0+cu132" is (2, 15, 0), "2.16.0a0+git" is (2, 16), "" is ()."""
    numbers: list[int] = []
    for part in text.split("+", maxsplit=1)[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _holds_for(row: Arrival, version: Version) -> bool:
    """An unknown version fits rows without a range only."""
    if not row.since and not row.until:
        return True
    return bool(version) and version >= row.since and (not row.until or version < row.until)
