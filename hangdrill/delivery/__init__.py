"""The way from the collector's directory to where people look: delivery, incident hooks, and how long things are kept.

    open_outbox(evidence, options)    what the collector holds: a process that delivers and calls hooks beside it
    deliver(evidence, url, ...)       completes a delivery from the spool (`hangdrill deliver`)
    inspection.ask(...)               what was delivered, and what deletes it, as the controller sees it

The evidence directory is the spool. Stores' packages (s3fs, ...) are imported when they are used. It judges nothing.
"""

from hangdrill.delivery.deliver import deliver
from hangdrill.delivery.orders import DELIVER_WITHIN_S, DeliveryOptions
from hangdrill.delivery.outbox import NoopOutbox, Outbox, check_delivery, longest_s, open_outbox

__all__ = [
    "DELIVER_WITHIN_S",
    "DeliveryOptions",
    "NoopOutbox",
    "Outbox",
    "check_delivery",
    "deliver",
    "longest_s",
    "open_outbox",
]
