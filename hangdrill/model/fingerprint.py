"""The fingerprint of a stack: one complete software environment, as the program `rank/fingerprint` read it.

`identity` is what makes two stacks the same stack; `changes` names each fact in which two differ. Facts of one host
(its name, paths, GPU serials, the state of a link) are recorded and are no part of the identity: a receipt is good for
every node that runs the same stack.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

__all__ = [
    "Change",
    "Extension",
    "Fingerprint",
    "Gpu",
    "Hca",
    "NetworkInterface",
    "Package",
    "changes",
]


OF_ONE_HOST = ("_VISIBLE_DEVICES", "_CACHE_DIR", "_CACHE", "_CACHE_PATH", "TORCH_HOME")
"""Ends of variables that say which GPUs and directories of a host a job has: recorded, and no part of the stack."""


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """An installed distribution. name is normalised (PEP 503); files_digest: over the hashes of its installed files."""

    name: str
    version: str
    files_digest: str = ""
    source: str = ""
    """Where it came from when it was not a registry: "git+https://...@commit", "editable:/src/x"; else empty."""
    changed_files: tuple[str, ...] = ()
    """Files that are not what was installed: gone, of another size or hash. The first of them, and how many more."""
    changed_digest: str = ""
    """Over what all of them are now."""


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """An installed package with compiled code that is linked against torch's libraries."""

    name: str
    version: str
    files: tuple[str, ...] = ()
    built_with: str = ""
    """The torch it was built with, where its metadata or its version says so ("2.14.1"); empty when nothing does."""
    cxx11_abi: bool | None = None
    stable_abi: bool | None = None
    """Whether it uses only torch's stable ABI (aoti_torch_*), which outlives a torch release; None: cannot tell."""
    loads: bool | None = None
    """Whether every file can be loaded beside this stack's torch; None when it was not tried."""
    error: str = ""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of the host. nvlinks: active links, None when it could not be read."""

    index: int
    name: str
    memory_bytes: int | None = None
    uuid: str = ""
    nvlinks: int | None = None


class Hca(msgspec.Struct, frozen=True, kw_only=True):
    """An InfiniBand or RoCE device, from /sys/class/infiniband."""

    name: str
    kind: str = ""
    firmware: str = ""
    link_layer: str = ""
    state: str = ""
    rate: str = ""


class NetworkInterface(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface of the host, loopback left out."""

    name: str
    driver: str = ""
    speed_mbit: int | None = None
    mtu: int | None = None
    state: str = ""


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was read of a stack. What could not be read is None or empty, with a sentence in `unknown`."""

    schema: Literal["hangdrill.fingerprint/1"] = "hangdrill.fingerprint/1"
    python: str
    """Its version, "3.12.4"."""
    implementation: str = "cpython"
    executable: str = ""
    prefix: str = ""
    platform: str = ""
    libc: str = ""
    torch: str = ""
    """The version as torch says it ("2.15.0+cu132"), from metadata when torch does not import; empty: no torch."""
    torch_git: str = ""
    torch_error: str = ""
    """Why `import torch` failed, last line; empty when it works."""
    wheel: str = ""
    """Tags and build of the wheel: "torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64"."""
    build: Literal["cuda", "rocm", "xpu", "cpu", "unknown"] = "unknown"
    cuda: str | None = None
    hip: str | None = None
    cxx11_abi: bool | None = None
    changed_files: tuple[str, ...] = ()
    """Files of torch's distribution that are not what was installed: patched in place, or gone."""
    changed_digest: str = ""
    """Over what all of them are now."""
    nccl: str | None = None
    """Version of the NCCL or RCCL that is loaded with torch, from the library itself."""
    nccl_file: str = ""
    driver: str | None = None
    """Version of the GPUs' kernel driver."""
    gpus: tuple[Gpu, ...] = ()
    hcas: tuple[Hca, ...] = ()
    network: tuple[NetworkInterface, ...] = ()
    host: str = ""
    container: str = ""
    """What the ranks would run in: "" for the host itself, else "docker:<id>", "podman:<id>", "kubernetes:<id>"."""
    image: str = ""
    """The container image that the stack is, as it was named; "" for an environment of the host."""
    image_id: str = ""
    image_digest: str = ""
    """Of its repository: "registry/train@sha256:..."; "" for an image that was never pushed or pulled."""
    extensions: tuple[Extension, ...] = ()
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    """The environment variables that matter, as the ranks would see them."""
    packages: tuple[Package, ...] = ()
    """All of them, sorted by name."""
    packages_digest: str = ""
    unknown: tuple[str, ...] = ()

    @property
    def imports_torch(self) -> bool:
        """Whether there is a torch, and it imports."""
        return bool(self.torch) and not self.torch_error

    @property
    def backends_release(self) -> tuple[int, int] | None:
        """(2, 15) of "2.15.0+cu132"; None when there is no such number."""
        parts = self.torch.split("+")[0].split(".")
        return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit() else None

    def identity(self) -> dict[str, str]:
        """The facts that make it this stack, by name, in a fixed order: "torch", "package:numpy", "env:NCCL_ALGO"."""
        return dict(_identity(self))

    @property
    def digest(self) -> str:
        """sha256 over the identity: a receipt is stale once it differs."""
        text = "\n".join(f"{name}={value}" for name, value in sorted(self.identity().items()))
        return hashlib.sha256(text.encode()).hexdigest()


