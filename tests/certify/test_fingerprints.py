"""The fingerprint is read by real Pythons, of environments that the tests make by hand: broken ones most of all."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_pythons import answering, fake_python

from hangdrill.certify.fingerprints import ask, read_stack
from hangdrill.certify.stacks import Stack
from hangdrill.model.fingerprint import Fingerprint, changes

VERSION = "__version__ = '2.15.0+cpu'\ngit_version = 'd0f2'\ncuda = None\nhip = None\n"


class Environment:
    """A directory of packages, and a Python that sees it and nothing else."""

    def __init__(self, root: Path) -> None:
        self.packages = root / "packages"
        self.packages.mkdir(parents=True)
        self.python = root / "python"
        self.python.write_text(f'#!/bin/sh\nPYTHONPATH="{self.packages}" exec "{sys.executable}" -S "$@"\n')
        self.python.chmod(0o755)

    def install(self, name: str, version: str, files: dict[str, bytes], *, requires: str = "", note: str = "") -> None:
        """As an installer would: the files, and a dist-info that names each with its size."""
        info = self.packages / f"{name}-{version}.dist-info"
        info.mkdir()
        rows = []
        for path, content in files.items():
            (self.packages / path).parent.mkdir(parents=True, exist_ok=True)
            (self.packages / path).write_bytes(content)
            rows.append(f"{path},sha256={hash_of(content)},{len(content)}")
        needed = f"Requires-Dist: {requires}\n" if requires else ""
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}")
        (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: cp312-cp312-manylinux_2_28_x86_64\n")
        (info / "RECORD").write_text("\n".join(rows) + "\n")
        if note:
            (info / "direct_url.json").write_text(note)

    def torch(self, text: str = "", *, version: str = VERSION) -> None:
        """A torch of a few lines."""
        whole = f"from torch import version\nfrom torch.version import __version__\n{text}"
        inner = b"class _C:\n    _GLIBCXX_USE_CXX11_ABI = True\n"
        files = {
            "torch/__init__.py": whole.encode() + inner,
            "torch/version.py": version.encode(),
            "torch/distributed/c10d.py": b"x = 1\n",
        }
        self.install("torch", "2.15.0+cpu", files)

    def read(self, *, deadline_s: float = 60.0, **env: str) -> Stack:
        return read_stack("candidate", str(self.python), env=env, environ=os.environ, deadline_s=deadline_s)

    def fingerprint(self) -> Fingerprint:
        found = self.read().fingerprint
        assert found is not None
        return found


def hash_of(content: bytes) -> str:
    import base64
    import hashlib

    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@pytest.fixture
def made(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "env")


def test_no_such_python_is_said_with_the_next_step() -> None:
    found = read_stack("baseline", "/nowhere/bin/python", env={}, environ=os.environ)
    assert (found.works, found.missing) == (False, "there is no Python at /nowhere/bin/python")
    assert "baseline" in found.next_step


def test_a_program_that_is_no_python_is_said(tmp_path: Path) -> None:
    for code in (0, 3):
        found = read_stack("x", answering(tmp_path / f"p{code}", "hello", code=code), env={}, environ=os.environ)
        assert found.missing
        assert found.fingerprint is None


def test_a_python_without_torch_has_a_fingerprint_and_does_not_work(made: Environment) -> None:
    made.install("numpy", "2.3.1", {"numpy/__init__.py": b""})
    found = made.read()
    assert found.missing.endswith("has no torch")
    assert "pip install torch" in found.next_step
    assert found.fingerprint is not None
    assert [one.name for one in found.fingerprint.packages] == ["numpy"]


def test_a_torch_that_imports_works(made: Environment) -> None:
    made.torch()
    found = made.read(NCCL_DEBUG="INFO", UNRELATED="x")
    assert found.missing == ""
    assert found.fingerprint is not None
    assert (found.fingerprint.torch, found.fingerprint.torch_git, found.fingerprint.build) == (
        "2.15.0+cpu",
        "d0f2",
        "cpu",
    )
    assert found.fingerprint.wheel == "torch-2.15.0+cpu-cp312-cp312-manylinux_2_28_x86_64"
    assert found.fingerprint.environment["NCCL_DEBUG"] == "INFO"
    assert "UNRELATED" not in found.fingerprint.environment


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise ImportError('libnccl.so.2: cannot open shared object file')\n", "libnccl.so.2"),
        ("import os\nos.abort()\n", "SIGABRT"),
        ("import sys\nsys.exit(3)\n", "SystemExit"),
    ],
)
def test_a_torch_that_does_not_import_keeps_what_metadata_says(made: Environment, text: str, why: str) -> None:
    made.torch(text)
    found = made.read()
    assert found.missing.startswith("torch 2.15.0+cpu of ")
    assert why in found.missing
    assert found.fingerprint is not None
    assert (found.fingerprint.torch_git, len(found.fingerprint.packages)) == ("d0f2", 1)


def test_a_torch_that_never_ends_its_import_is_given_up(made: Environment) -> None:
    made.torch("import threading\nthreading.Event().wait()\n")
    found = made.read(deadline_s=3.0)
    assert "gave no answer within 3 s" in found.missing
    assert found.fingerprint is not None


def test_an_old_torch_is_refused(tmp_path: Path) -> None:
    found = read_stack("x", fake_python(tmp_path / "p", torch="2.10.0+cu128"), env={}, environ=os.environ)
    assert "older than 2.11" in found.missing


def test_one_changed_package_changes_the_digest_and_is_named(made: Environment, tmp_path: Path) -> None:
    other = Environment(tmp_path / "other")
    for one, version, content in ((made, "2.3.1", b"a"), (other, "2.3.2", b"a")):
        one.torch()
        one.install("numpy", version, {"numpy/__init__.py": content})
    before, after = made.fingerprint(), other.fingerprint()
    assert before.digest != after.digest
    assert "package:numpy" in [change.what for change in changes(before, after)]


def test_the_same_version_with_other_files_is_another_package(made: Environment, tmp_path: Path) -> None:
    other = Environment(tmp_path / "other")
    for one, content in ((made, b"a"), (other, b"b")):
        one.torch()
        one.install("numpy", "2.3.1", {"numpy/__init__.py": content})
    assert "package:numpy" in [change.what for change in changes(made.fingerprint(), other.fingerprint())]


def test_two_readings_of_one_stack_are_equal(made: Environment) -> None:
    made.torch()
    assert made.fingerprint().digest == made.fingerprint().digest


def test_a_file_of_torch_that_was_patched_in_place_is_named(made: Environment) -> None:
    made.torch()
    assert made.fingerprint().changed_files == ()
    (made.packages / "torch/distributed/c10d.py").write_text("x = 2\n")  # of the same size: found by its hash
    assert made.fingerprint().changed_files == ("torch/distributed/c10d.py",)


CHANGES = {
    "another version": ("numpy-2.3.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: numpy\nVersion: 2.3.2\n"),
    "a package added": ("scipy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: scipy\nVersion: 1.0\n"),
    "a package removed": ("numpy-2.3.1.dist-info", None),
    "a file of another size": ("numpy/core.py", "x = 10\n"),
    "a file removed": ("numpy/core.py", None),
    "a file of torch, of the same size": ("torch/distributed/c10d.py", "x = 2\n"),
    "a file of NCCL, of the same size": ("nvidia/nccl.conf", "NCCL_ALGO=Tree\n"),
    "a file of an extension, of the same size": ("good/__init__.py", "y = 2\n"),
}


@pytest.fixture
def whole(made: Environment, tmp_path: Path) -> Environment:
    """Every kind of package, each as it was installed."""
    (tmp_path / "lib").mkdir()
    built(tmp_path / "lib", "libc10.so", "void f(void) {}", "-Wl,-soname,libc10.so")
    linked = built(tmp_path, "good.so", "void g(void) {}", f"-L{tmp_path}/lib", "-Wl,--no-as-needed", "-lc10")
    made.torch()
    made.install("numpy", "2.3.1", {"numpy/core.py": b"x = 1\n"})
    made.install("nvidia-nccl-cu13", "2.30.7", {"nvidia/nccl.conf": b"NCCL_ALGO=Ring\n"})
    made.install("good-ext", "1.0", {"good/_c.so": linked.read_bytes(), "good/__init__.py": b"y = 1\n"})
    return made


@pytest.mark.parametrize("change", CHANGES)
def test_one_change_of_one_package_makes_it_another_stack(whole: Environment, change: str) -> None:
    before = whole.fingerprint()
    path, text = CHANGES[change]
    at = whole.packages / path
    if text is not None:
        at.parent.mkdir(exist_ok=True)
        at.write_text(text)
    elif at.is_dir():
        shutil.rmtree(at)
        shutil.rmtree(whole.packages / "numpy")
    else:
        at.unlink()
    after = whole.fingerprint()
    found = changes(before, after)
    assert before.digest != after.digest
    assert len(found) == 1, found
    named = "torch.changed-files" if "torch" in change else "package:"
    assert found[0].what.startswith(named)
    assert path in found[0].after or "-info" in path


def test_a_file_that_was_edited_twice_is_not_the_file_that_was_certified(whole: Environment) -> None:
    texts = ("x = 10\n", "x = 11\n")
    digests = []
    for text in texts:
        (whole.packages / "numpy/core.py").write_text(text)
        digests.append(whole.fingerprint().digest)
    assert digests[0] != digests[1]


def test_packages_without_a_record_and_caches_are_no_changed_files(whole: Environment) -> None:
    whole.install(
        "here", "1.0", {"here.pth": b"/src/here\n"}, note='{"url": "file:///src", "dir_info": {"editable": 1}}'
    )
    (whole.packages / "bare-1.0.dist-info").mkdir()
    (whole.packages / "bare-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: bare\nVersion: 1.0\n")
    record = whole.packages / "numpy-2.3.1.dist-info" / "RECORD"
    rows = ["numpy/x.pyc,sha256=AA,3", "../../bin/f2py,sha256=AA,3", "numpy-2.3.1.dist-info/INSTALLER,sha256=AA,3"]
    record.write_text(record.read_text() + "\n".join([*rows, "numpy/unhashed.txt,,"]) + "\n")
    found = whole.fingerprint()
    assert {one.name: one.changed_files for one in found.packages if one.changed_files} == {}
    assert found.changed_files == ()


CHECK = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcE"


def built(directory: Path, name: str, text: str, *words: str) -> Path:
    """A shared library of a few lines of C."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (directory / f"{name}.c").write_text(text)
    out = directory / name
    subprocess.run([compiler, "-shared", "-fPIC", "-o", out, directory / f"{name}.c", *words], check=True)
    return out


