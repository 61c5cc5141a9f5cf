"""What is seen of the dump directory and of the host, without writing anything."""

import os
from pathlib import Path

import pytest

from hangdrill.preflight.machine import look_at_machine
from hangdrill.preflight.place import look_at_place, mount_of, native_prefix
from hangdrill.preflight.surroundings import Place

MOUNTS = """22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:21 / {base} rw,relatime shared:1 - tmpfs tmpfs rw,size=4k
24 22 0:22 / {base}/with\\040space rw - nfs4 host:/x rw
25 22 0:23 / {base}/locked ro,relatime - ext4 /dev/vdb rw
26 22 0:24 / {base}/twice rw - ext4 /dev/vdc rw
27 22 0:25 / {base}/twice rw - overlay overlay rw
damaged line
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    file = tmp_path / "mountinfo"
    file.write_text(MOUNTS.format(base=tmp_path))
    return file


def look(prefix: str, tmp_path: Path, mounts: Path, **more: object) -> Place:
    options = {"cwd": tmp_path, "umask": 0o022, "mounts": mounts, **more}
    return look_at_place(prefix, "test", **options)


def test_the_default_is_torchs_and_a_variable_wins() -> None:
    assert native_prefix({"HOME": "/h"}) == ("/h/.cache/torch/comm_lib_trace_rank_", "torch's default")
    assert native_prefix({"HOME": "/h", "XDG_CACHE_HOME": "/c"})[0] == "/c/torch/comm_lib_trace_rank_"
    both = {"TORCH_FR_DUMP_TEMP_FILE": "/a/fr_", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/b/fr_"}
    assert native_prefix(both) == ("/a/fr_", "TORCH_FR_DUMP_TEMP_FILE")
    assert native_prefix({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/b/fr_"})[0] == "/b/fr_"
    assert native_prefix({"TORCH_FR_DUMP_TEMP_FILE": ""}) == ("", "TORCH_FR_DUMP_TEMP_FILE")


def test_the_mount_that_holds_a_path_is_the_longest_and_the_last(tmp_path: Path, mounts: Path) -> None:
    assert mount_of(Path("/"), mounts) == ("ext4", "/", False)
    assert mount_of(tmp_path / "x", mounts) == ("tmpfs", str(tmp_path), False)
    assert mount_of(tmp_path / "with space" / "x", mounts)[0] == "nfs4"
    assert mount_of(tmp_path / "locked", mounts)[2] is True
    assert mount_of(tmp_path / "twice", mounts)[0] == "overlay"
    assert mount_of(tmp_path, tmp_path / "none") == (None, "", False)


def test_a_directory_of_ones_own_is_good_and_nothing_is_written(tmp_path: Path, mounts: Path) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    place = look(f"{own}/fr_", tmp_path, mounts)
    assert (place.exists, place.is_directory, place.writable, place.others_can_read) == (True, True, True, False)
    assert (place.old_files, place.names_a_directory, place.file_system) == (0, False, "tmpfs")
    assert place.free_bytes is not None
    assert list(own.iterdir()) == []


def test_a_missing_directory_a_file_and_a_read_only_mount(tmp_path: Path, mounts: Path) -> None:
    assert look("none/fr_", tmp_path, mounts).exists is False
    (tmp_path / "file").touch()
    place = look("file/fr_", tmp_path, mounts)
    assert (place.exists, place.is_directory, place.writable) == (True, False, False)
    (tmp_path / "locked").mkdir()
    assert look("locked/fr_", tmp_path, mounts).writable is False


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_not_writable(tmp_path: Path, mounts: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    assert look("closed/fr_", tmp_path, mounts).writable is False


def test_others_can_read_where_every_directory_lets_them_in(tmp_path: Path, mounts: Path) -> None:
    place = look_at_place("/usr/fr_", "test", cwd=tmp_path, umask=0o022, mounts=mounts)
    assert place.others_can_read is True
    place = look_at_place("/usr/fr_", "test", cwd=tmp_path, umask=0o077, mounts=mounts)
    assert place.others_can_read is False


def test_old_files_are_those_of_the_prefix(tmp_path: Path, mounts: Path) -> None:
    for name in ("fr_0", "fr_12", "fr_x", "other_1", "fr_"):
        (tmp_path / name).touch()
    assert look(f"{tmp_path}/fr_", tmp_path, mounts).old_files == 2


def test_a_prefix_that_is_a_directory(tmp_path: Path, mounts: Path) -> None:
    (tmp_path / "d").mkdir()
    assert look(f"{tmp_path}/d", tmp_path, mounts).names_a_directory is True
    assert look(f"{tmp_path}/d/", tmp_path, mounts).names_a_directory is False


def test_a_directory_that_hangdrill_makes_is_judged_by_its_parent(tmp_path: Path, mounts: Path) -> None:
    place = look("runs/x/fr_", tmp_path, mounts, made_by_hangdrill=True)
    assert (place.exists, place.writable, place.directory) == (True, True, str(tmp_path / "runs/x"))


def host(tmp_path: Path, scope: str | None, capabilities: str | None) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/yama").mkdir(parents=True)
    if scope is not None:
        (tmp_path / "proc/sys/kernel/yama/ptrace_scope").write_text(scope)
    if capabilities is not None:
        (tmp_path / "proc/self/status").write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("scope", "capabilities", "expected"),
    [
        ("1\n", "0000000000000000", (1, False)),
        ("0\n", "0000000000080000", (0, True)),
        (None, "000001ffffffffff", (None, True)),
        ("x", "zz", (None, None)),
        ("2", None, (2, None)),
    ],
)
def test_who_may_trace(tmp_path: Path, scope: str | None, capabilities: str | None, expected: object) -> None:
    machine = look_at_machine({}, host(tmp_path, scope, capabilities))
    assert (machine.ptrace_scope, machine.can_trace) == expected


def test_py_spy_is_looked_for_where_the_collector_looks(tmp_path: Path) -> None:
    root, own, other = host(tmp_path, None, None), tmp_path / "own", tmp_path / "other"
    for directory in (own, other):
        directory.mkdir()
        (directory / "py-spy").write_text("#!/bin/sh\n")
        (directory / "py-spy").chmod(0o755)
    environ = {"PATH": str(other)}
    assert look_at_machine(environ, root, own / "python").py_spy == str(own / "py-spy")
    assert look_at_machine(environ, root, root / "python").py_spy == str(other / "py-spy")
    assert look_at_machine({"PATH": "/none"}, root, root / "python").py_spy is None


def test_where_it_runs(tmp_path: Path) -> None:
    root = host(tmp_path, None, None)
    plain = look_at_machine({}, root)
    assert (plain.in_container, plain.in_kubernetes, plain.in_slurm) == (False, False, False)
    pod = look_at_machine({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "SLURM_JOB_ID": "3"}, root)
    assert (pod.in_container, pod.in_kubernetes, pod.in_slurm) == (True, True, True)
    (root / ".dockerenv").touch()
    assert look_at_machine({}, root).in_container
