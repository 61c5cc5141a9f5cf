"""What each torch, backend and road is known to deliver of a hang: a table as data, and a look-up.

The table explains a missing dump to the user, and drills hold it against reality (the check `arrival-as-known`), so
that a torch that has changed is noticed. Every row was measured (docs/what-torch-does.md, docs/gpu.md). Pure.
"""

from hangdrill.arrival.lookup import expected_arrival, version_of
from hangdrill.arrival.row import Arrival, Role
from hangdrill.arrival.table import ARRIVALS

__all__ = ["ARRIVALS", "Arrival", "Role", "expected_arrival", "version_of"]