def test_an_extension_for_another_torch_is_found_and_tried(made: Environment, tmp_path: Path) -> None:
    words = (f"-L{tmp_path}", "-Wl,--no-as-needed", "-lc10")
    torch = built(
        tmp_path, "libc10.so", f"void {CHECK}(void) {{}} void aoti_torch_x(void) {{}}", "-Wl,-soname,libc10.so"
    )
    good = built(tmp_path, "good.so", f"void {CHECK}(void); void f(void) {{ {CHECK}(); }}", *words)
    lost = built(tmp_path, "lost.so", "void _ZN3c104lostESs(void); void f(void) { _ZN3c104lostESs(); }", *words)
    stable = built(tmp_path, "stable.so", "void aoti_torch_x(void); void f(void) { aoti_torch_x(); }", *words)
    alone = built(tmp_path, "alone.so", "void f(void) {}")
    made.torch(f"import ctypes\nctypes.CDLL({str(torch)!r}, mode=ctypes.RTLD_GLOBAL)\n")
    made.install("good-ext", "1.0", {"good/_c.so": good.read_bytes()}, requires="torch==2.15.0")
    made.install("lost-ext", "1.0+cu130torch2.14", {"lost/_c.so": lost.read_bytes()})
    made.install("stable-ext", "1.0+pt214", {"stable/_c.so": stable.read_bytes()})
    made.install("unrelated", "1.0", {"alone/_c.so": alone.read_bytes(), "alone/cut.so": good.read_bytes()[:70]})
    found = [
        (one.name, one.built_with, one.loads, one.cxx11_abi, one.stable_abi) for one in made.fingerprint().extensions
    ]
    assert found == [
        ("good-ext", "2.15.0", True, True, False),
        ("lost-ext", "2.14", False, False, False),
        ("stable-ext", "2.14", True, None, True),
    ]
    assert "_ZN3c104lostESs" in made.fingerprint().extensions[1].error


