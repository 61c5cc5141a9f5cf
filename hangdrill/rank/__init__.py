"""What runs inside a rank: the agent that places faults, counts operations and lets the evidence out.

This room imports torch and the standard library, and nothing else of hangdrill, so that the folder can be copied
beside any job (`<anywhere on sys.path>/hangdrill/rank/`). It is started as

    torchrun ... -m hangdrill.rank TARGET [ARGS...]

and reads the orders of a drill from the file named by `HANGDRILL_AGENT`. Without that variable it serves the rank to
`hangdrill collect` in the directory named by `HANGDRILL_SOCKETS` (absolute; made if missing, mode 0700): no fault, no
hooks, and the program ends when it ends. With neither it only runs the target.
It never judges anything: see docs/reference/run-directory.md for what it writes.
"""

from hangdrill.rank.current import disarm, step

__all__ = ["disarm", "step"]
