"""Measures a stack from inside one job: memory, start, latency, steps a second, checkpoints, recovery, shutdown.

    torchrun ... -m hangdrill.rank.canary --out DIRECTORY --backend NAME --parts start,groups,latency,...

Every rank leaves `DIRECTORY/rank_<r>.<attempt>.json`, written whole or not at all and anew after each part, so that a
rank that dies or hangs leaves what it had, and the part in which it was. Nothing is judged here: the controller
compares many such files of two stacks. This room imports torch and the standard library alone and runs with torch 2.11
and newer.
"""