def test_an_editable_and_a_git_package_say_where_they_come_from(made: Environment) -> None:
    made.torch()
    made.install("here", "1.0", {}, note='{"url": "file:///src/here", "dir_info": {"editable": true}}')
    git = '{"url": "https://me:secret@git/x", "vcs_info": {"vcs": "git", "commit_id": "abc"}}'
    made.install("there", "1.0", {}, note=git)
    found = {one.name: one.source for one in made.fingerprint().packages}
    assert found["here"] == "editable:file:///src/here"
    assert found["there"] == "git+https://git/x@abc"


def test_an_nccl_that_is_linked_into_torch_is_told_by_torch(made: Environment) -> None:
    text = "import types\ncuda = types.SimpleNamespace(nccl=types.SimpleNamespace(version=lambda: (2, 27, 3)))\n"
    made.torch(text, version=VERSION.replace("cuda = None", "cuda = '13.2'"))
    found = made.fingerprint()
    assert (found.nccl, found.nccl_file, found.build, found.cuda) == ("2.27.3", "", "cuda", "13.2")


def test_a_secret_is_told_by_its_hash_alone(made: Environment) -> None:
    made.torch()
    found = made.read(TORCHX_TOKEN="swordfish", TORCH_FR_BUFFER_SIZE="2000").fingerprint
    assert found is not None
    assert "swordfish" not in str(found)
    assert found.environment["TORCHX_TOKEN"].startswith("sha256:")
    assert found.environment["TORCH_FR_BUFFER_SIZE"] == "2000"


