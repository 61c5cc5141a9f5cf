"""Archives are read where they lie: nothing is extracted, every length is bounded, a cut one gives what came before."""

import gzip
import io
import json
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from hostile_pickles import entry, pickled, plain, write

from hangdrill.recorder import DumpError, Evidence, find_dumps, open_place, read_evidence
from hangdrill.recorder.tar_stream import BadArchive, members

DUMP = pickled(entry())
FILES = {"host-a/fr_0": DUMP, "host-b/fr_1": DUMP, "notes.txt": b"text"}
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def tar_bytes(files: dict[str, bytes], form: int = tarfile.PAX_FORMAT, **changes: object) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in changes.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_bytes(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return out.getvalue()


def packed(path: Path, files: dict[str, bytes] = FILES) -> Path:
    """An archive of the sort that its name says."""
    data = zip_bytes(files) if path.suffix == ".zip" else tar_bytes(files)
    path.write_bytes(gzip.compress(data) if path.name.endswith(("gz", "tgz")) else data)
    return path


def reasons(evidence: Evidence) -> dict[str, str]:
    return {Path(file.path).name: file.reason for file in evidence.ignored}


@pytest.mark.parametrize("name", ["all.tar", "all.tar.gz", "all.tgz", "all.zip"])
def test_an_archive_is_as_good_as_the_directory(tmp_path: Path, name: str) -> None:
    evidence = read_evidence(packed(tmp_path / name))
    assert [(dump.rank, dump.path) for dump in evidence.dumps] == [
        (0, f"{tmp_path}/{name}!host-a/fr_0"),
        (1, f"{tmp_path}/{name}!host-b/fr_1"),
    ]
    assert reasons(evidence) == {f"{name}!notes.txt".rpartition("/")[2]: "not a dump by its name"}
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]  # nothing was extracted


@pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))
def test_every_tar_format_with_long_names_is_read(tmp_path: Path, form: int) -> None:
    long = "/".join(["d" * 40] * 4)
    names = [f"{long}/fr_0", "ünï/fr_1", "./fr_2"]
    (tmp_path / "all.tar").write_bytes(tar_bytes(dict.fromkeys(names, DUMP), form))
    place = open_place(tmp_path / "all.tar")
    assert find_dumps(place).files == {0: (names[0],), 1: (names[1],), 2: ("fr_2",)}
    place.close()


def test_a_size_beyond_octal_is_read() -> None:
    header = bytearray(tar_bytes({"fr_0": b""}, tarfile.GNU_FORMAT)[:512])
    header[124:136] = b"\x80" + (2**40).to_bytes(11, "big")
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    member = next(members(io.BytesIO(bytes(header))))
    assert (member.name, member.size, member.read(10)) == ("fr_0", 2**40, b"")


@pytest.mark.parametrize("name", ["all.tar.gz", "all.zip"])
def test_a_run_directory_in_an_archive_keeps_its_manifest_and_groups(tmp_path: Path, name: str) -> None:
    import msgspec
    from test_files import evidence_directory

    evidence_directory(tmp_path / "run")
    facts = msgspec.json.encode({"rank": 0, "pid": 1, "groups": [{"name": "3", "desc": "tp", "ranks": [0, 1]}]})
    write(tmp_path / "run", control__rank_0DOTa0DOTfactsDOTjson=facts)
    files = {
        str(path.relative_to(tmp_path)): path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()
    }
    from_archive, from_run = read_evidence(packed(tmp_path / name, files)), read_evidence(tmp_path / "run")
    assert [dump.operations for dump in from_archive.dumps] == [dump.operations for dump in from_run.dumps]
    for part in ("reports", "world_size", "launch_groups", "claimed", "found"):
        assert getattr(from_archive, part) == getattr(from_run, part)
    assert from_archive.launch_groups


@pytest.mark.parametrize("name", ["all.tar.gz", "all.zip"])
def test_paths_that_lead_out_lead_nowhere(tmp_path: Path, name: str) -> None:
    place = tmp_path / "deep" / "down"
    place.mkdir(parents=True)
    evidence = read_evidence(packed(place / name, {"../../fr_0": DUMP, "/etc/fr_1": DUMP, "a/../../fr_2": DUMP}))
    assert [dump.path.partition("!")[2] for dump in evidence.dumps] == ["fr_0", "etc/fr_1", "fr_2"]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [place / name]


