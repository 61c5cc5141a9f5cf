"""A real Slurm of the tests' own: a login host with munged and slurmctld, and two nodes with a slurmd each.

Each host has namespaces of its own for network, host name, mounts and pids, made for one test session: nothing of this
host's network is touched, parallel sessions cannot clash, and killing a host's first process ends all that ran there.
What the hosts share is the lab's directory and the rest of this host's disk; /tmp and /var/tmp are each host's own, as
on a cluster.
"""

import contextlib
import functools
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from slurm_settings import KILL_WAIT_S, write_settings

from hangdrill.drill.waiting import Waiter

__all__ = ["KILL_WAIT_S", "NODES", "SlurmLab", "slurm_lab", "why_no_private_tmp", "why_no_slurm"]

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
PARENTS = ("/srv", "/mnt", "/opt")
"""Where the lab's directory may lie: not below a directory that is each host's own."""
LOGIN, NODES = "login", ("n0", "n1")
ADDRESSES = {LOGIN: "10.77.0.1", "n0": "10.77.0.10", "n1": "10.77.0.11"}
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "unshare", "nsenter", "ip")
COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
START_S = 60.0
ANSWER_S = 15.0
"""Of one command that sets the lab up or asks it. Beyond it the attempt is given up."""
ATTEMPTS = 3
"""A lab that did not come up is ended and made anew: seen once in thousands, on a machine that was never seen again."""
SBIN = "/usr/sbin:/sbin"


def why_no_slurm() -> str:
    """Why there can be no such lab here; "" when it can be tried."""
    if os.getuid() != 0:
        return "the tests start Slurm as root"
    path = f"{os.environ.get('PATH', '')}:{SBIN}"
    missing = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    return f"{missing[0]} is not installed" if missing else ""


def why_no_private_tmp() -> str:
    """Why job_container/tmpfs cannot be used here."""
    hidden = [path for path in _needed() if path.startswith("/tmp/")]
    return f"{hidden[0]} is in /tmp, and would be hidden from the jobs" if hidden else ""


def _needed() -> list[str]:
    """What every host must see."""
    return sorted({str(CHECKOUT), sys.prefix, sys.base_prefix})