def test_a_virtual_environment_is_not_resolved_to_its_base(tmp_path: Path) -> None:
    link = tmp_path / "bin" / "python"
    link.parent.mkdir()
    target = fake_python(tmp_path / "base")
    link.symlink_to(target)
    assert read_stack("x", str(link), env={}, environ=os.environ).python == str(link)


@pytest.mark.torchrun
def test_the_torch_of_these_tests_has_a_whole_fingerprint() -> None:
    found = read_stack("candidate", sys.executable, env={}, environ=os.environ).fingerprint
    assert found is not None
    assert found.torch
    assert found.torch_git
    assert found.wheel.startswith("torch-")
    assert found.changed_files == ()
    assert (found.nccl is not None) == (found.build == "cuda")


def test_packages_of_a_conda_environment_are_part_of_the_stack(tmp_path: Path) -> None:
    import venv

    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    (tmp_path / "env" / "conda-meta").mkdir()
    (tmp_path / "env" / "conda-meta" / "nccl-2.30.7-h0_1.json").write_text("{}")
    found = read_stack("x", str(tmp_path / "env/bin/python"), env={}, environ=os.environ).fingerprint
    assert found is not None
    assert ("conda/nccl", "2.30.7 h0_1") in [(one.name, one.version) for one in found.packages]


def test_a_variable_that_is_no_utf8_is_told_and_costs_nothing_else(tmp_path: Path) -> None:
    environ = {**os.environ, "NCCL_DEBUG_FILE": os.fsdecode(b"/tmp/\xff")}
    answer = ask(sys.executable, environ)
    assert answer.facts.get("python"), answer.error
    assert answer.facts["environment"]["NCCL_DEBUG_FILE"] == "/tmp/\\udcff"