@pytest.mark.parametrize(
    "sort", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE]
)
def test_links_devices_and_sparse_files_in_a_tar_are_passed_over(tmp_path: Path, sort: bytes) -> None:
    odd = (
        tar_bytes({"fr_0": b""}, type=sort, linkname="/etc/passwd")[:-10240]
        or tar_bytes({"fr_0": b""}, type=sort)[:512]
    )
    (tmp_path / "all.tar").write_bytes(odd + tar_bytes({"fr_1": DUMP}))
    evidence = read_evidence(tmp_path / "all.tar")
    assert [dump.rank for dump in evidence.dumps] == [1]
    assert reasons(evidence) == {"all.tar!fr_0": "a link, a device or a sparse file, not a plain one"}


def test_a_link_in_a_zip_is_passed_over(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        link = zipfile.ZipInfo("fr_0")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "/etc/passwd")
        file.writestr("fr_1", DUMP)
    (tmp_path / "all.zip").write_bytes(out.getvalue())
    evidence = read_evidence(tmp_path / "all.zip")
    assert [dump.rank for dump in evidence.dumps] == [1]
    assert list(reasons(evidence).values()) == ["a link or a device, not a plain file"]


def test_a_name_that_is_there_twice_is_read_once(tmp_path: Path) -> None:
    body = tar_bytes({"fr_0": DUMP})
    one = body[: 512 + -(-len(DUMP) // 512) * 512]
    (tmp_path / "all.tar").write_bytes(one + body)
    evidence = read_evidence(tmp_path / "all.tar")
    assert len(evidence.dumps) == 1
    assert list(reasons(evidence).values()) == ["a second member of this name"]


@pytest.mark.parametrize("name", ["all.tar", "all.tar.gz"])
def test_a_tar_cut_at_any_place_gives_what_came_before(tmp_path: Path, name: str) -> None:
    whole = packed(tmp_path / name).read_bytes()
    saved = 0
    for size in range(0, len(whole), 97):
        (tmp_path / name).write_bytes(whole[:size])
        evidence = read_evidence(tmp_path / name)
        operations = sum(len(dump.operations) for dump in evidence.dumps)
        assert saved <= operations <= 2
        assert (
            operations == 2
            or any("cut" in one.error or "empty" in one.error for one in evidence.unreadable)
            or not size
        )
        saved = operations
    assert saved == 2


def test_a_zip_that_is_cut_is_said_to_be(tmp_path: Path) -> None:
    whole = packed(tmp_path / "all.zip").read_bytes()
    (tmp_path / "all.zip").write_bytes(whole[:-30])
    with pytest.raises(DumpError, match="it is no zip that can be read: it has no directory at its end"):
        read_evidence(tmp_path / "all.zip")


def test_a_member_of_a_zip_that_is_damaged_does_not_spoil_the_others(tmp_path: Path) -> None:
    data = bytearray(zip_bytes({"fr_0": DUMP, "fr_1": DUMP}, zipfile.ZIP_STORED))
    data[data.index(b"all_reduce")] ^= 1
    (tmp_path / "all.zip").write_bytes(data)
    evidence = read_evidence(tmp_path / "all.zip")
    assert [dump.rank for dump in evidence.dumps] == [1]
    assert [(one.rank, "Bad CRC-32" in one.error) for one in evidence.unreadable] == [(0, True)]


@pytest.mark.parametrize(
    ("method", "reason"), [(zipfile.ZIP_BZIP2, "compressed in a way"), (zipfile.ZIP_LZMA, "compressed")]
)
def test_methods_whose_memory_cannot_be_bounded_are_passed_over(tmp_path: Path, method: int, reason: str) -> None:
    (tmp_path / "all.zip").write_bytes(zip_bytes({"fr_0": DUMP}, method))
    evidence = read_evidence(tmp_path / "all.zip")
    assert evidence.dumps == ()
    assert all(reason in text for text in reasons(evidence).values())


def test_an_encrypted_member_is_passed_over(tmp_path: Path) -> None:
    data = bytearray(zip_bytes({"fr_0": DUMP}))
    for magic, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(magic) + flags] |= 1
    (tmp_path / "all.zip").write_bytes(data)
    assert list(reasons(read_evidence(tmp_path / "all.zip")).values()) == ["encrypted; unpack it to have it read"]


def test_a_bomb_ends_in_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros that pack a thousand to one, before and after a dump."""
    monkeypatch.setattr("hangdrill.recorder.tar_stream.FREE_BYTES", 2**20)
    monkeypatch.setattr("hangdrill.recorder.archives.FREE_BYTES", 2**20)
    evidence = read_evidence(packed(tmp_path / "all.tar.gz", {"fr_0": DUMP, "big": bytes(2**24), "fr_1": DUMP}))
    assert [dump.rank for dump in evidence.dumps] == [0]
    assert [one.error for one in evidence.unreadable] == ["it unpacks to more than 400 times its size, as no dumps do"]
    evidence = read_evidence(packed(tmp_path / "all.zip", {"fr_0": DUMP, "fr_1": bytes(2**24)}))
    assert list(reasons(evidence).values()) == ["it unpacks to more than 400 times its size"]


def test_all_members_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdrill.recorder.tar_stream.MAX_TOTAL_BYTES", 4096)
    monkeypatch.setattr("hangdrill.recorder.archives.MAX_TOTAL_BYTES", len(DUMP) + 1)
    assert "more than 4096 bytes" in read_evidence(packed(tmp_path / "all.tar.gz")).unreadable[0].error
    evidence = read_evidence(packed(tmp_path / "all.zip"))
    assert [dump.rank for dump in evidence.dumps] == [0]
    assert "the archive unpacks to more than" in evidence.unreadable[0].error


def test_a_member_that_is_too_big_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdrill.recorder.archives.MAX_DUMP_BYTES", 100)
    for name in ("all.tar", "all.zip"):
        evidence = read_evidence(packed(tmp_path / name, {"fr_0": DUMP}))
        assert list(reasons(evidence).values()) == [f"{len(DUMP)} bytes is more than a dump may have (100)"]


def test_names_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdrill.recorder.archives.MAX_NAMES_BYTES", 30)
    assert "its names are more than 30 bytes" in read_evidence(packed(tmp_path / "all.tar")).unreadable[0].error
    with pytest.raises(BadArchive, match="a name of 5000 bytes"):
        list(members(io.BytesIO(tar_bytes({"x" * 4999: b""}, tarfile.GNU_FORMAT))))


@pytest.mark.parametrize("zip64", [False, True])
def test_a_zip_with_a_huge_directory_is_refused_before_it_is_read(tmp_path: Path, zip64: bool) -> None:
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, 2**32 - 1 if zip64 else 2**31, 0, 0)
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, 2**40, 0)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, 0, 1)
    (tmp_path / "all.zip").write_bytes((record + locator if zip64 else b"") + end)
    with pytest.raises(DumpError, match=r"a directory of \d+ bytes is more than"):
        open_place(tmp_path / "all.zip")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"hello" * 200, "a header's number is none|checksum is wrong"),
        (bytes(512)[:-1] + b"\1", "checksum is wrong"),
        (b"\x1f\x8b" + b"junk" * 200, "it is cut at a header"),
        (b"x", "it is cut at a header, 1 bytes"),
    ],
)
def test_what_is_no_tar_is_said_to_be_none(tmp_path: Path, data: bytes, what: str) -> None:
    (tmp_path / "all.tar").write_bytes(data)
    (problem,) = read_evidence(tmp_path / "all.tar").unreadable
    assert problem.rank is None
    assert any(part in problem.error for part in what.split("|"))


def test_a_pax_header_that_is_damaged_ends_the_reading() -> None:
    data = tar_bytes({"ü" * 200: b""}, tarfile.PAX_FORMAT)
    at = data.index(b" path=")
    with pytest.raises(BadArchive, match="a pax header that is damaged"):
        list(members(io.BytesIO(data[:at] + b"x" + data[at + 1 :])))


def test_an_archive_that_may_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(tmp_path / "all.tar")

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DumpError, match="cannot be read: Permission denied"):
        open_place(tmp_path / "all.tar")


def test_an_archive_inside_a_directory_is_listed(tmp_path: Path) -> None:
    packed(tmp_path / "host.tar.gz")
    assert list(reasons(read_evidence(tmp_path)).values()) == [
        "an archive inside a directory; name it as a PATH to have it read"
    ]


def test_directories_in_an_archive_are_no_files(tmp_path: Path) -> None:
    packed(tmp_path / "all.zip", {"host/": b"", "host/fr_0": DUMP})
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        folder = tarfile.TarInfo("host/")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    assert read_evidence(tmp_path / "all.zip").ignored == ()
    assert read_evidence(tmp_path / "all.tar").ignored == ()


@pytest.mark.parametrize("name", ["all.tar", "all.zip"])
def test_a_vague_name_in_an_archive_is_looked_into(tmp_path: Path, name: str) -> None:
    evidence = read_evidence(packed(tmp_path / name, {"trace_0": DUMP, "notes_1": b"text", "/": b""}))
    assert [dump.rank for dump in evidence.dumps] == [0]
    assert f"{name}!notes_1" in reasons(evidence)


@pytest.mark.parametrize("name", ["all.tar", "all.zip"])
def test_a_page_in_an_archive_is_read(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(plain(entry()))
    data = f"<title>FlightRecorder gloo</title><h2>Rank 3: host:1</h2><pre>{text}</pre>".encode()
    packed(tmp_path / name, {"page.html": data})
    assert [dump.rank for dump in read_evidence(tmp_path / name).dumps] == [3]
    if name == "all.tar":
        monkeypatch.setattr("hangdrill.recorder.archives._SIDE_BYTES", 10)
        assert [one.error for one in read_evidence(tmp_path / name).unreadable] == ["it has more than 10 bytes"]


def test_a_damaged_manifest_of_a_zip_is_passed_over(tmp_path: Path) -> None:
    data = bytearray(zip_bytes({"manifest.json": b"{}" * 50, "fr_0": DUMP}, zipfile.ZIP_STORED))
    data[data.index(b"{}{}") + 9] ^= 1
    (tmp_path / "all.zip").write_bytes(data)
    evidence = read_evidence(tmp_path / "all.zip")
    assert ([dump.rank for dump in evidence.dumps], evidence.found) == ([0], False)


def test_an_archive_that_changes_between_two_looks_is_said(tmp_path: Path) -> None:
    for name in ("all.tar", "all.zip"):
        place = open_place(packed(tmp_path / name))
        place.listing()
        (job,) = place.jobs([("gone", 7)])
        assert (job.rank, job.error) == (7, "it cannot be read: there is no such member")
        assert place.kind("gone") == "unknown"
        place.close()


def test_pax_headers_of_all_members_and_of_links_are_passed_over() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "all"}) as tar:
        info = tarfile.TarInfo("fr_0")
        info.size = len(DUMP)
        info.pax_headers = {"size": str(len(DUMP)), "mtime": "1.5"}
        tar.addfile(info, io.BytesIO(DUMP))
    (member,) = members(io.BytesIO(out.getvalue()))
    assert (member.name, member.size) == ("fr_0", len(DUMP))


def test_a_number_below_zero_in_a_tar_is_damage() -> None:
    header = bytearray(tar_bytes({"fr_0": b""})[:512])
    header[148:156] = b"-000001\0"
    with pytest.raises(BadArchive, match="negative"):
        list(members(io.BytesIO(bytes(header))))


def test_a_zip64_record_that_is_none_is_damage(tmp_path: Path) -> None:
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, 0, 1)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, 0, 0, 0)
    (tmp_path / "all.zip").write_bytes(b"junk" + locator + end)
    with pytest.raises(DumpError, match="its directory is damaged"):
        open_place(tmp_path / "all.zip")


def test_an_archive_that_becomes_a_fifo_after_the_look_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(tmp_path / "all.tar")
    os.mkfifo(tmp_path / "pipe")
    really_open = os.open
    monkeypatch.setattr(os, "open", lambda _, flags: really_open(tmp_path / "pipe", flags))
    with pytest.raises(DumpError, match="it is no file"):
        open_place(tmp_path / "all.tar")
