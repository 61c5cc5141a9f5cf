"""One rank's dump of a job: the entries that its ring buffer holds at the hang, as plain values or as torch's bytes."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from scale.jobs import FLAVOURS, SIDE, Call, Group, Job
from scale.stacks import STACKS, Frame, frames
from scale.torch_pickle import dump_bytes

__all__ = ["NUMBERINGS", "rank_dump", "rank_dump_bytes"]

STEPS = {"fsdp": 120, "pipeline": 400}
BEGAN_NS = 1_795_984_193_098_183_390
CALL_NS = 1_700_000
TOOK_NS = 900_000
TIMEOUT_MS = 600_000
OWN_CALLS = 199
OWN_GROUPS = 8
NUMBERINGS = OWN_CALLS * OWN_GROUPS


def rank_dump_bytes(flavour: str, rank: int, world_size: int, entries: int, *, distinct: bool = False) -> bytes:
    """The file that torch would have written for this rank."""
    return dump_bytes(rank_dump(flavour, rank, world_size, entries, distinct=distinct))


def rank_dump(flavour: str, rank: int, world_size: int, entries: int, *, distinct: bool = False) -> dict[str, Any]:
    """The dump as plain values.

    `distinct`: the rank has groups of its own and began the window with operations in one of them, as many as no other
    rank has (of `NUMBERINGS`), so that strings and frames have other numbers in each file.
    """
    job = FLAVOURS[flavour](rank, world_size, STEPS[flavour])
    more_groups, own_calls = divmod(rank % NUMBERINGS, OWN_CALLS) if distinct else (0, 0)
    own_calls = min(own_calls, entries // 2)
    own = [Group(str(1000 + number), "own", (rank,)) for number in range(more_groups + distinct)]
    first = job.recorded - entries + own_calls
    if first < 0:
        raise ValueError(f"a buffer of {entries} entries does not wrap: {job.recorded} operations")
    writer = EntryWriter(rank, (*job.groups, *own))
    recorded = [
        *(writer.own_entry(first + at, at) for at in range(own_calls)),
        *writer.job_entries(job, first, shift=own_calls),
    ]
    return {
        "version": "2.10",
        "pg_config": {group.name: config(group) for group in sorted(writer.groups)},
        "comm_lib_version": "",
        "pg_status": writer.status(),
        "entries": recorded,
    }


def config(group: Group) -> dict[str, str]:
    return {"name": group.name, "desc": group.desc, "ranks": str(list(group.ranks))}


class EntryWriter:
    """Entries of one rank, with its clock, its threads and what each group has done so far."""

    def __init__(self, rank: int, groups: tuple[Group, ...]) -> None:
        self.groups = groups
        self.enqueued = [-1] * len(groups)  # nccl2 counts from 0
        self.completed = [-1] * len(groups)
        self._chance = random.Random(rank)
        self._clock_ns = BEGAN_NS + random.Random(f"host {rank // SIDE}").randrange(-5_000_000, 5_000_000)
        first_thread = 140_000_000_000_000 + self._chance.randrange(10**12) * 64
        self._threads = {"python3": str(first_thread), "pt_autograd_0": str(first_thread - 9_558_772_224)}

    def status(self) -> dict[str, dict[str, int]]:
        return {
            str(at): {
                "last_enqueued_collective": enqueued,
                "last_started_collective": -1,
                "last_completed_collective": completed,
            }
            for at, (enqueued, completed) in enumerate(zip(self.enqueued, self.completed, strict=True))
        }

    def own_entry(self, record_id: int, at: int) -> dict[str, Any]:
        """One finished operation of the rank's last group, in a function that no other has."""
        call = Call(len(self.groups) - 1, "all_reduce", (1,), (1,), "own")
        stack = [*frames(f"own_{at} app_own.py:{at}"), *STACKS["loss"]]
        return self._entry(record_id, call, stack, (at + 1, 0), done=True)

    def job_entries(self, job: Job, first: int, *, shift: int) -> Iterator[dict[str, Any]]:
        """What the job did from operation `first` on; `shift` operations that are not the job's were recorded too."""
        in_step: Counter[tuple[int, bool]] = Counter()
        before = []
        for call in job.step:
            before.append((in_step[call.group, False], in_step[call.group, True], call.p2p))
            in_step[call.group, call.p2p] += 1
        for number in range(first, job.recorded):
            step, at = divmod(number, len(job.step))
            call = job.step[at]
            collectives = before[at][0] + step * in_step[call.group, False] + (not call.p2p)
            p2ps = before[at][1] + step * in_step[call.group, True] + call.p2p
            done = not (job.waits and number == job.recorded - 1)
            yield self._entry(number + shift, call, STACKS[call.stack], (collectives, p2ps), done=done)

    def _entry(
        self, record_id: int, call: Call, stack: list[Frame], counts: tuple[int, int], *, done: bool
    ) -> dict[str, Any]:
        created_ns = self._clock_ns + record_id * CALL_NS + self._chance.randrange(60_000)
        completed_ns = created_ns + TOOK_NS + self._chance.randrange(60_000) if done else None
        op_id = sum(counts) - 1
        self.enqueued[call.group] = op_id
        if done:
            self.completed[call.group] = op_id
        group = self.groups[call.group]
        return {
            "frames": stack,
            "record_id": record_id,
            "pg_id": call.group,
            "process_group": (group.name, group.desc),
            "thread_name": call.thread,
            "thread_id": self._threads[call.thread],
            "collective_seq_id": counts[0],
            "p2p_seq_id": counts[1],
            "op_id": op_id,
            "profiling_name": f"nccl2:{call.name}",
            "time_created_ns": created_ns,
            "input_sizes": [[size] for size in call.inputs],
            "input_dtypes": ["BFloat16"] * len(call.inputs),
            "output_sizes": [[size] for size in call.outputs],
            "output_dtypes": ["BFloat16"] * len(call.outputs),
            "state": "completed" if done else "scheduled",
            "time_discovered_started_ns": completed_ns,
            "time_discovered_completed_ns": completed_ns,
            "retired": done,
            "timeout_ms": TIMEOUT_MS,
            "is_p2p": call.p2p,
        }
