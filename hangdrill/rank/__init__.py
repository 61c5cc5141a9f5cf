"""What runs inside a rank: the agent that places faults, counts operations and lets the evidence out.

This room imports torch and the standard library, and nothing else of hangdrill, so that the folder can be copied
beside any job (`<anywhere on sys.path>/hangdrill/rank/`). It is started as

    torchrun ... -m hangdrill.rank TARGET [ARGS...]

and reads its orders from the file named by `HANGDRILL_AGENT`; without that variable it only runs the target.
It never judges anything: see docs/reference/run-directory.md for what it writes.
"""

from hangdrill.rank.current import disarm, step

__all__ = ["disarm", "step"]
