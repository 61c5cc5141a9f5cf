"""The collector as one function."""

from hangdrill.collector.ending import StopSignal
from hangdrill.collector.options import CollectorOptions, check_options
from hangdrill.collector.store import EvidenceStore
from hangdrill.collector.watch import Watch
from hangdrill.delivery import open_outbox
from hangdrill.model.run import Manifest

__all__ = ["collect"]


def collect(options: CollectorOptions, stop: StopSignal) -> Manifest:
    """Watch the job until it is over or `stop` is set; returns the manifest as it lies on the disk.

    Raises UsageError for options the user can mend, and MachineError at the end when the disk refused something on the
    way, or the evidence could not be delivered: the ranks were watched, pulled from as far as possible and let go all
    the same.
    """
    check_options(options)
    store = EvidenceStore(options.to, run_id=options.run_id, world_size=options.world_size)
    store.write_manifest()
    if store.failure is not None:
        raise store.failure
    outbox = open_outbox(options.to, options.delivery)
    try:
        Watch(options, store, stop, outbox).run()
    finally:
        undelivered = outbox.finish()
    if store.failure is not None:
        raise store.failure
    if undelivered is not None:
        raise undelivered
    return store.manifest
