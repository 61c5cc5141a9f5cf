"""What is measured of a canary job: each line's samples, unit, limit and claim. Pure."""

from collections.abc import Callable, Mapping

import msgspec

from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.compare_samples import Limit
from hangdrill.model.certify_plan import UNIT_OF, CertifyPlan, Measure, Threshold, Topology
from hangdrill.model.receipt import Item

__all__ = ["LIMITS", "MEGA", "PART_OF", "Measured", "is_wanted", "limit_of", "measured_of", "parts_of", "sizes_bytes"]

MEGA = 1e6
TWO = 2
ORDER = ("groups", "latency", "p2p", "dp", "fsdp", "tp", "pp", "2d", "checkpoint", "recover")
PART_OF: dict[Topology, str] = {
    Topology.DP: "dp",
    Topology.FSDP: "fsdp",
    Topology.TP: "tp",
    Topology.PP: "pp",
    Topology.MESH_2D: "2d",
}
"""The part of a canary job that spreads a model this way."""

PARTS: dict[str, tuple[Measure, ...]] = {
    "groups": (Measure.MEMORY_PER_UNUSED_GROUP,),
    "latency": (Measure.COLLECTIVE_LATENCY,),
    "p2p": (Measure.P2P_LATENCY, Measure.P2P_START_TIME, Measure.MEMORY_OF_P2P),
    "dp": (Measure.RECOVERY_TIME,),
    "checkpoint": (Measure.CHECKPOINT_SAVE_TIME, Measure.CHECKPOINT_RESTORE_TIME),
    "recover": (Measure.RECOVERY_TIME,),
}
"""The other parts of a canary job, and what each is for. dp is the work that is lost and done again."""

LIMITS: dict[Measure, Threshold] = {
    Measure.INIT_TIME: Threshold(ratio=0.10, absolute=0.1),
    Measure.START_TIME: Threshold(ratio=0.10, absolute=0.1),
    Measure.MEMORY_BEFORE_FIRST_STEP: Threshold(absolute=64.0),
    Measure.MEMORY_PER_UNUSED_GROUP: Threshold(absolute=16.0),
    Measure.MEMORY_PEAK: Threshold(absolute=128.0),
    Measure.COLLECTIVE_LATENCY: Threshold(ratio=0.10, absolute=4.0),
    Measure.P2P_LATENCY: Threshold(ratio=0.10, absolute=4.0),
    Measure.P2P_START_TIME: Threshold(ratio=0.10, absolute=0.1),
    Measure.MEMORY_OF_P2P: Threshold(absolute=16.0),
    Measure.THROUGHPUT: Threshold(ratio=0.05),
    Measure.CHECKPOINT_SAVE_TIME: Threshold(ratio=0.10, absolute=0.1),
    Measure.CHECKPOINT_RESTORE_TIME: Threshold(ratio=0.10, absolute=0.1),
    Measure.RECOVERY_TIME: Threshold(ratio=0.10, absolute=1.0),
    Measure.SHUTDOWN_TIME: Threshold(ratio=0.10, absolute=0.5),
    Measure.SCRIPT_TIME: Threshold(ratio=0.05, absolute=0.5),
}
"""What counts as different where the plan says nothing, in the unit of the measure (UNIT_OF)."""

CPU_SIZES_BYTES, GPU_SIZES_BYTES = (4 << 10, 4 << 20), (4 << 10, 4 << 20, 256 << 20)


def parts_of(plan: CertifyPlan) -> tuple[str, ...]:
    """What a job must do for the plan's measures and topologies; the order is the job's own."""
    parts = [part for part, measures in PARTS.items() if any(measure in plan.measures for measure in measures)]
    if Measure.THROUGHPUT in plan.measures:
        parts += [PART_OF[topology] for topology in plan.topologies if topology in PART_OF]
    if plan.workload.nproc_per_node < TWO and "p2p" in parts:
        parts.remove("p2p")
    return tuple(sorted(set(parts), key=ORDER.index))


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the comparison. name: its id below the cell's. sample: of one run, in the measure's unit; None when
    the run has none. also: further measures without which it is none."""

    name: str
    measure: Measure
    item: Item
    topology: Topology
    claim: str
    sample: Callable[[CanaryRun], float | None]
    also: tuple[Measure, ...] = ()

    @property
    def unit(self) -> str:
        """Of the samples."""
        return UNIT_OF[self.measure]

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a job in which it is measured; empty: in its start or its end."""
        own = (PART_OF[self.topology],) if self.topology in PART_OF else ()
        return (*own, *(part for part, measures in PARTS.items() if self.measure in measures))


def is_wanted(one: Measured, plan: CertifyPlan) -> bool:
    """Whether the plan has it compared."""
    return all(measure in plan.measures for measure in (one.measure, *one.also))


def sizes_bytes(backend: str) -> tuple[int, ...]:
    """Of the messages that are timed."""
    return GPU_SIZES_BYTES if "nccl" in backend else CPU_SIZES_BYTES


