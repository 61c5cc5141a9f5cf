"""What an operation is, as far as the members of its group must agree: its name, numbers of elements and dtypes.

Like is compared with like: a backend names operations in its own way, but on all ranks alike. Shapes count by their
number of elements, and only where they must agree; dtypes nearly always.
"""

from collections.abc import Iterable
from math import prod

from hangdrill.model.dump import Operation

__all__ = ["Signature", "Signatures", "describe", "signatures"]

BEYOND = 2**64
"""No tensor has so many elements; what says so is not told apart."""

Elements = tuple[tuple[int, ...], tuple[int, ...]]
Signature = tuple[str, Elements, tuple[str, ...]]
Signatures = tuple[Signature, ...]
"""Of one sequence: coalesced operations share it."""

INPUT_AGREES = frozenset({"all_reduce", "reduce", "broadcast", "allreduce_coalesced"})
BOTH_AGREE = frozenset({"_all_gather_base", "_reduce_scatter_base", "all_gather_into_tensor", "reduce_scatter_tensor"})
LISTS_AGREE = frozenset({"all_gather", "reduce_scatter"})
"""The list holds one tensor a rank, the same list on all ranks; the single tensor may rightly differ."""


def signatures(operations: Iterable[Operation]) -> Signatures:
    return tuple(sorted(map(_signature, operations)))


def _signature(operation: Operation) -> Signature:
    dtypes = tuple(sorted({*operation.input_dtypes, *operation.output_dtypes}))
    return operation.name, _elements(operation), dtypes


def _elements(operation: Operation) -> Elements:
    """The numbers of elements that must agree."""
    inputs = tuple(min(prod(size), BEYOND) for size in operation.input_sizes)
    outputs = tuple(min(prod(size), BEYOND) for size in operation.output_sizes)
    if operation.name in INPUT_AGREES:
        return inputs, ()
    if operation.name in BOTH_AGREE:
        return inputs, outputs
    if operation.name in LISTS_AGREE:
        if len(inputs) == len(outputs) == 1:
            return inputs, outputs
        return (inputs, ()) if len(inputs) > 1 else ((), outputs)
    return (), ()


def describe(signature: Signature) -> str:
    """What one side did, for people: "all_reduce of 1024 elements (Float)"."""
    name, (inputs, outputs), dtypes = signature
    counts = inputs or outputs
    text = name
    if counts:
        shown = ", ".join(str(count) for count in counts[:4]) + (", ..." if len(counts) > 4 else "")
        text += f" of {shown} elements"
    return f"{text} ({', '.join(dtypes)})" if dtypes else text
