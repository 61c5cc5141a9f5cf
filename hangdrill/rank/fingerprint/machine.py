"""The machine below a stack: driver, GPUs, NVLink, network, container. Reads files and NVML; sets up no GPU."""

import ctypes
import hashlib
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

__all__ = ["environment", "machine"]

MATTER = (
    "TORCH", "PYTORCH_", "NCCL_", "RCCL_", "CUDA_", "HIP_", "ROCR_", "HSA_", "GLOO_", "UCX_", "FI_", "OFI_", "NVSHMEM_",
    "OMP_", "MKL_", "KMP_", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHASHSEED", "NVIDIA_VISIBLE_DEVICES",
    "MALLOC_", "CUBLAS_",
)  # fmt: skip
MOST_GPUS = 64


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that change what torch, NCCL and the network do."""
    return {name: _shown(name, environ[name]) for name in sorted(environ) if name.startswith(MATTER)}


def _shown(name: str, value: str) -> str:
    """The value; of what may be a secret only a hash, which still tells two of them apart."""
    if re.search(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|(^|_)KEY($|_)", name):
        return f"sha256:{hashlib.sha256(value.encode(errors='replace')).hexdigest()[:16]}"
    return value


def machine() -> tuple[dict[str, Any], list[str]]:
    """The facts of the fingerprint, and sentences about what could not be read."""
    unknown: list[str] = []
    gpus, driver = _nvml(unknown)
    if not gpus:
        gpus = _amd()
    facts = {
        "python": platform.python_version(),
        "implementation": platform.python_implementation().lower(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()).strip(),
        "host": platform.node(),
        "driver": driver or _driver(),
        "gpus": gpus,
        "hcas": _hcas(),
        "network": _network(),
        "container": _container(),
    }
    return facts, unknown


def _nvml(unknown: list[str]) -> tuple[list[dict[str, Any]], str | None]:
    """GPUs and the driver by NVIDIA's management library, where there is one."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return _nvidia_files(), None
    if nvml.nvmlInit_v2() != 0:
        unknown.append("NVML is there and does not start: no driver, or another version of it")
        return _nvidia_files(), None
    try:
        text = ctypes.create_string_buffer(96)
        driver = text.value.decode() if nvml.nvmlSystemGetDriverVersion(text, 96) == 0 else None
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        return [_nvidia_gpu(nvml, index) for index in range(min(count.value, MOST_GPUS))], driver
    finally:
        nvml.nvmlShutdown()


class _Memory(ctypes.Structure):
    _fields_: ClassVar = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def _nvidia_gpu(nvml: ctypes.CDLL, index: int) -> dict[str, Any]:
    device = ctypes.c_void_p()
    gpu: dict[str, Any] = {"index": index, "name": ""}
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
        return gpu
    text, memory = ctypes.create_string_buffer(96), _Memory()
    if nvml.nvmlDeviceGetName(device, text, 96) == 0:
        gpu["name"] = text.value.decode(errors="replace")
    if nvml.nvmlDeviceGetUUID(device, text, 96) == 0:
        gpu["uuid"] = text.value.decode(errors="replace")
    if nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0:
        gpu["memory_bytes"] = memory.total
    links, active = 0, ctypes.c_uint()
    for link in range(18):
        links += nvml.nvmlDeviceGetNvLinkState(device, link, ctypes.byref(active)) == 0 and active.value == 1
    gpu["nvlinks"] = links
    return gpu


def _nvidia_files() -> list[dict[str, Any]]:
    """Without NVML: what the kernel driver says of each GPU."""
    found = []
    for index, path in enumerate(sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))):
        text = _read(path)
        name, uuid = re.search(r"Model:\s*(.+)", text), re.search(r"GPU UUID:\s*(\S+)", text)
        found.append({"index": index, "name": name[1].strip() if name else "", "uuid": uuid[1] if uuid else ""})
    return found


def _amd() -> list[dict[str, Any]]:
    """AMD GPUs, from the kernel's topology: nodes with compute units."""
    found: list[dict[str, Any]] = []
    for path in sorted(Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
        values = dict(line.split(maxsplit=1) for line in _read(path).splitlines() if " " in line)
        if values.get("simd_count", "0") != "0":
            version = values.get("gfx_target_version", "0")
            found.append({"index": len(found), "name": _read(path.parent / "name").strip() or f"gfx {version}"})
    return found


def _driver() -> str | None:
    if found := re.search(r"Kernel Module(?: for \S+)?\s+([\d.]+)", _read("/proc/driver/nvidia/version")):
        return found[1]
    amd = _read("/sys/module/amdgpu/version").strip()
    return f"amdgpu {amd}" if amd else None


def _hcas() -> list[dict[str, str]]:
    found = []
    for path in sorted(Path("/sys/class/infiniband").glob("*")):
        port = path / "ports" / "1"
        hca = {
            "name": path.name,
            "kind": _read(path / "hca_type").strip() or _read(path / "node_desc").strip(),
            "firmware": _read(path / "fw_ver").strip(),
            "link_layer": _read(port / "link_layer").strip(),
            "state": _read(port / "state").strip(),
            "rate": _read(port / "rate").strip(),
        }
        found.append(hca)
    return found


def _network() -> list[dict[str, Any]]:
    found = []
    for path in sorted(Path("/sys/class/net").glob("*")):
        if path.name == "lo" or not path.is_dir():
            continue
        driver = path / "device" / "driver"
        speed, mtu = _read(path / "speed").strip(), _read(path / "mtu").strip()
        interface: dict[str, Any] = {"name": path.name, "driver": driver.resolve().name if driver.exists() else ""}
        interface["state"] = _read(path / "operstate").strip()
        interface["speed_mbit"] = int(speed) if speed.isdigit() else None
        interface["mtu"] = int(mtu) if mtu.isdigit() else None
        found.append(interface)
    return found


def _container() -> str:
    """The engine and the id, from what engines leave inside; "" on the host itself."""
    podman = re.search(r'^id="?([0-9a-f]{12,64})', _read("/run/.containerenv"), re.MULTILINE)
    if podman:
        return f"podman:{podman[1]}"
    text = _read("/proc/self/cgroup") + _read("/proc/self/mountinfo")
    found = re.search(r"(?:docker|containers|cri-containerd|crio)[/-]([0-9a-f]{64})", text)
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return f"kubernetes:{found[1]}" if found else "kubernetes"
    if Path("/.dockerenv").exists():
        return f"docker:{found[1]}" if found else "docker"
    if Path("/run/.containerenv").exists():
        return "podman"  # it says its id to privileged containers alone
    if os.environ.get("APPTAINER_CONTAINER") or os.environ.get("SINGULARITY_CONTAINER"):
        return f"apptainer:{os.environ.get('APPTAINER_CONTAINER') or os.environ.get('SINGULARITY_CONTAINER')}"
    return ""


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
