"""Dumps behind a URL: read through fsspec, bounded, and every failure is one clear error with the right exit code."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hostile_pickles import entry, pickled, write
from test_archives import tar_bytes, zip_bytes

from hangdrill.model.errors import MachineError, UsageError
from hangdrill.recorder import DumpError, open_place, read_evidence

DUMP = pickled(entry())


@pytest.fixture
def memory() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


def test_a_directory_behind_a_url_is_read(memory: Any) -> None:
    for name in ("host-a/fr_0", "host-b/fr_1", "fr_2.tmp"):
        memory.pipe(f"/job/{name}", DUMP)
    evidence = read_evidence("memory://job")
    assert [(dump.rank, dump.path) for dump in evidence.dumps] == [
        (0, "memory://job/host-a/fr_0"),
        (1, "memory://job/host-b/fr_1"),
    ]
    assert [file.path for file in evidence.ignored] == ["memory://job/fr_2.tmp"]


def test_so_is_one_file_and_an_archive(memory: Any) -> None:
    memory.pipe("/job/fr_3", DUMP)
    memory.pipe("/job/all.tar", tar_bytes({"fr_4": DUMP}))
    memory.pipe("/job/all.zip", zip_bytes({"fr_5": DUMP}))
    got = [read_evidence(f"memory://job/{name}").dumps[0].rank for name in ("fr_3", "all.tar", "all.zip")]
    assert got == [3, 4, 5]


def test_a_file_url_is_a_path_of_this_host(tmp_path: Path) -> None:
    write(tmp_path, fr_0=DUMP)
    assert read_evidence(f"file://{tmp_path}").dumps[0].path == f"{tmp_path}/fr_0"


@pytest.mark.parametrize("url", ["memory://gone", "memory://gone/all.zip"])
def test_a_url_with_nothing_behind_it_is_said(memory: Any, url: str) -> None:
    with pytest.raises(DumpError, match="no such file or directory"):
        read_evidence(url)


def test_a_file_that_is_too_big_is_not_fetched(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdrill.recorder.remote.MAX_DUMP_BYTES", 100)
    memory.pipe("/job/fr_0", DUMP)
    (ignored,) = read_evidence("memory://job").ignored
    assert ignored.reason == f"{len(DUMP)} bytes is more than a dump may have (100)"


def test_a_missing_package_is_the_machines_fault_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)  # brought by another test
    with pytest.raises(MachineError, match=r"the package for this file system is missing: .*s3fs") as caught:
        open_place("s3://bucket/dumps")
    assert caught.value.exit_code == 75
    assert "s3fs" in caught.value.next_step


def test_a_file_system_that_nobody_knows_is_the_users_mistake() -> None:
    with pytest.raises(UsageError, match="no file system is known by this name: Protocol not known: nonsense"):
        open_place("nonsense://x")


@pytest.mark.parametrize("name", ["isfile", "find"])
def test_a_file_system_that_fails_is_the_machines_fault(
    memory: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no credentials\x1b[2J")

    monkeypatch.setattr(type(memory), name, fail)
    with pytest.raises(MachineError, match=r"does not answer: RuntimeError: no credentials\\x1b"):
        read_evidence("memory://job")


def test_one_file_that_fails_leaves_the_others(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/job/fr_0", DUMP)
    memory.pipe("/job/trace_1", DUMP)
    really = type(memory).open

    def fail(self: Any, path: str, *rest: Any, **more: Any) -> Any:
        if path.endswith("trace_1"):
            raise OSError("throttled")
        return really(self, path, *rest, **more)

    monkeypatch.setattr(type(memory), "open", fail)
    evidence = read_evidence("memory://job")
    assert [dump.rank for dump in evidence.dumps] == [0]
    assert [(one.rank, one.error) for one in evidence.unreadable] == [
        (1, "the file system does not answer: OSError: throttled")
    ]


def test_a_manifest_behind_a_url_is_believed(memory: Any) -> None:
    memory.pipe("/job/manifest.json", b'{"schema": "hangdrill.manifest/1", "world_size": 9}')
    assert read_evidence("memory://job").world_size == 9


def test_a_file_system_that_cannot_be_made_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no region")

    monkeypatch.setattr("fsspec.core.url_to_fs", fail)
    with pytest.raises(MachineError, match="does not answer: RuntimeError: no region"):
        open_place("memory://job")
