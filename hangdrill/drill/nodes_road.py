"""The collector's road for a job on several hosts: a collector on each, and one manifest of all, written here alone.

What one collector notices, the others are asked for: their ranks may not show it. A node that is lost gives nothing
more; its ranks get a note that says so, for the checks and the diagnosis.
"""

import time
from collections.abc import Mapping

import msgspec

from hangdrill.drill.layout import RunLayout, write_json
from hangdrill.drill.node_files import show_new_names
from hangdrill.drill.nodes import Nodes
from hangdrill.drill.plan_values import Plan
from hangdrill.drill.roads import Notice
from hangdrill.drill.waiting import Waiter
from hangdrill.model.run import Artifact, Manifest, RankPull

__all__ = ["NodesRoad", "merge_manifests"]

LOOK_S = 0.2
ASK_AFTER_S = 1.0
"""A collector that notices the same by itself gets so long before it is asked."""


class NodesRoad:
    """It owns the controller's view of the nodes; the session starts and stops it."""

    def __init__(self, plan: Plan, layout: RunLayout) -> None:
        self._plan = plan
        self._layout = layout
        self.nodes = Nodes(plan, layout)
        self._next_look_s = 0.0
        self._merged: Manifest | None = None
        self._noticed_s: float | None = None
        self._noticed_ns: dict[tuple[int, int], int] = {}
        self._asked: set[tuple[int, int]] = set()

    def start(self, environ: Mapping[str, str]) -> tuple[int, ...]:
        """The node processes start the collectors."""
        return ()

    def noticed(self) -> Notice | None:
        """What any collector noticed, at the time at which the controller heard of it: by its own clock."""
        manifest = self._look()
        if manifest is None or manifest.noticed_ns is None:
            return None
        return Notice(by="collector", why=manifest.notice, noticed_ns=manifest.noticed_ns)

    def is_complete(self, *, job_over: bool) -> bool:
        """Every collector is done, or its node is over: it finished, or it is lost."""
        manifest = self._look()
        return manifest is not None and manifest.complete

    def finish(self, waiter: Waiter, deadline_s: float) -> str:
        """The nodes end their collectors themselves, and have done so: take what they left."""
        self._look(now=True)
        ended = [
            f"{self.nodes.host_of(node)}: the collector ended with {status.collector}: see nodes/{node}.log"
            for node, status in self.nodes.statuses().items()
            if status.collector not in (None, 0) and status.state == "finished"
        ]
        return "; ".join(ended)

    def _look(self, *, now: bool = False) -> Manifest | None:
        """The merged manifest, rewritten when it changed; looked for at most some times a second."""
        if not now and time.monotonic() < self._next_look_s:
            return self._merged
        self._next_look_s = time.monotonic() + LOOK_S
        found: dict[int, Manifest] = {}
        for node in range(self.nodes.count):
            show_new_names(self._layout.node_evidence(node))
            manifest = _read(self._layout, node)
            if manifest is not None:
                found[node] = manifest
        self._ask_the_others(found)
        merged = self._merge(found)
        if merged != self._merged:
            write_json(self._layout.manifest, merged)
            self._merged = merged
        return merged

    def _ask_the_others(self, found: Mapping[int, Manifest]) -> None:
        """Of each notice once."""
        fresh = {(node, found[node].noticed_ns or 0) for node in found if found[node].noticed_ns is not None}
        if not fresh:
            self._noticed_s = None
            return
        if self._noticed_s is None:
            self._noticed_s = time.monotonic()
        if fresh <= self._asked or time.monotonic() - self._noticed_s < ASK_AFTER_S:
            return
        quiet = tuple(
            node
            for node in self.nodes.statuses()
            if not self.nodes.is_over(node) and (node not in found or found[node].noticed_ns is None)
        )
        self._asked |= fresh
        if quiet:
            self.nodes.ask(quiet)

    def _merge(self, found: Mapping[int, Manifest]) -> Manifest:
        lost = {
            node: f"their host {self.nodes.host_of(node)} has not been heard of for {self.nodes.silent_s(node):.0f} s"
            for node in self.nodes.lost()
        }
        merged = merge_manifests(
            found,
            run_id=self._plan.run_id,
            world_size=self._plan.scenario.job.world_size,
            ranks_of={node: self.nodes.ranks_of(node) for node in range(self.nodes.count)},
            over=frozenset(node for node in range(self.nodes.count) if self.nodes.is_over(node)),
            lost={node: self._settled(node, note) for node, note in lost.items()},
        )
        return msgspec.structs.replace(merged, noticed_ns=self._first_heard_ns(found))

    def _settled(self, node: int, note: str) -> str:
        """The note as it was when the node was first found lost: the manifest must not change with every second."""
        before = next(
            (
                text
                for pull in (self._merged.ranks if self._merged is not None else ())
                if pull.rank in self.nodes.ranks_of(node)
                for text in pull.notes
                if text.startswith("their host ")
            ),
            None,
        )
        return before or note

    def _first_heard_ns(self, found: Mapping[int, Manifest]) -> int | None:
        """When the controller first heard of the oldest notice that still stands."""
        standing = [
            self._noticed_ns.setdefault((node, manifest.noticed_ns), time.time_ns())
            for node, manifest in found.items()
            if manifest.noticed_ns is not None
        ]
        return min(standing, default=None)


def merge_manifests(
    found: Mapping[int, Manifest],
    *,
    run_id: str,
    world_size: int,
    ranks_of: Mapping[int, tuple[int, ...]],
    over: frozenset[int],
    lost: Mapping[int, str],
) -> Manifest:
    """One manifest of all nodes; paths begin with the node's directory. over: nodes from which no more comes.
    lost: node -> why its ranks gave no more, in a sentence. Pure."""
    pulls: dict[tuple[int, int], RankPull] = {}
    artifacts: list[Artifact] = []
    for node, manifest in sorted(found.items()):
        for pull in manifest.ranks:
            noted = (*pull.notes, lost[node]) if node in lost else pull.notes
            pulls[pull.attempt, pull.rank] = msgspec.structs.replace(pull, notes=noted)
        artifacts += [msgspec.structs.replace(item, path=f"node{node}/{item.path}") for item in manifest.artifacts]
    complete = bool(ranks_of) and all(node in over or (node in found and found[node].complete) for node in ranks_of)
    known = {rank for _, rank in pulls}
    for node, ranks in sorted(ranks_of.items()):
        note = lost.get(node, f"never seen on node {node}")
        if node in lost or complete:
            pulls |= {(0, rank): RankPull(rank=rank, notes=(note,)) for rank in ranks if rank not in known}
    notices = [manifest.notice for _, manifest in sorted(found.items()) if manifest.noticed_ns is not None]
    return Manifest(
        run_id=run_id,
        world_size=world_size,
        noticed_ns=next((item.noticed_ns for item in found.values() if item.noticed_ns is not None), None),
        notice=_best_notice(notices),
        complete=complete,
        ranks=tuple(pull for _, pull in sorted(pulls.items())),
        artifacts=tuple(sorted(artifacts, key=lambda item: (item.pulled_ns, item.path))),
    )


def _best_notice(notices: list[str]) -> str:
    """Each collector speaks of its own ranks; being asked says nothing of the hang."""
    own = [notice for notice in dict.fromkeys(notices) if notice != "the controller asked"]
    return "; ".join(own) or next(iter(notices), "")


def _read(layout: RunLayout, node: int) -> Manifest | None:
    try:
        data = (layout.node_evidence(node) / "manifest.json").read_bytes()
        return msgspec.json.decode(data, type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None
