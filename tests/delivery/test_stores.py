"""Every store keeps the same promises: once, whole, read back; a killed put leaves nothing under the final name."""

import hashlib
import threading
import uuid

import pytest
from s3_labs import BUCKET

from hangdrill.delivery.opening import open_store
from hangdrill.delivery.stores import AlreadyThere, LocalStore, MovingStore, ObjectStore
from hangdrill.model.delivery import WriteOnce

NAME = "train/run/host/rank_0.a0.dump.pickle"
DATA = b"evidence" * 1000


@pytest.fixture(params=["directory", "file", "memory", "moving", "moto", "seaweed"])
def store(request, tmp_path, s3_servers, monkeypatch):
    """One of each kind, empty."""
    match request.param:
        case "directory":
            return open_store(str(tmp_path / "there"))
        case "file":
            return open_store((tmp_path / "there").as_uri())
        case "memory":
            return open_store(f"memory://{uuid.uuid4().hex}")
        case "moving":
            from fsspec.implementations.local import LocalFileSystem

            root = str(tmp_path / "there")
            return MovingStore(LocalFileSystem(), root, f"sftp://host{root}", write_once=WriteOnce.CHECKED)
    for name, value in s3_servers(request.param).settings().items():
        monkeypatch.setenv(name, value)
    return open_store(f"s3://{BUCKET}/{uuid.uuid4().hex}")


def test_what_is_put_is_read_back_with_its_size_and_sha256(store):
    assert store.digest(NAME) is None
    store.put_new(NAME, DATA)
    assert store.digest(NAME) == (len(DATA), hashlib.sha256(DATA).hexdigest())
    assert store.url_of(NAME).endswith(NAME)


def test_a_second_put_is_refused_and_changes_nothing(store):
    store.put_new(NAME, DATA)
    with pytest.raises(AlreadyThere):
        store.put_new(NAME, b"other")
    assert store.digest(NAME) == (len(DATA), hashlib.sha256(DATA).hexdigest())


def test_names_of_one_level_are_listed(store):
    store.put_new(NAME, DATA)
    store.put_new("train/run2/host/manifest.json", DATA)
    assert store.names("train") == ["run", "run2"]
    assert store.names("nothing") == []


def test_an_empty_object_is_an_object(store):
    store.put_new(NAME, b"")
    assert store.digest(NAME) == (0, hashlib.sha256(b"").hexdigest())


def test_the_target_is_looked_at_without_writing(store):
    store.look()
    assert store.names("") == []


@pytest.mark.parametrize("server", ["moto", "seaweed"])
def test_s3_itself_refuses_a_second_write(server, s3_servers, monkeypatch):
    for name, value in s3_servers(server).settings().items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://{BUCKET}/{uuid.uuid4().hex}")
    store.put_new(NAME, DATA)
    assert store.write_once is WriteOnce.CONDITIONAL
    store.files.exists = lambda _path: False  # as if both writers had looked at the same moment
    with pytest.raises(AlreadyThere):
        store.put_new(NAME, b"other")
    assert store.digest(NAME) == (len(DATA), hashlib.sha256(DATA).hexdigest())


def test_a_server_that_ignores_the_condition_is_found_out(s3_servers, monkeypatch):
    for name, value in s3_servers("moto").settings().items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://{BUCKET}/{uuid.uuid4().hex}")
    ask = store.files.call_s3

    def without_condition(method, **keys):
        keys.pop("IfNoneMatch", None)
        return ask(method, **keys)

    store.files.call_s3 = without_condition
    store.put_new(NAME, DATA)
    assert store.write_once is WriteOnce.CHECKED


def test_of_many_writers_of_one_file_one_wins(tmp_path):
    store = open_store(str(tmp_path / "there"))
    won = []

    def write(number):
        data = bytes([number]) * 100_000
        try:
            store.put_new(NAME, data)
        except AlreadyThere:
            return
        won.append(hashlib.sha256(data).hexdigest())

    threads = [threading.Thread(target=write, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.digest(NAME)] == [(100_000, sha256) for sha256 in won]


def test_a_put_that_was_cut_leaves_nothing_under_the_name_and_is_swept(tmp_path):
    store = open_store(str(tmp_path / "there"))
    path = store.root / NAME
    path.parent.mkdir(parents=True)
    (path.parent / f".{path.name}.0011.hangdrill-tmp").write_bytes(b"half")
    (path.parent / ".other.0011.hangdrill-tmp").write_bytes(b"of another")
    assert store.digest(NAME) is None
    store.sweep(NAME)
    assert [one.name for one in path.parent.iterdir()] == [".other.0011.hangdrill-tmp"]


def test_files_are_private(tmp_path):
    store = open_store(str(tmp_path / "there"))
    store.put_new(NAME, DATA)
    assert (store.root / NAME).stat().st_mode & 0o777 == 0o600
    assert store.root.stat().st_mode & 0o077 == 0


def test_a_file_system_without_links_is_checked_instead(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("os.link", refuse)
    store = open_store(str(tmp_path / "there"))
    store.put_new(NAME, DATA)
    assert store.write_once is WriteOnce.CHECKED
    with pytest.raises(AlreadyThere):
        store.put_new(NAME, b"other")


def test_an_old_package_without_exclusive_create_is_checked_instead(tmp_path):
    class Old:
        def __init__(self):
            self.data = {}

        def exists(self, path):
            return path in self.data

        def pipe_file(self, path, data, **more):
            if more:
                raise TypeError("unexpected keyword argument 'mode'")
            self.data[path] = data

    store = ObjectStore(Old(), "bucket", "abfs://bucket", write_once=WriteOnce.CHECKED)
    store.put_new(NAME, DATA)
    with pytest.raises(AlreadyThere):
        store.put_new(NAME, b"other")


def test_a_put_leaves_nothing_beside_the_file(tmp_path):
    store = LocalStore(tmp_path, str(tmp_path))
    store.put_new("a/b.txt", b"1")
    with pytest.raises(AlreadyThere):
        store.put_new("a/b.txt", b"2")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.txt"]
