"""Which implementation a requested backend would really be, and what follows from that. Pure."""

from enum import Enum

from hangdrill.preflight.surroundings import Surroundings
from hangdrill.preflight.variables import is_rollback

__all__ = ["Implementation", "group_timeout_s", "implementation", "is_nccl", "requested", "version"]

Version = tuple[int, ...]
NCCL2_DEFAULT_SINCE = (2, 15)
NCCL2_SINCE = (2, 14)


class Implementation(Enum):
    """The class behind a backend's name."""

    NCCL2 = "ProcessGroupNCCL2"
    LAZY = "ProcessGroupNCCLLazy"
    LEGACY = "ProcessGroupNCCL"
    GLOO = "ProcessGroupGloo"
    OTHER = "another"


BY_NAME = {
    "gloo": Implementation.GLOO,
    "nccl2": Implementation.NCCL2,
    "nccl-lazy": Implementation.LAZY,
    "nccl-legacy": Implementation.LEGACY,
}


def version(facts: Surroundings) -> Version | None:
    """torch's version as numbers, (2, 15, 0); None when it is not known."""
    if facts.torch is None:
        return None
    numbers: list[int] = []
    for part in facts.torch.version.split("+", maxsplit=1)[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if digits:
            numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers) or None


def requested(facts: Surroundings) -> str | None:
    """The backend's name for the device that the job computes on; None when nobody says."""
    named = facts.job.backend or _of_script(facts)
    if named is None or ":" not in named:
        return named
    by_device = dict(part.split(":", maxsplit=1) for part in named.split(",") if ":" in part)
    device = "cpu" if facts.torch is not None and facts.torch.gpus == 0 else "cuda"
    return by_device.get(device) or next(iter(by_device.values()))


def _of_script(facts: Surroundings) -> str | None:
    script = facts.job.script
    if script is None or len(script.inits) != 1 or script.inits[0].backends is None:
        return None
    init = script.inits[0]
    names = init.backends or ("cpu:gloo,cuda:nccl",)
    if len(names) == 1:
        return names[0]
    if not init.by_gpu or facts.torch is None or facts.torch.gpus is None:
        return None
    return names[0] if facts.torch.gpus else names[1]


def implementation(facts: Surroundings) -> Implementation | None:
    """What would run; None when the backend, or torch's version where it decides, is not known."""
    name = requested(facts)
    if name is None:
        return None
    if name != "nccl":
        return BY_NAME.get(name, Implementation.OTHER)
    torch = version(facts)
    if torch is None:
        return None
    if torch >= NCCL2_DEFAULT_SINCE:
        return Implementation.LEGACY if is_rollback(facts.environ) else Implementation.NCCL2
    if torch < NCCL2_SINCE or is_rollback(facts.environ):
        return Implementation.LEGACY
    return None  # 2.14: not checked which of the two is its default


def is_nccl(facts: Surroundings) -> bool:
    """An NCCL backend of any kind is asked for."""
    return (requested(facts) or "").startswith("nccl")


def group_timeout_s(facts: Surroundings) -> float | None:
    """Of the process group: the scenario's, the script's literal, or torch's default; None when it is dynamic."""
    job = facts.job
    if job.timeout_s is not None:
        return job.timeout_s
    if job.script is None or len(job.script.inits) != 1 or job.script.inits[0].timeout_dynamic:
        return None
    literal = job.script.inits[0].timeout_s
    if literal is not None or facts.torch is None or requested(facts) is None:
        return literal
    return facts.torch.default_nccl_timeout_s if is_nccl(facts) else facts.torch.default_timeout_s
