"""A directory of this host: what is no regular file is never opened, loops and locks end in a reason, nothing waits."""

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hostile_pickles import entry, pickled, write

from hangdrill.recorder import DumpError, find_dumps, open_place, read_dump, read_evidence
from hangdrill.recorder.local import read_regular

DUMP = pickled(entry())


def reasons(path: Path) -> dict[str, str]:
    return {Path(file.path).name: file.reason for file in find_dumps(open_place(path)).ignored}


def test_a_fifo_a_socket_and_a_device_are_listed_and_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening the FIFO would wait for ever, and reading the device would never end."""
    write(tmp_path, fr_0=DUMP)
    os.mkfifo(tmp_path / "fr_1")
    (tmp_path / "fr_2").symlink_to("/dev/zero")
    (tmp_path / "fr_3").symlink_to(tmp_path / "fr_1")
    server = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    server.bind("fr_4")
    server.close()
    assert [dump.rank for dump in read_evidence(tmp_path).dumps] == [0]
    assert reasons(tmp_path) == {
        "fr_1": "a FIFO, not a file",
        "fr_2": "a link to a directory, or to nothing that can be read",
        "fr_3": "a link to a directory, or to nothing that can be read",
        "fr_4": "a socket, not a file",
    }


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_that_is_named_is_refused(path: str) -> None:
    with pytest.raises(DumpError, match="it is a device, not a file"):
        open_place(path)


def test_a_fifo_that_is_named_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fr_1")
    for read in (open_place, read_dump):
        with pytest.raises(DumpError, match="it is a FIFO, not a file"):
            read(tmp_path / "fr_1")


def test_a_file_that_becomes_a_fifo_after_the_look_does_not_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, fr_0=DUMP)
    os.mkfifo(tmp_path / "pipe")
    really_open = os.open
    monkeypatch.setattr(os, "open", lambda _, flags: really_open(tmp_path / "pipe", flags))
    with pytest.raises(DumpError, match="it is a FIFO, not a file"):
        read_regular(tmp_path / "fr_0", 100)


def test_loops_of_links_end(tmp_path: Path) -> None:
    write(tmp_path, fr_0=DUMP)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "fr_1").symlink_to(tmp_path / "fr_2")
    (tmp_path / "fr_2").symlink_to(tmp_path / "fr_1")
    assert list(find_dumps(open_place(tmp_path)).files) == [0]
    assert set(reasons(tmp_path)) == {"loop", "fr_1", "fr_2"}
    with pytest.raises(DumpError, match="it cannot be looked at: Too many levels"):
        open_place(tmp_path / "fr_1")


def test_directories_are_entered_but_not_for_ever_and_not_by_links(tmp_path: Path) -> None:
    write(tmp_path, a__b__c__d__fr_0=DUMP, a__b__c__d__e__fr_1=DUMP, DOTgit__fr_2=DUMP)
    (tmp_path / "fr_9").symlink_to(tmp_path / "gone")
    assert list(find_dumps(open_place(tmp_path)).files) == [0]
    assert reasons(tmp_path) == {
        "e": "a directory more than 4 levels down",
        ".git": "a temporary or hidden directory",
        "fr_9": "a link to a directory, or to nothing that can be read",
    }


def test_a_link_to_a_file_or_to_the_directory_itself_is_followed(tmp_path: Path) -> None:
    write(tmp_path, real__fr_0=DUMP)
    (tmp_path / "real" / "fr_1").symlink_to(tmp_path / "real" / "fr_0")
    (tmp_path / "latest").symlink_to(tmp_path / "real")
    assert list(find_dumps(open_place(tmp_path / "latest")).files) == [0, 1]


@pytest.mark.parametrize("path", ["gone", "fr_0/below", "null\0byte"])
def test_a_path_that_is_not_there_is_said(tmp_path: Path, path: str) -> None:
    write(tmp_path, fr_0=DUMP)
    with pytest.raises(DumpError, match=r"no such file or directory|cannot be looked at: (stat: )?embedded null"):
        open_place(tmp_path / path)


def test_a_dump_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="cannot be read: No such file"):
        read_dump(tmp_path / "fr_0")


def refuse(*_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_directory_that_may_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdrill.recorder.local.os.scandir", refuse)
    with pytest.raises(DumpError, match="cannot be read: Permission denied"):
        find_dumps(open_place(tmp_path))


def test_a_directory_below_that_may_not_be_read_is_listed_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, a__fr_0=DUMP, b__fr_1=DUMP)
    scan = os.scandir
    monkeypatch.setattr(
        "hangdrill.recorder.local.os.scandir", lambda path: refuse() if Path(path).name == "b" else scan(path)
    )
    assert list(find_dumps(open_place(tmp_path)).files) == [0]
    assert reasons(tmp_path) == {"b": "the directory cannot be read: Permission denied"}


def test_a_dump_that_may_not_be_read_is_unreadable_and_its_rank_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a vague name: what it begins like cannot be seen."""
    write(tmp_path, fr_0=DUMP, trace_5=DUMP)
    monkeypatch.setattr("hangdrill.recorder.local.os.open", refuse)
    evidence = read_evidence(tmp_path)
    assert [one.rank for one in evidence.unreadable] == [0, 5]
    assert all("cannot be read: Permission denied" in one.error for one in evidence.unreadable)


@contextmanager
def somebody_else() -> Iterator[None]:
    """Root may read everything, so it becomes somebody else for a while."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_so_it_is_with_a_real_file() -> None:
    with tempfile.TemporaryDirectory() as place:  # pytest's own directories are closed to others
        Path(place).chmod(0o755)
        (write(Path(place), fr_0=DUMP) / "fr_0").chmod(0)
        with somebody_else():
            assert "Permission denied" in read_evidence(place).unreadable[0].error


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdrill.recorder.places.MAX_FILES", 1)
    with pytest.raises(DumpError, match="more than 1 files"):
        find_dumps(open_place(write(tmp_path, fr_0=DUMP, fr_1=DUMP)))


def test_a_file_that_is_too_big_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "fr_0").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(DumpError, match="1000000000000 bytes is more than a dump may have"):
        read_dump(tmp_path / "fr_0")


def test_names_that_would_steer_a_terminal_are_written_out(tmp_path: Path) -> None:
    name = b"fr_0\x1b[2J\n\xff"
    Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).write_bytes(b"junk")
    (tmp_path / "fr_1\r").write_bytes(b"junk")
    evidence = read_evidence(tmp_path)
    shown = [one.path for one in evidence.ignored] + [one.file for one in evidence.unreadable]
    assert {Path(text).name for text in shown} == {"fr_0\\x1b[2J\\x0a\\udcff", "fr_1\\x0d"}
    assert all(text.isprintable() for text in shown)


def test_a_file_that_grows_past_the_bound_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, fr_0=b"x" * 200)
    really = os.fstat
    monkeypatch.setattr(os, "fstat", lambda handle: os.stat_result([*really(handle)[:6], 0, *really(handle)[7:]]))
    with pytest.raises(DumpError, match=r"101 bytes is more than a dump may have \(100\)"):
        read_regular(tmp_path / "fr_0", 100)
