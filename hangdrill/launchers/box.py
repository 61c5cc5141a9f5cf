"""What a job in a container sees of this host, decided once for bwrap and for the container engines.

The host's programs and libraries and the ranks' Python environment are mounted read-only, so no image is built; in an
image of the user's (`image_box`) they are the image's. Of the run directory only what ranks write is mounted, each at
its own path: a job cannot touch its evidence. Everything else, /tmp and the home directory too, is the container's own
layer and goes with it. Nothing is started or written here.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from hangdrill.launchers.agent_path import rank_package
from hangdrill.launchers.protocol import LaunchRequest
from hangdrill.model.errors import MachineError
from hangdrill.model.scenario import Volume

__all__ = [
    "Box",
    "Memory",
    "Mount",
    "box_of",
    "check_volumes",
    "find_mounted",
    "home_of",
    "image_box",
    "mounted_volumes",
]

_PROGRAMS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    "alternatives", "group", "host.conf", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime",
    "nsswitch.conf", "passwd", "protocols", "resolv.conf", "services", "ssl",
)  # fmt: skip
_RANKS_WRITE = ("control", "sockets", "native")
VOLUMES = "volumes"
"""Where named volumes lie in the run directory."""


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory of this host, and its path in the container."""

    source: str
    target: str
    writable: bool = False


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """A tmpfs of the container. size_bytes None: as large as the system makes it."""

    target: str
    size_bytes: int | None = None


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """mounts: parents before children. memory: each a tmpfs. links: (path, what it points to). own_dirs: in the
    container's own layer."""

    mounts: tuple[Mount, ...]
    memory: tuple[Memory, ...] = ()
    links: tuple[tuple[str, str], ...]
    own_dirs: tuple[str, ...]
    devices: tuple[str, ...]


def box_of(request: LaunchRequest) -> Box:
    """Decide everything. Reads links and pyvenv.cfg on this host."""
    links = tuple((path, str(Path(path).readlink())) for path in _PROGRAMS if Path(path).is_symlink())
    real = (path for path in _PROGRAMS if Path(path).is_dir() and not Path(path).is_symlink())
    seen = (*real, "/usr", *(f"/etc/{name}" for name in _ETC), *_environment(request), str(rank_package()))
    mounts = {path: Mount(source=str(Path(path).resolve()), target=path) for path in seen if Path(path).exists()}
    run_dir = Path(request.run_dir)
    for name in ("agent", *_RANKS_WRITE):
        path = str(run_dir / name)
        mounts[path] = Mount(source=path, target=path, writable=name in _RANKS_WRITE)
    mounts |= {mount.target: mount for mount in mounted_volumes(request.volumes, request.run_dir)}
    wanted = ("/tmp", "/var/tmp", request.environ.get("HOME", ""), request.environ.get("TMPDIR", ""), request.dump_dir)
    own = {path for path in wanted if path.startswith("/") and find_mounted(mounts.values(), path) is None}
    memory = tuple(Memory(target=each.target, size_bytes=each.size_bytes) for each in request.volumes if each.in_memory)
    own -= {each.target for each in memory}
    return Box(
        memory=memory,
        mounts=_without_doubles(mounts.values()),
        links=links,
        own_dirs=tuple(sorted(own | {request.cwd})),
        devices=tuple(sorted(str(path) for path in Path("/dev").glob("nvidia*") if path.is_char_device())),
    )


def home_of(script: Path, environ: Mapping[str, str]) -> Path:
    """What a container sees of a script: its directory; the script alone where that is /tmp or the home directory."""
    shared = ("/", "/tmp", "/var/tmp", environ.get("HOME", ""))
    return script if str(script.parent) in shared else script.parent