DIGEST = "image.digest"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One fact in which two stacks differ. A side that lacks it has an empty text."""

    what: str
    before: str
    after: str


def changes(before: Fingerprint, after: Fingerprint) -> tuple[Change, ...]:
    """Every fact of the identity that differs, by name. The same image, now also pushed or pulled, is the same."""
    left, right = before.identity(), after.identity()
    found = tuple(
        Change(what=name, before=left.get(name, ""), after=right.get(name, ""))
        for name in _names(left, right)
        if left.get(name, "") != right.get(name, "")
    )
    same_image = bool(before.image_id) and before.image_id == after.image_id
    return tuple(one for one in found if not (same_image and one.what == DIGEST and not (one.before and one.after)))


def _names(left: Mapping[str, str], right: Mapping[str, str]) -> list[str]:
    """In the order of the identity; those of one side only come after."""
    return [*left, *(name for name in right if name not in left)]


def _identity(stack: Fingerprint) -> Iterator[tuple[str, str]]:
    yield "python", f"{stack.implementation} {stack.python}"
    yield "libc", stack.libc
    yield "torch", stack.torch
    yield "torch.git", stack.torch_git
    yield "torch.wheel", stack.wheel
    yield "torch.build", " ".join(part for part in (stack.build, stack.cuda or stack.hip) if part)
    yield "torch.imports", stack.torch_error or "yes"
    yield "torch.changed-files", _changed_text(stack.changed_files, stack.changed_digest)
    yield "nccl", stack.nccl or ""
    if stack.image_id:
        yield "image", stack.image_id
    if stack.image_digest:
        yield DIGEST, stack.image_digest.rpartition("@")[2]
    yield "driver", stack.driver or ""
    yield "gpus", _kinds(gpu.name for gpu in stack.gpus)
    yield "hcas", _kinds(f"{hca.kind} {hca.firmware} {hca.link_layer}".strip() for hca in stack.hcas)
    for extension in stack.extensions:
        yield f"extension:{extension.name}", f"{extension.version} for torch {extension.built_with or 'unknown'}"
    for name, value in sorted(stack.environment.items()):
        if not name.endswith(OF_ONE_HOST):
            yield f"env:{name}", value
    for package in stack.packages:
        since = _changed_text(package.changed_files, package.changed_digest)
        parts = (package.version, package.source, package.files_digest, since and f"changed since: {since}")
        yield f"package:{package.name}", " ".join(part for part in parts if part)


def _changed_text(files: tuple[str, ...], digest: str) -> str:
    return " ".join(part for part in (", ".join(files), digest and f"({digest})") if part)


def _kinds(names: Iterable[str]) -> str:
    """Each kind once: how many a node has is no matter of the stack."""
    return ", ".join(sorted(set(names)))
