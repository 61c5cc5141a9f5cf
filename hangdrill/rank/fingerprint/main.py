"""Read the fingerprint and print it in parts, each as soon as it is known: a torch that crashes costs the last ones.

Every line is MARK and a JSON object; the fields of a later line are laid over those of an earlier one. The order:
what lies on the disk; the machine; what torch says once it is imported; whether the extensions load beside it.
"""

import ctypes
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from hangdrill.rank.fingerprint.added import added_packages
from hangdrill.rank.fingerprint.changed import changes
from hangdrill.rank.fingerprint.extensions import extensions, try_to_load
from hangdrill.rank.fingerprint.machine import environment, machine
from hangdrill.rank.fingerprint.packages import digest_of_all, packages
from hangdrill.rank.fingerprint.torch_files import torch_files

__all__ = ["MARK", "main"]

MARK = "hangdrill.fingerprint "
NCCL = re.compile(r"(/\S*lib(?:nccl|rccl)\.so[.\d]*)$", re.MULTILINE)


def main() -> None:
    """Print all parts."""
    sys.path[:] = [entry for entry in sys.path if entry]  # where we stand must not shadow what is installed
    facts, unknown = machine()
    files, more = torch_files()
    unknown += more
    linked = extensions()
    changed = changes(one["name"] for one in linked)
    facts.update(files)
    facts.update(changed.pop("torch", {}))
    installed = [{**one, **changed.get(one["name"], {})} for one in packages()]
    installed += added_packages()
    facts.update(
        executable=sys.executable,
        prefix=sys.prefix,
        environment=environment(os.environ),
        packages=installed,
        packages_digest=digest_of_all(installed),
        extensions=linked,
    )
    if "torch" not in facts:
        _tell({**facts, "unknown": unknown})
        return
    _tell({**facts, "unknown": unknown, "torch_error": "importing it ended the process, or never ended"})
    answer = _imported(unknown)
    _tell({**answer, "unknown": unknown})
    if not answer["torch_error"] and linked:
        _tell({"extensions": list(try_to_load(linked))})


def _tell(part: dict[str, Any]) -> None:
    sys.stdout.write(f"\n{MARK}{json.dumps(_in_utf8(part))}\n")
    sys.stdout.flush()


def _in_utf8(value: Any) -> Any:
    """With a backslash and its number for each byte of a variable or a path that is no UTF-8: JSON has none for it."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_in_utf8(name): _in_utf8(one) for name, one in value.items()}
    return [_in_utf8(one) for one in value] if isinstance(value, list | tuple) else value


def _imported(unknown: list[str]) -> dict[str, Any]:
    """What an imported torch says of itself, or why it does not import."""
    try:
        import torch
    except BaseException as error:
        return {"torch_error": f"{type(error).__name__}: {error}".strip().splitlines()[0]}
    facts: dict[str, Any] = {"torch_error": ""}
    try:
        facts["torch"] = str(torch.__version__)
        facts["torch_git"] = str(torch.version.git_version or "")
        facts["cuda"], facts["hip"] = torch.version.cuda, torch.version.hip
        facts["cxx11_abi"] = bool(torch._C._GLIBCXX_USE_CXX11_ABI)
    except AttributeError as error:
        return {"torch_error": f"it imports, and is no torch: {error}"}
    facts["nccl"], facts["nccl_file"] = _loaded_nccl(unknown)
    if not facts["nccl_file"] and (facts["cuda"] or facts["hip"]):
        facts["nccl"] = _own_nccl(torch)
    return facts


def _loaded_nccl(unknown: list[str]) -> tuple[str | None, str]:
    """Version and file of the NCCL or RCCL that came into this process with torch."""
    found = NCCL.search(Path("/proc/self/maps").read_text())
    if found is None:
        return None, ""
    number = ctypes.c_int()
    try:
        if ctypes.CDLL(found[1]).ncclGetVersion(ctypes.byref(number)) != 0:
            raise OSError("it gives no version")
    except (OSError, AttributeError) as error:
        unknown.append(f"{found[1]} does not say its version: {error}")
        return None, found[1]
    return _version_text(number.value), found[1]


def _own_nccl(torch: Any) -> str | None:
    """Of an NCCL that is linked into torch itself: what torch says."""
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version()[:3])
    except Exception:  # a torch without NCCL has no such function, or it refuses
        return None


def _version_text(code: int) -> str:
    """23007 -> "2.30.7"; before 2.9: 2804 -> "2.8.4"."""
    if code >= 10000:
        return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