def limit_of(measure: Measure, thresholds: Mapping[Measure, Threshold]) -> Limit:
    """The plan's, else the built-in one. A plan's table stands for the whole measure."""
    found = thresholds.get(measure, LIMITS[measure])
    if found.ratio is None and found.absolute is None:
        found = LIMITS[measure]
    return Limit(ratio=found.ratio, absolute=found.absolute, higher_is_better=measure is Measure.THROUGHPUT)


def measured_of(plan: CertifyPlan) -> tuple[Measured, ...]:
    """Every line of the plan: those of one node always, and the throughput of each way to spread a model."""
    found = [
        _of(Measure.INIT_TIME, Item.WORK, "making the default process group", _seconds("init_s")),
        _of(Measure.START_TIME, Item.WORK, "the default process group and its first all_reduce", _seconds("start_s")),
        _of(Measure.MEMORY_BEFORE_FIRST_STEP, Item.MEMORY, "memory before the first step", _mega("init_bytes")),
        _of(Measure.MEMORY_PER_UNUSED_GROUP, Item.MEMORY, "memory of a group that nobody uses", _mega("group_bytes")),
        _of(Measure.MEMORY_PEAK, Item.MEMORY, "peak memory", _mega("peak_bytes")),
    ]
    for size in sizes_bytes(plan.workload.backend):
        what, name = f"all_reduce of {_text(size)}", f"collective-latency-{_text(size, '')}"
        found.append(_of(Measure.COLLECTIVE_LATENCY, Item.COMMUNICATION, what, _micro(f"all_reduce_{size}_s"), name))
        what, name = f"send and recv of {_text(size)}, there and back", f"p2p-latency-{_text(size, '')}"
        if plan.workload.nproc_per_node > 1:
            found.append(_of(Measure.P2P_LATENCY, Item.COMMUNICATION, what, _micro(f"p2p_{size}_s"), name))
    if plan.workload.nproc_per_node > 1:
        what = "the first send and recv"
        found.append(_of(Measure.P2P_START_TIME, Item.COMMUNICATION, what, _seconds("first_p2p_s")))
        found.append(_of(Measure.MEMORY_OF_P2P, Item.MEMORY, f"memory of {what}", _mega("first_p2p_bytes")))
    found += [
        _of(Measure.CHECKPOINT_SAVE_TIME, Item.CHECKPOINT, "saving a checkpoint", _seconds("save_s")),
        _of(Measure.CHECKPOINT_RESTORE_TIME, Item.CHECKPOINT, "restoring a checkpoint", _seconds("restore_s")),
        _of(Measure.RECOVERY_TIME, Item.WORK, "recovery after a killed rank, to the next step", _recovery_s),
        _of(Measure.SHUTDOWN_TIME, Item.WORK, "shutdown, to the end of torchrun", _shutdown_s),
    ]
    for topology in plan.topologies:
        if topology in PART_OF:
            rate = _rate(f"{PART_OF[topology]}_step_s")
            found.append(_of(Measure.THROUGHPUT, Item.WORK, f"steps a second, {topology.value}", rate, at=topology))
    return tuple(found)


def _of(
    measure: Measure,
    item: Item,
    what: str,
    sample: Callable[[CanaryRun], float | None],
    name: str = "",
    *,
    at: Topology = Topology.SINGLE_NODE,
) -> Measured:
    claim = f"{what}: the candidate is no worse than the baseline"
    return Measured(
        name=f"{at.value}/{name or measure.value}", measure=measure, item=item, topology=at, claim=claim, sample=sample
    )


def _text(size: int, space: str = " ") -> str:
    for unit, amount in (("MB", 1 << 20), ("kB", 1 << 10)):
        if size >= amount:
            return f"{size // amount}{space}{unit if space else unit.lower()}"
    return f"{size}{space}{'B' if space else 'b'}"


def _seconds(name: str) -> Callable[[CanaryRun], float | None]:
    return lambda run: run.slowest(name)


def _micro(name: str) -> Callable[[CanaryRun], float | None]:
    return lambda run: None if (found := run.slowest(name)) is None else found * 1e6


def _mega(name: str) -> Callable[[CanaryRun], float | None]:
    return lambda run: None if (found := run.slowest(name)) is None else found / MEGA


def _rate(name: str) -> Callable[[CanaryRun], float | None]:
    return lambda run: 1 / found if (found := run.slowest(name)) else None


def _recovery_s(run: CanaryRun) -> float | None:
    """From the rank's death in the first attempt to the moment when all ranks of the second have made a step."""
    killed = [one.times_ns["killed"] for one in run.of_attempt(0).values() if "killed" in one.times_ns]
    again = [one.times_ns["recovered"] for one in run.of_attempt(1).values() if "recovered" in one.times_ns]
    if len(killed) != 1 or len(again) != run.world_size:
        return None
    return (max(again) - killed[0]) / 1e9


def _shutdown_s(run: CanaryRun) -> float | None:
    """From the last rank that was done with its work to the end of torchrun."""
    last = max((record.attempt for record in run.ranks), default=0)
    done = [one.times_ns["leaving"] for one in run.of_attempt(last).values() if "leaving" in one.times_ns]
    if len(done) != run.world_size or run.exit_code != 0:
        return None
    return max(0.0, (run.ended_ns - max(done)) / 1e9)
