"""The built-in workloads: real training code, each in a file of its own, small enough for 8 gloo ranks on two cores.

They know nothing of faults: any operation of any rank may be the one that a scenario picks.
"""

__all__ = ["MODULES"]

MODULES = {
    "all-reduce": "hangdrill.rank.workloads.all_reduce",
    "ddp": "hangdrill.rank.workloads.ddp",
    "fsdp2": "hangdrill.rank.workloads.fsdp2",
    "tensor-parallel": "hangdrill.rank.workloads.tensor_parallel",
    "pipeline": "hangdrill.rank.workloads.pipeline",
    "mesh-2d": "hangdrill.rank.workloads.mesh_2d",
    "all-to-all": "hangdrill.rank.workloads.all_to_all",
    "coalesced": "hangdrill.rank.workloads.coalesced",
}
"""Name in a scenario -> module."""
