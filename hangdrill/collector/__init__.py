"""A process beside the ranks that pulls their evidence over local sockets and stores it where it survives.

    collect(options, stop)      watch a job until it is over; what `python -m hangdrill.collector` runs
    copy_native(...)            only copy what torch wrote by itself (the roads on which no collector runs)

It never imports torch, never attaches to a rank that answers, and never takes a rank down with it.
"""

from hangdrill.collector.collect import collect
from hangdrill.collector.events import CollectorEvent, EventName
from hangdrill.collector.native import copy_native
from hangdrill.collector.options import CollectorOptions

__all__ = ["CollectorEvent", "CollectorOptions", "EventName", "collect", "copy_native"]
