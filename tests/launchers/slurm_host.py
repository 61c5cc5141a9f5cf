"""The first process of a simulated host: sets it up, starts its daemons, reaps what is orphaned. Standard library only.

    unshare --net --uts --mount --pid --fork --kill-child --mount-proc python slurm_host.py NAME LAB KEPT... -- DAEMON

It waits for a line on stdin (the network is then there), starts the daemons (each one shell command), and lives until
stdin is closed or it is killed: then the kernel ends all that runs on this host. KEPT are directories that must stay
visible under /tmp.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

PRIVATE = ("/tmp", "/var/tmp")


def main(name: str, lab: str, kept: list[str], daemons: list[str]) -> None:
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # the lab chose a CPU for the namespace alone
    run("hostname", name)
    run("mount", "--bind", f"{lab}/hosts", "/etc/hosts")
    handles = {path: os.open(path, os.O_PATH) for path in kept}
    for place in PRIVATE:
        run("mount", "-t", "tmpfs", "-o", "mode=1777", "none", place)
    for path, handle in handles.items():
        Path(path).mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", f"/proc/{os.getpid()}/fd/{handle}", path)
    run("ip", "link", "set", "lo", "up")
    print("ready", flush=True)
    sys.stdin.readline()
    for number, words in enumerate(daemons):
        log = os.open(f"{lab}/log/{name}.{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        subprocess.Popen(["/bin/sh", "-c", words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    threading.Thread(target=reap, daemon=True).start()
    sys.stdin.read()


def reap() -> None:
    """Every orphan of this host is the first process's child."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.1)


def run(*words: str) -> None:
    subprocess.run(words, check=True)


if __name__ == "__main__":
    at = sys.argv.index("--")
    main(sys.argv[1], sys.argv[2], sys.argv[3:at], sys.argv[at + 1 :])