class Host:
    """One simulated host."""

    def __init__(self, name: str, lab: Path, *daemons: str) -> None:
        kept = [path for path in _needed() if path.startswith(("/tmp/", "/var/tmp/"))]
        command = [
            *_on_the_oldest_cpu(),
            "unshare",
            "--net",
            "--uts",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]
        command += [sys.executable, str(HERE / "slurm_host.py"), name, str(lab), *kept, "--", *daemons]
        environ = {"PATH": f"{os.environ.get('PATH', '')}:{SBIN}", "SLURM_CONF": f"{lab}/slurm.conf"}
        self.name = name
        with (lab / "log" / f"{name}.unshare").open("w") as log:
            self._process = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
            )
        if not (select.select([self._process.stdout], [], [], START_S)[0] and self._process.stdout.readline()):
            self._process.kill()  # and with it, by --kill-child, all below
            self._process.communicate()
            raise RuntimeError(f"{name} did not start: {(lab / 'log' / f'{name}.unshare').read_text()}")
        self.init = int(Path(f"/proc/{self.outer}/task/{self.outer}/children").read_text().split()[0])

    @property
    def outer(self) -> int:
        """The pid, here, of a process in this host's network."""
        return self._process.pid

    def connect(self, network_of: "Host") -> None:
        """An own network card, on the bridge of another host or as that bridge."""
        self_there = ["nsenter", f"--target={self.outer}", "--net", "ip"]
        there = ["nsenter", f"--target={network_of.outer}", "--net", "ip"]
        if self is network_of:
            _run([*there, "link", "add", "eth0", "type", "bridge"])
        else:
            port = f"to-{self.name}"
            _run([*there, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(self.outer)])
            _run([*there, "link", "set", port, "master", "eth0", "up"])
        _run([*self_there, "addr", "add", f"{ADDRESSES[self.name]}/24", "dev", "eth0"])
        _run([*self_there, "link", "set", "eth0", "up"])

    def go(self) -> None:
        """Start the daemons."""
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def words(self, command: list[str], *, cwd: str) -> list[str]:
        """A command that runs on this host."""
        entered = ["nsenter", f"--target={self.init}", "--net", "--uts", "--mount", "--pid"]
        return [*entered, "env", "-C", cwd, *command]

    def end(self) -> None:
        """SIGKILL to its first process, and with it to all others."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        try:
            self._process.wait(timeout=START_S)
        finally:
            self._process.stdin.close()
            self._process.stdout.close()


class SlurmLab:
    """What a test sees of it."""

    def __init__(self, directory: Path, hosts: dict[str, Host], *, private_tmp: bool) -> None:
        self.directory = directory
        self.private_tmp = private_tmp
        self._hosts = hosts

    @property
    def environ(self) -> dict[str, str]:
        """The variables that a user of this cluster has, on its login host."""
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
        mine = {"SLURM_CONF": f"{self.directory}/slurm.conf", "PYTHONPATH": str(CHECKOUT), "COLUMNS": "200"}
        return os.environ | mine | {"PATH": path, "HANGDRILL_RUNTIME_DIR": f"{self.directory}/runtime"}

    @property
    def environ_here(self) -> dict[str, str]:
        """The same for a process of this host: Slurm's commands are then those of the login host."""
        return self.environ | {"PATH": f"{self.directory}/bin:{self.environ['PATH']}"}

    def start(self, *command: str, on: str = LOGIN, cwd: str = "", **more) -> "subprocess.Popen[str]":
        """A command on one of the hosts, its output piped."""
        words = self._hosts[on].words([str(word) for word in command], cwd=cwd or str(self.directory))
        environ = self.environ | more.pop("env", {})
        return subprocess.Popen(
            words,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **more,
        )

    def run(self, *command: str, on: str = LOGIN, deadline_s: float = 120, **more) -> str:
        """The output of a command that must succeed."""
        with self.start(*command, on=on, **more) as started:
            output, _ = started.communicate(timeout=deadline_s)
        assert started.returncode == 0, f"{command}: {started.returncode}\n{output}"
        return output

    def jobs(self) -> list[str]:
        """Those that wait, run or are being ended."""
        return self.run("squeue", "--noheader", "--format=%i %j %T %R").splitlines()

    def pid_of(self, started: "subprocess.Popen[str]") -> int:
        """The pid, on this host, of the command that `start` began: nsenter is only its parent."""
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
        found = Waiter().until(lambda: children.read_text().split() or None, deadline_s=10)
        assert found
        return int(found[0])

    def processes(self, on: str) -> dict[int, str]:
        """pid here -> command line, of everything on one host but its init and daemons."""
        own = Path(f"/proc/{self._hosts[on].init}/ns/pid").readlink()
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "ns/pid").readlink() == own:
                    found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ").strip()
        daemons = ("slurm_host.py", "munged", "slurmctld", "slurmscriptd", "slurmd ")
        return {pid: words for pid, words in found.items() if words and not any(name in words for name in daemons)}

    def files(self, on: str) -> set[str]:
        """What lies in the directories that are this host's own."""
        root = Path(f"/proc/{self._hosts[on].init}/root")
        found = (path for place in ("tmp", "var/tmp") for path in (root / place).rglob("*"))
        return {
            str(path.relative_to(root))
            for path in found
            if not str(path).startswith((f"{root}/var/tmp/slurmd", f"{root}/var/tmp/munge"))
        }

    def slurmd_of(self, node: str) -> int:
        """The pid, here, of a node's slurmd."""
        init = self._hosts[node].init
        for pid in Path(f"/proc/{init}/task/{init}/children").read_text().split():
            if "slurmd" in Path(f"/proc/{pid}/cmdline").read_text():
                return int(pid)
        raise LookupError(f"no slurmd on {node}")

    def start_slurmd(self, node: str) -> None:
        """Again, after it was killed."""
        self.run("sh", "-c", f"slurmd -N {node}", on=node)
        self.wait_for_nodes()

    def wait_for_nodes(self) -> None:
        """Until both are idle: RuntimeError with the daemons' last words when they do not come up."""

        def idle() -> bool | None:
            with self.start("sinfo", "--noheader", "--Node", "--partition=batch", "--format=%T") as asking:
                try:
                    output, _ = asking.communicate(timeout=ANSWER_S)
                except subprocess.TimeoutExpired:
                    os.killpg(asking.pid, signal.SIGKILL)
                    return None
            return output.split() == ["idle"] * len(NODES) or None

        if not Waiter().until(idle, deadline_s=START_S, poll_s=0.2):
            logs = sorted((self.directory / "log").iterdir())
            told = "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in logs)
            raise RuntimeError(f"the nodes were not idle within {START_S:g} s\n{told}")


