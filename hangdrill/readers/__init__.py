"""Who reads the dumps of an incident: this process, several of this machine, or the workers of a cluster.

This room hands `hangdrill.recorder` its `Each`: jobs in, outcomes out, in the same order. It knows nothing of what is
in a dump. The way through the room: `opening` chooses, `engine`, `processes` and `cluster` are what can be chosen,
`flight` keeps a bounded number of `batches` in the air, and `lone` reads again what a dead process left.
"""

from hangdrill.readers.engine import Engine, GivenExecutor, Progress, no_progress
from hangdrill.readers.flight import read_batches, read_in_batches
from hangdrill.readers.opening import open_executor, read_here

__all__ = [
    "Engine",
    "GivenExecutor",
    "Progress",
    "no_progress",
    "open_executor",
    "read_batches",
    "read_here",
    "read_in_batches",
]
