"""torch's own debug server, started as its users start it, for drills of that road.

It binds where torch binds. The front end (rank 0) takes a free port, so that drills side by side do not collide.
What keeps it from starting is told in the facts; the job runs on without it, and the drill shows what is then lost.
"""

from pathlib import Path

__all__ = ["start"]


def start(dump_directory: Path, *, interval_s: float) -> list[str]:
    """Start it in this rank. Returns what went wrong, as notes."""
    try:
        from torch.distributed.debug import start_debug_server
    except ImportError as error:
        return [f"the debug server did not start: this torch has none ({error})"]
    try:
        dump_directory.mkdir(mode=0o700, exist_ok=True)
        start_debug_server(port=0, start_method="spawn", dump_dir=str(dump_directory), dump_interval=interval_s)
    except Exception as error:  # whatever torch raises: the drill is to show the loss, not to die of it
        return [f"the debug server did not start: {type(error).__name__}: {error}"]
    return []
