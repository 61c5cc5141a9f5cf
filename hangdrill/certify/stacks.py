"""A stack while it is certified: the plan's Python and environment, and its fingerprint, or why there is none."""

from collections.abc import Mapping

import msgspec

from hangdrill.model.errors import MachineError
from hangdrill.model.fingerprint import Fingerprint
from hangdrill.model.receipt import StackRecord

__all__ = ["BASELINE", "CANDIDATE", "Stack", "require_torch"]

BASELINE, CANDIDATE = "baseline", "candidate"


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """name: "baseline", "candidate", or that of a [[checkpoint.stack]]. python: absolute, links not resolved."""

    name: str
    python: str
    env: dict[str, str] = msgspec.field(default_factory=dict)
    fingerprint: Fingerprint | None = None
    missing: str = ""
    """Why no job can run on it, in a sentence; empty when one can."""
    next_step: str = ""
    image: str = ""
    """The container image that it is, as the plan names it; python is then in it. "": an environment of this host."""
    mounts: tuple[str, ...] = ()
    """Of an image: "SOURCE:TARGET[:ro]"."""

    @property
    def where(self) -> str:
        """Its Python, for people."""
        return f"{self.python} in {self.image}" if self.image else self.python

    @property
    def image_id(self) -> str:
        """By which its jobs run the image, whatever the tag names meanwhile; "" for an environment of this host."""
        return (self.fingerprint.image_id if self.fingerprint is not None else "") or self.image

    @property
    def works(self) -> bool:
        """Whether a job can run on it."""
        return not self.missing

    @property
    def torch(self) -> str:
        """Its torch, "2.15.0+cu132", or empty."""
        return self.fingerprint.torch if self.fingerprint is not None else ""

    def require_torch(self, seen: str, *, rank: int, host: str = "") -> None:
        """MachineError when a rank of its job had another torch than its fingerprint. seen: what the rank said."""
        require_torch(self.name, self.torch, seen, rank=rank, host=host)

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment for a job of this stack: the stack's variables over the given ones."""
        return {**environ, **self.env}

    def record(self) -> StackRecord:
        """As the receipt holds it."""
        return StackRecord(
            name=self.name,
            python=self.python,
            env=self.env,
            fingerprint=self.fingerprint,
            digest=self.fingerprint.digest if self.fingerprint is not None else "",
            missing=self.missing,
            next_step=self.next_step,
            image=self.image,
            mounts=self.mounts,
        )


def require_torch(name: str, torch: str, seen: str, *, rank: int, host: str = "") -> None:
    """MachineError when a rank had another torch than the named stack: on another node, or by a variable of the plan. A
    rank that did not say its torch, and a stack of which it is not known, are left to the lines."""
    if torch and seen not in ("", torch):
        what = f"rank {rank} on {host or 'this host'} had torch {seen}, and the {name} is {torch}"
        hint = "install the same stack on every node, and let no variable of the plan name another torch"
        raise MachineError(what, next_step=hint)
