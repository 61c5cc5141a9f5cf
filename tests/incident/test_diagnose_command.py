"""`hangdrill diagnose` at everything that can be found at a path: one clear message and the documented exit code."""

import gzip
import io
import json
import os
import pickle
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from hangdrill.cli import run_command

GLOO = Path(__file__).parents[1] / "data" / "dumps" / "gloo" / "hold-rank-1-of-3"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "exit-codes.md"


def healthy(rank: int) -> bytes:
    whole = pickle.loads((GLOO / f"fr_{rank}").read_bytes())  # our own file
    whole["entries"] = whole["entries"][:5]
    whole["pg_status"] = {}
    whole["pg_config"] = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    return pickle.dumps(whole, protocol=2)


def dumps(place: Path) -> Path:
    for rank in range(3):
        (place / f"fr_{rank}").write_bytes((GLOO / f"fr_{rank}").read_bytes())
    return place


def hang(place: Path) -> Path:
    return dumps(place)


def no_hang(place: Path) -> Path:
    for rank in range(3):
        (place / f"fr_{rank}").write_bytes(healthy(rank))
    return place


def missing(place: Path) -> Path:
    return place / "gone"


def empty_directory(place: Path) -> Path:
    return place


def other_things(place: Path) -> Path:
    for name in ("README", "model.pt", "train.log", "loss.json"):
        (place / name).write_bytes(b'{"loss": 3}')
    return place


def foreign_file(place: Path) -> Path:
    (place / "README").write_bytes(b"text")
    return place / "README"


def fifo(place: Path) -> Path:
    os.mkfifo(place / "fr_0")
    return place / "fr_0"


def device(_: Path) -> Path:
    return Path("/dev/zero")


def link_loop(place: Path) -> Path:
    (place / "a").symlink_to(place / "b")
    (place / "b").symlink_to(place / "a")
    return place / "a"


def fifo_among_others(place: Path) -> Path:
    fifo(place)
    return place


def no_archive(place: Path) -> Path:
    (place / "all.zip").write_bytes(b"junk")
    return place / "all.zip"


def cut_archive(place: Path) -> Path:
    (place / "all.tar.gz").write_bytes(gzip.compress(b"x" * 4000)[:20])
    return place / "all.tar.gz"


def archive(place: Path) -> Path:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for rank in range(3):
            tar.add(GLOO / f"fr_{rank}", f"dumps/fr_{rank}")
    (place / "all.tar.gz").write_bytes(out.getvalue())
    return place / "all.tar.gz"


def empty_file(place: Path) -> Path:
    (place / "fr_0").write_bytes(b"")
    return place


def hostile_file(place: Path) -> Path:
    (place / "fr_0").write_bytes(b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00trueR.")
    return place


def cut_before_anything(place: Path) -> Path:
    (place / "fr_0").write_bytes((GLOO / "fr_0").read_bytes()[:9])
    return place


def cut_late(place: Path) -> Path:
    dumps(place)
    (place / "fr_0").write_bytes((GLOO / "fr_0").read_bytes()[:-3])
    return place


CASES: dict[Callable[[Path], Path], tuple[int, str]] = {
    no_hang: (0, "NO HANG|no hang"),
    hang: (1, "rank 1 never entered all_reduce #6"),
    archive: (1, "rank 1 never entered all_reduce #6"),
    cut_late: (1, "the file is cut or damaged at byte 1381"),
    empty_file: (2, "the file is empty"),
    hostile_file: (2, "the pickle asks to find or run code"),
    cut_before_anything: (2, "before anything that could be saved"),
    missing: (64, "there is no such file or directory"),
    empty_directory: (64, "nothing is there, so no dump either"),
    other_things: (64, "no dump is there, but 2 files (its name says no rank)"),
    foreign_file: (64, "it is no dump"),
    fifo: (64, "it is a FIFO, not a file"),
    device: (64, "it is a device, not a file"),
    link_loop: (64, "it cannot be looked at: Too many levels of symbolic links"),
    fifo_among_others: (64, "no dump is there, but 1 file (a FIFO, not a file)"),
    no_archive: (64, "it is no zip that can be read"),
    cut_archive: (64, "no dump could be read: it is cut"),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_every_find_has_its_message_and_its_exit_code(
    case: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = CASES[case]
    assert run_command(["diagnose", str(case(tmp_path))]) == code
    out, told = capsys.readouterr()
    text = " ".join((told if code >= 64 else out).split())
    assert any(part in text for part in said.split("|")), text
    assert "Traceback" not in text
    if code >= 64:
        assert (out, told.count("hangdrill: "), told.count("next: ")) == ("", 1, 1)


def test_the_page_names_every_code_and_case() -> None:
    page = PAGE.read_text()
    section = page[page.index("## What `diagnose` says") :]
    for code in {code for code, _ in CASES.values()}:
        assert f"| {code} |" in section


def test_json_is_one_object_also_with_a_prefix_and_a_world_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps(tmp_path)
    assert run_command(["diagnose", str(tmp_path), "--prefix", "fr_", "--world-size", "4", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ranks"]["expected"], found["ranks"]["missing"]) == (4, [3])


def test_a_package_that_is_missing_is_75(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    known = import_module("fsspec.registry").known_implementations
    monkeypatch.setitem(known, "nobody", {"class": "nobody_has_this.Files", "err": "install nobody_has_this"})
    assert run_command(["diagnose", "nobody://bucket/dumps"]) == 75
    assert "the package for this file system is missing: install nobody_has_this" in capsys.readouterr().err


def test_an_unknown_url_is_64(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["diagnose", "nonsense://x"]) == 64
    assert "Protocol not known: nonsense" in capsys.readouterr().err


@pytest.fixture
def memory_directory() -> Iterator[Path]:
    """A directory in memory where there is one: a hundred thousand files take a disk half a minute."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as place:
        yield Path(place)


def test_a_hundred_thousand_other_files_are_one_line(
    memory_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = dumps(memory_directory)
    for number in range(100_000):
        os.close(os.open(f"{place}/shard.{number}.bin", os.O_CREAT))
    assert run_command(["diagnose", str(place)]) == 1
    out = capsys.readouterr().out
    assert "100000 files (its name says no rank)" in " ".join(out.split())
    assert len(out) < 6000