@contextlib.contextmanager
def slurm_lab(*, private_tmp: bool = False) -> Iterator[SlurmLab]:
    """Both nodes are idle. private_tmp: each job has a /tmp of its own, which job_container/tmpfs deletes with it."""
    with contextlib.ExitStack() as stack:
        for left in reversed(range(ATTEMPTS)):
            try:
                lab = stack.enter_context(_one_lab(private_tmp=private_tmp))
                break
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                if not left:
                    raise
                print(f"slurm lab, {left} more attempts: {error}", file=sys.stderr)
        yield lab


@contextlib.contextmanager
def _one_lab(*, private_tmp: bool) -> Iterator[SlurmLab]:
    parent = next(path for path in PARENTS if Path(path).is_dir())
    directory = Path(tempfile.mkdtemp(prefix="slurm-lab-", dir=parent))
    hosts: dict[str, Host] = {}
    try:
        write_settings(directory, ADDRESSES, private_tmp=private_tmp)
        hosts[LOGIN] = Host(LOGIN, directory, *_daemons(directory, "slurmctld -D -c"))
        for node in NODES:
            hosts[node] = Host(node, directory, *_daemons(directory, f"slurmd -D -N {node}"))
        for host in hosts.values():
            host.connect(hosts[LOGIN])
            host.go()
        _write_commands(directory / "bin", hosts[LOGIN])
        lab = SlurmLab(directory, hosts, private_tmp=private_tmp)
        lab.wait_for_nodes()
        yield lab
    finally:
        with contextlib.ExitStack() as ends:
            ends.callback(shutil.rmtree, directory)
            for host in hosts.values():
                ends.callback(host.end)


@functools.cache
def _on_the_oldest_cpu() -> list[str]:
    """A host's namespace must be older than those that Slurm makes in it."""
    script = str(HERE / "namespace_order.py")
    asked = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True, timeout=START_S)
    told = asked.stdout.strip()
    return ["taskset", "--cpu-list", told] if told else []


def _daemons(directory: Path, slurm: str) -> tuple[str, str]:
    """Each host has a munged of its own: one for all would take what two nodes decode for a replay."""
    munged = f"exec munged --foreground --force --key-file={directory}/munge.key"
    for option in ("socket", "pid-file", "log-file", "seed-file"):
        munged += f" --{option}=/var/tmp/munge.{option.removesuffix('-file')}"
    return munged, f"until test -S /var/tmp/munge.socket; do sleep 0.05; done; exec {slurm}"


def _write_commands(directory: Path, login: Host) -> None:
    """Slurm's commands for processes of this host, which has no network to the lab."""
    for name in COMMANDS:
        program = shutil.which(name)
        script = directory / name
        words = " ".join(login.words([str(program)], cwd='"$PWD"'))
        there = f'case $(hostname) in {"|".join(ADDRESSES)}) exec {program} "$@";; esac'  # a job inherits the PATH
        script.write_text(f'#!/bin/sh\n{there}\nexec {words} "$@"\n')
        script.chmod(0o755)


def _run(words: list[str]) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=START_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
