"""The collector as one function."""

from hangdrill.collector.ending import StopSignal
from hangdrill.collector.options import CollectorOptions, check_options
from hangdrill.collector.store import EvidenceStore
from hangdrill.collector.watch import Watch
from hangdrill.model.run import Manifest

__all__ = ["collect"]


def collect(options: CollectorOptions, stop: StopSignal) -> Manifest:
    """Watch the job until it is over or `stop` is set; returns the manifest as it lies on the disk.

    Raises UsageError for options the user can mend, and MachineError at the end when the disk refused something on the
    way: the ranks were watched, pulled from as far as possible and let go all the same.
    """
    check_options(options)
    store = EvidenceStore(options.to, run_id=options.run_id, world_size=options.world_size)
    store.write_manifest()
    if store.failure is not None:
        raise store.failure
    Watch(options, store, stop).run()
    if store.failure is not None:
        raise store.failure
    return store.manifest
