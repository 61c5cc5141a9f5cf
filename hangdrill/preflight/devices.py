"""Which GPU would each rank get, and does the script fit the new default backend? Pure."""

from collections.abc import Iterator

from hangdrill.model.preflight import Finding
from hangdrill.preflight.backend import Implementation, implementation, is_nccl
from hangdrill.preflight.catalogue import found
from hangdrill.preflight.surroundings import JobKind, Script, Surroundings

__all__ = ["device_findings"]

BIND = 'device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"]))'


def device_findings(facts: Surroundings) -> Iterator[Finding]:
    """All of this family; nothing for a job without NCCL."""
    if not is_nccl(facts):
        return
    yield from _too_many_ranks(facts)
    yield from _inherited(facts)
    if facts.job.script is not None:
        yield from _device_id(facts.job.script)
        yield from _constants(facts.job.script, facts)
        yield from _class_test(facts.job.script, facts)


def _too_many_ranks(facts: Surroundings) -> Iterator[Finding]:
    ranks, gpus = facts.job.nproc_per_node, facts.torch.gpus if facts.torch is not None else None
    if facts.torch is not None and not gpus:
        what = "no GPU is visible here: whether each rank gets its own was not looked at"
        yield found("gpus-not-seen", what=what, where="torch", mend="run preflight on a host of the job")
    if ranks is not None and gpus is not None and ranks > gpus > 0:
        what = f"{ranks} ranks a host and {gpus} GPUs: nccl2 takes LOCAL_RANK modulo {gpus}, so two ranks share one"
        yield found(
            "two-ranks-on-one-gpu", what=what, where="nproc-per-node", mend=f"start at most {gpus} ranks a host"
        )


def _inherited(facts: Surroundings) -> Iterator[Finding]:
    """torchrun gives each rank its own LOCAL_RANK; without it, one that is exported is the same everywhere."""
    local = facts.environ.get("LOCAL_RANK")
    if local is None or facts.job.launcher == "torchrun" or facts.job.kind is JobKind.SCENARIO:
        return
    what = f"LOCAL_RANK={local} comes from the environment: every rank that this starts binds GPU {local}"
    mend = "unset it, or set it for each rank (Slurm: SLURM_LOCALID)"
    yield found("local-rank-inherited", what=what, where="LOCAL_RANK", mend=mend)


def _device_id(script: Script) -> Iterator[Finding]:
    for init in script.inits:
        if init.has_device_id is False:
            what = "no device_id: torch guesses the GPU from LOCAL_RANK or the rank, and makes the communicator late"
            yield found("device-id-missing", what=what, where=f"{script.path}:{init.line}", mend=f"pass {BIND}")


def _constants(script: Script, facts: Surroundings) -> Iterator[Finding]:
    indexes = sorted({call.index for call in script.devices if call.index is not None})
    first = script.devices[0] if script.devices else None
    if first is not None and len(indexes) == 1 and (facts.job.nproc_per_node or 1) > 1:
        what = f"every rank names GPU {indexes[0]}: {facts.job.nproc_per_node} ranks of a host on one GPU"
        mend = 'take the index from int(os.environ["LOCAL_RANK"])'
        yield found("two-ranks-on-one-gpu", what=what, where=f"{script.path}:{first.line}", mend=mend)
    several = [*script.data_parallel, *(script.devices if len(indexes) > 1 else ())]
    if several:
        named = f"GPUs {', '.join(map(str, indexes))}" if len(indexes) > 1 else "DataParallel"
        what = f"one process uses several GPUs ({named}): nccl2 binds a group to one, and raises for a tensor elsewhere"
        mend = "use one process a GPU, or a group a GPU"
        where = f"{script.path}:{several[0].line}"
        yield found("several-gpus-in-one-process", what=what, where=where, mend=mend)


def _class_test(script: Script, facts: Surroundings) -> Iterator[Finding]:
    if implementation(facts) not in (Implementation.NCCL2, Implementation.LAZY):
        return
    for call in script.class_tests:
        what = "isinstance(..., ProcessGroupNCCL) is false here: the group is a ProcessGroupNCCL2 (or NCCLLazy)"
        mend = "test the backend's name, or for ProcessGroupNCCL2 too"
        yield found("class-test-misses-nccl2", what=what, where=f"{script.path}:{call.line}", mend=mend)
