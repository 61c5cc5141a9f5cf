"""Who waits for whom, and where the waiting ends.

The graph has two sorts of nodes, ranks and stuck operations: a rank points at the operation it is inside of, and the
operation at the ranks that have not entered it. So its size is that of the evidence, also when thousands of ranks wait
for thousands of others.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hangdrill.diagnosis.scene import StuckOp

__all__ = ["Ends", "follow"]

Node = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ends:
    """Where following the waits ends: ranks that wait for nobody, and cycles (their ranks and operations)."""

    ranks: frozenset[int]
    cycles: tuple[tuple[frozenset[int], tuple[StuckOp, ...]], ...]


def follow(stuck: Sequence[StuckOp]) -> Ends:
    """Follow every wait to its end."""
    edges: dict[Node, list[Node]] = {}
    for number, op in enumerate(stuck):
        if op.absent:
            edges["op", number] = [("rank", rank) for rank in sorted(op.absent)]
            for rank in sorted(op.front):
                edges.setdefault(("rank", rank), []).append(("op", number))
    ranks = set()
    cycles = []
    for component in _components(edges):
        inside = set(component)
        if any(target not in inside for node in component for target in edges.get(node, ())):
            continue
        if len(component) == 1:
            ranks.add(component[0][1])
        else:
            members = frozenset(number for kind, number in component if kind == "rank")
            ops = tuple(stuck[number] for kind, number in sorted(component) if kind == "op")
            cycles.append((members, ops))
    return Ends(frozenset(ranks), tuple(sorted(cycles, key=lambda cycle: sorted(cycle[0]))))


def _components(edges: Mapping[Node, Sequence[Node]]) -> Iterable[list[Node]]:
    """Strongly connected components (Tarjan), without recursion."""
    index: dict[Hashable, int] = {}
    low: dict[Hashable, int] = {}
    stack: list[Node] = []
    on_stack: set[Hashable] = set()
    for root in edges:
        if root in index:
            continue
        work = [(root, 0)]
        while work:
            node, position = work.pop()
            if position == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            targets = edges.get(node, ())
            for number in range(position, len(targets)):
                target = targets[number]
                if target not in index:
                    work += [(node, number + 1), (target, 0)]
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                if low[node] == index[node]:
                    component = [stack.pop()]
                    while component[-1] != node:
                        component.append(stack.pop())
                    on_stack.difference_update(component)
                    yield component
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
