"""torch's HookOpName and the names of operations in scenarios and dumps: which is which.

A scenario says `op = "all_reduce"`. A name stands for its whole family, as in the dumps, where gloo shows
all_gather_into_tensor as all_gather and all_to_all_single as all_to_all; a special name stands for itself alone.
"""

from collections.abc import Mapping

from hangdrill.rank.orders import OrdersError
from hangdrill.rank.record import COLLECTIVES, P2P, UNRECORDED

__all__ = ["OpNames"]

TORCH_NAMES = {
    "SEND": "send",
    "RECV": "recv",
    "BROADCAST": "broadcast",
    "ALLREDUCE": "all_reduce",
    "REDUCE": "reduce",
    "ALLGATHER": "all_gather",
    "REDUCE_SCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
    "BARRIER": "barrier",
    "SCATTER": "scatter",
    "GATHER": "gather",
    "SPLIT": "split",
    "NEW_WINDOW": "new_window",
    "ALLREDUCE_COALESCED": "all_reduce_coalesced",
    "ALLGATHER_BASE": "all_gather_into_tensor",
    "ALLGATHER_COALESCED": "all_gather_coalesced",
    "ALLGATHER_INTO_TENSOR_COALESCED": "all_gather_into_tensor_coalesced",
    "REDUCE_SCATTER_BASE": "reduce_scatter_tensor",
    "REDUCE_SCATTER_TENSOR_COALESCED": "reduce_scatter_tensor_coalesced",
    "ALLTOALL_BASE": "all_to_all_single",
    "UNKNOWN": "unknown",
}

DEFAULT_CODES = {name: code for code, name in enumerate(TORCH_NAMES)}
"""The codes of torch 2.15; a torch without hooks has none of its own."""

FAMILIES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
ALIASES = {"isend": "send", "irecv": "recv"}


class OpNames:
    """The operations of one torch, by code."""

    def __init__(self, members: Mapping[str, int] = DEFAULT_CODES) -> None:
        """members: HookOpName's members and their values."""
        self.names = {code: TORCH_NAMES.get(member, member.lower()) for member, code in members.items()}
        self.p2p = frozenset(code for code, name in self.names.items() if name in ("send", "recv"))
        self.columns = tuple(self._column(code) for code in range(max(self.names) + 1))
        """By code: the word of a slot in which the operation is counted."""

    def _column(self, code: int) -> int:
        if code in self.p2p:
            return P2P
        return UNRECORDED if self.names.get(code) in ("split", "new_window") else COLLECTIVES

    def code(self, name: str) -> int:
        """The code of exactly this operation."""
        return next(code for code, known in self.names.items() if known == name)

    def matching(self, op: str | None) -> frozenset[int]:
        """The codes a scenario's `op` stands for; None stands for all that are recorded. Raises OrdersError."""
        if op is None:
            return frozenset(code for code in self.names if self.columns[code] != UNRECORDED)
        wanted = ALIASES.get(op, op)
        found = {code for code, name in self.names.items() if name == wanted}
        if wanted in FAMILIES:
            found |= {code for code, name in self.names.items() if name.startswith(f"{wanted}_")}
        if not found:
            raise OrdersError(
                f"fault.op: no operation is called {op!r}; there are {', '.join(sorted(self.names.values()))}"
            )
        return frozenset(found)
