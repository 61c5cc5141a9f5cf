"""Hosts on this machine: each has a network, a host name, a /etc/hosts, pids and a directory for its own files.

A switch in a network of its own joins them, so nothing of this machine's network is touched. Whoever ends a host's
first process ends all that runs in it, as a loss of power would. Everything is made under names of the test's own.
"""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from hangdrill.drill.waiting import Waiter

__all__ = ["CHECKOUT", "Host", "Program", "TwoHosts", "two_hosts", "why_no_hosts"]

CHECKOUT = Path(__file__).resolve().parents[2]
NEEDED = ("ip", "unshare", "nsenter", "mount", "setpriv")
MARK = "HANGDRILL_RUN_ID="
START_S = 30.0
_numbers = itertools.count()


def why_no_hosts(*more: str) -> str:
    """Why hosts cannot be made here; "" when they can. more: further programs that a test needs."""
    if os.getuid() != 0:
        return "namespaces for hosts are made as root"
    missing = [program for program in (*NEEDED, *more) if shutil.which(program) is None]
    return f"{missing[0]} is not installed (iproute2, util-linux, iptables)" if missing else ""


class Program:
    """A program on a host."""

    def __init__(self, process: "subprocess.Popen[bytes]", output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def pid(self) -> int:
        """Its own pid, as this machine numbers it: what was started is nsenter, which waits for it."""

        def probe() -> int | None:
            children = psutil.Process(self.process.pid).children()
            return children[0].pid if children else None

        found = Waiter().until(probe, deadline_s=START_S)
        assert found is not None, self.output
        return found

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, deadline_s: float) -> int:
        return self.process.wait(deadline_s)


class Host:
    """One host. `pid` is its first process, which all others in it end with."""

    def __init__(self, name: str, address: str, namespace: str, lab: Path) -> None:
        self.name = name
        self.address = address
        self.namespace = namespace
        self.own = Path("/var/tmp")
        self._lab = lab
        self._first: subprocess.Popen[bytes] | None = None
        self.pid = 0
        self.programs: list[Program] = []

    def boot(self) -> None:
        own = self._lab / f"own-{self.name}"
        own.mkdir()
        script = (
            f"hostname {self.name} && mount --bind {self._lab / 'hosts'} /etc/hosts && "
            f"mount --bind {own} {self.own} && touch {own}/up && exec sleep infinity"
        )
        unshare = ("unshare", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
        self._first = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.namespace, *unshare, "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        up = Waiter().until(lambda: (own / "up").exists() or None, deadline_s=START_S)
        assert up, "the host did not come up"
        self.pid = psutil.Process(self._first.pid).children()[0].pid

    def start(self, words: Sequence[str], environ: Mapping[str, str] | None = None) -> Program:
        """Start a program there."""
        output = self._lab / f"output-{self.name}-{len(self.programs)}"
        variables = {
            **os.environ,
            "PYTHONPATH": str(CHECKOUT),
            "COLUMNS": "200",
            "TMPDIR": str(self.own),
            "HANGDRILL_RUNTIME_DIR": str(self.own / "runtime"),
            **(environ or {}),
        }
        variables.pop("GLOO_SOCKET_IFNAME", None)
        with output.open("wb") as log:
            process = subprocess.Popen(
                ["nsenter", "--target", str(self.pid), "--mount", "--uts", "--net", "--pid", *words],
                env=variables,
                cwd=self._lab,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.programs.append(Program(process, output))
        return self.programs[-1]

    def hangdrill(self, *words: str, environ: Mapping[str, str] | None = None) -> Program:
        """hangdrill as a user of this host starts it."""
        return self.start([sys.executable, "-m", "hangdrill", *words], environ)

    def run(self, *words: str) -> str:
        """A short command there, to its end; what it printed."""
        program = self.start(words)
        program.wait(START_S)
        return program.output

    def processes(self) -> list[str]:
        """Everything of any drill on this host, zombies left out."""
        return sorted(f"{found.pid} {' '.join(found.cmdline()[:6])}" for found in self._marked())

    def guards(self) -> list[int]:
        """The guards carry no mark."""
        return [found.pid for found in self._all() if "hangdrill.node.guard" in _command(found)]

    def inner_pids(self, pids: Sequence[int]) -> list[str]:
        """The same processes, as this host numbers them."""
        lines = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
        return [line.split("NSpid:")[1].splitlines()[0].split()[-1] for line in lines]

    def local_directories(self) -> list[str]:
        return sorted(path.name for path in (self._lab / f"own-{self.name}").glob("hangdrill-*"))

    def power_off(self) -> None:
        """Every process of the host is gone at once."""
        if self._first is not None:
            self._first.kill()
            self._first.wait()
            self._first = None

    def _marked(self) -> list[psutil.Process]:
        found = []
        for process in self._all():
            with contextlib.suppress(psutil.Error, OSError):
                environ = Path(f"/proc/{process.pid}/environ").read_text(errors="replace")
                if f"\0{MARK}" in f"\0{environ}" and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def _all(self) -> list[psutil.Process]:
        if self._first is None:
            return []
        mine = Path(f"/proc/{self.pid}/ns/pid").readlink()
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{process.pid}/ns/pid").readlink() == mine:
                    found.append(process)
        return found


class TwoHosts:
    """a and b, and a directory that both see."""

    def __init__(self, lab: Path, a: Host, b: Host) -> None:
        self.shared = lab / "shared"
        self.a = a
        self.b = b


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


@contextlib.contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    """Make both, joined by eth0, and remove everything, whatever happened."""
    number = next(_numbers)
    stem = f"hd{os.getpid()}x{number}"
    lab = Path(f"/tmp/{stem}")
    lab.mkdir(mode=0o700)
    (lab / "shared").mkdir()
    hosts = [Host(f"host-{at}", f"10.77.0.{index}", f"{stem}{at}", lab) for index, at in enumerate("ab", start=1)]
    lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in hosts)]
    (lab / "hosts").write_text("\n".join(lines) + "\n")
    try:
        _join(f"{stem}s", hosts)
        for host in hosts:
            host.boot()
        yield TwoHosts(lab, *hosts)
    finally:
        for host in hosts:
            host.power_off()
            for program in host.programs:
                program.process.kill()
                program.process.wait()
        for namespace in (f"{stem}s", *(host.namespace for host in hosts)):
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)
        shutil.rmtree(lab, ignore_errors=True)


def _join(switch: str, hosts: Sequence[Host]) -> None:
    _ip("netns", "add", switch)
    _ip("-n", switch, "link", "add", "switch", "type", "bridge")
    _ip("-n", switch, "link", "set", "switch", "up")
    for index, host in enumerate(hosts):
        _ip("netns", "add", host.namespace)
        port = f"port{index}"
        _ip("link", "add", "eth0", "netns", host.namespace, "type", "veth", "peer", "name", port, "netns", switch)
        _ip("-n", switch, "link", "set", port, "master", "switch", "up")
        _ip("-n", host.namespace, "link", "set", "lo", "up")
        _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
        _ip("-n", host.namespace, "link", "set", "eth0", "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
