"""`hangdrill stack` for people: the facts of a fingerprint, one a row, and what could not be read."""

from collections.abc import Iterator

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from hangdrill.model.fingerprint import Extension, Fingerprint, Gpu
from hangdrill.report.cells import cell

__all__ = ["build_text", "extension_text", "gpus_text", "print_stack", "stack_rows"]

NOT_READ = "-"


def print_stack(console: Console, stack: Fingerprint) -> None:
    """All of it but the list of packages, which `--json` has."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in stack_rows(stack):
        table.add_row(cell(name), cell(text or NOT_READ))
    console.print()
    console.print(Padding(table, (0, 0, 1, 1), expand=False))


def stack_rows(stack: Fingerprint) -> Iterator[tuple[str, str]]:
    """(name, text) of every fact, in the order of the checklist."""
    yield "torch", stack.torch + (f", does not import: {stack.torch_error}" if stack.torch_error else "")
    yield "git commit", stack.torch_git
    yield "wheel", stack.wheel
    yield "built for", build_text(stack)
    if stack.changed_files:
        yield "changed files", ", ".join(stack.changed_files)
    for package in stack.packages:
        if package.changed_files:
            yield f"changed in {package.name}", ", ".join(package.changed_files)
    yield "python", f"{stack.python} ({stack.implementation}), {stack.executable}"
    yield "libc", stack.libc
    yield "driver", stack.driver or ""
    yield "NCCL/RCCL loaded", _nccl_text(stack)
    yield "GPUs", gpus_text(stack.gpus)
    yield "NVLink", _nvlinks(stack.gpus)
    for hca in stack.hcas:
        parts = (hca.kind, hca.link_layer, hca.rate, hca.state, hca.firmware and f"firmware {hca.firmware}")
        yield f"HCA {hca.name}", ", ".join(filter(None, parts))
    for interface in stack.network:
        speed = f"{interface.speed_mbit} Mbit/s" if interface.speed_mbit else ""
        mtu = f"MTU {interface.mtu}" if interface.mtu else ""
        yield f"network {interface.name}", ", ".join(filter(None, (interface.state, speed, mtu, interface.driver)))
    yield "host", ", ".join(filter(None, (stack.host, stack.platform)))
    if stack.image:
        yield "image", ", ".join(filter(None, (stack.image, stack.image_id, stack.image_digest)))
    yield "container", stack.container or "none: the host itself"
    for extension in stack.extensions:
        yield f"extension {extension.name}", extension_text(extension)
    yield from stack.environment.items()
    yield "packages", f"{len(stack.packages)}, sha256 {stack.packages_digest}"
    yield "fingerprint", stack.digest
    for text in stack.unknown:
        yield "not read", text


def build_text(stack: Fingerprint) -> str:
    """ "CUDA 13.2", "ROCm 7.1", "CPU"."""
    words = {"cuda": f"CUDA {stack.cuda}", "rocm": f"ROCm {stack.hip}", "cpu": "CPU", "xpu": "XPU", "unknown": ""}
    return words[stack.build]


def gpus_text(gpus: tuple[Gpu, ...]) -> str:
    """ "8 x NVIDIA H200, 141 GB"; several kinds one after the other."""
    kinds: dict[str, int] = {}
    for gpu in gpus:
        size = f", {gpu.memory_bytes / 1e9:.0f} GB" if gpu.memory_bytes else ""
        kind = f"{gpu.name or 'a GPU that does not say its name'}{size}"
        kinds[kind] = kinds.get(kind, 0) + 1
    return "; ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "none"


def extension_text(extension: Extension) -> str:
    """Version, the torch it was built with, and whether it loads."""
    abi = "stable ABI" if extension.stable_abi else "C++ ABI"
    built = (
        f"built with torch {extension.built_with}"
        if extension.built_with
        else "built with a torch that it does not say"
    )
    loads = {True: "loads", False: f"does not load: {extension.error}", None: "not tried"}[extension.loads]
    return f"{extension.version}, {built}, {abi}, {loads}"


def _nccl_text(stack: Fingerprint) -> str:
    """Version and file; empty when there is none."""
    if not stack.nccl and not stack.nccl_file:
        return ""
    return f"{stack.nccl or 'version not known'}, {stack.nccl_file or 'linked into torch'}"


def _nvlinks(gpus: tuple[Gpu, ...]) -> str:
    """Active links of each GPU."""
    known = [gpu for gpu in gpus if gpu.nvlinks is not None]
    return ", ".join(f"GPU {gpu.index}: {gpu.nvlinks} links" for gpu in known) if known else ""