def image_box(request: LaunchRequest) -> Box:
    """For a job in an image: the agent, what ranks write of the run directory, the volumes, and the script's directory
    (the script alone where that is /tmp or the home directory). Nothing else is this host's."""
    run_dir = Path(request.run_dir)
    seen = [str(rank_package()), str(run_dir / "agent")]
    if not request.target.startswith("workload:"):
        seen.append(str(home_of(Path(request.cwd, request.target), request.environ)))
    mounts = {path: Mount(source=str(Path(path).resolve()), target=path) for path in seen}
    for name in _RANKS_WRITE:
        path = str(run_dir / name)
        mounts[path] = Mount(source=path, target=path, writable=True)
    mounts |= {mount.target: mount for mount in mounted_volumes(request.volumes, request.run_dir)}
    memory = tuple(Memory(target=each.target, size_bytes=each.size_bytes) for each in request.volumes if each.in_memory)
    held = find_mounted(mounts.values(), request.dump_dir) is not None or request.dump_dir in {
        each.target for each in memory
    }
    return Box(
        memory=memory,
        mounts=_without_doubles(mounts.values()),
        links=(),
        own_dirs=(request.dump_dir,) if request.dump_dir.startswith("/") and not held else (),
        devices=(),
    )


def mounted_volumes(volumes: Iterable[Volume], run_dir: str) -> tuple[Mount, ...]:
    """A named volume lies in the run directory; one in memory is no place of this host."""
    return tuple(
        Mount(
            source=volume.source if volume.source.startswith("/") else f"{run_dir}/{VOLUMES}/{volume.source}",
            target=volume.target,
            writable=not volume.read_only,
        )
        for volume in volumes
        if not volume.in_memory
    )


def check_volumes(request: LaunchRequest) -> None:
    """MachineError when the source of a volume is not there: each program would refuse it in its own words."""
    for volume in request.volumes:
        if volume.source.startswith("/") and not Path(volume.source).exists():
            raise MachineError(
                f"the volume does not exist: {volume.source}",
                where="job.volumes",
                next_step="make it first, or give it a plain name: then it is made in the run directory",
            )


def find_mounted(mounts: Iterable[Mount], path: str) -> Path | None:
    """Where this host has what the container calls `path`; None when no mount holds it. Pure."""
    wanted = PurePosixPath(path)
    holding = [mount for mount in mounts if wanted.is_relative_to(mount.target)]
    if not holding:
        return None
    mount = max(holding, key=lambda mount: len(PurePosixPath(mount.target).parts))
    return Path(mount.source) / wanted.relative_to(mount.target)


def _without_doubles(mounts: Iterable[Mount]) -> tuple[Mount, ...]:
    """Parents first; what a read-only mount shows already is not mounted again."""
    kept: list[Mount] = []
    for mount in sorted(mounts, key=lambda mount: (len(PurePosixPath(mount.target).parts), mount.target)):
        if mount.writable or find_mounted(kept, mount.target) != Path(mount.source):
            kept.append(mount)
    return tuple(kept)


def _environment(request: LaunchRequest) -> tuple[str, ...]:
    """The ranks' Python, the packages that it finds elsewhere, and the script with the directory it is started in."""
    found = shutil.which(request.python, path=request.environ.get("PATH"))
    prefixes = _prefixes(Path(found)) if found is not None else ()
    paths = [*map(str, prefixes), *request.environ.get("PYTHONPATH", "").split(":")]
    for prefix in prefixes:
        paths += [line for file in prefix.glob("lib/python3*/site-packages/*.pth") for line in _lines(file)]
    if not request.target.startswith("workload:"):
        script = Path(request.cwd, request.target)
        shared = ("/tmp", "/var/tmp", request.environ.get("HOME", ""))  # these stay private: then the script alone
        paths += [path for path in (request.cwd, str(script.parent)) if path not in shared]
        paths.append(str(script))
    private = request.run_dir.rstrip("/") + "/"
    return tuple(path for path in paths if path.startswith("/") and path != "/" and not path.startswith(private))


def _prefixes(python: Path) -> tuple[Path, ...]:
    """The environment, and the installation that it was made from."""
    prefixes = [python.absolute().parent.parent, python.resolve().parent.parent]
    for line in _lines(prefixes[0] / "pyvenv.cfg"):
        key, _, value = line.partition("=")
        if key.strip() == "home":
            prefixes.append(Path(value.strip()).parent)
    return tuple(dict.fromkeys(prefix for prefix in prefixes if prefix != Path("/")))


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(errors="replace").splitlines()]
    except OSError:
        return []
