"""A process that has imported what a delivery needs, and forks one for each line: `EVIDENCE URL KILL_AT`.

KILL_AT n > 0: the delivery ends itself with SIGKILL at the nth call into the kernel that changes what is on the disk.
Prints the pid, and when it is over `<pid> over <status>`.
"""

import os
import signal
import sys
from pathlib import Path

import s3fs  # noqa: F401 - a second of importing, once for all

from hangdrill.delivery import deliver
from hangdrill.delivery.courier import Limits
from hangdrill.model.errors import HangdrillError


def main() -> None:
    for line in sys.stdin:
        evidence, url, kill_at = line.split()
        pid = os.fork()
        if pid == 0:
            _deliver(Path(evidence), url, int(kill_at))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(f"{pid} over {status}", flush=True)


def _deliver(evidence: Path, url: str, kill_at: int) -> None:
    code = 70
    try:
        if kill_at:
            _arm(kill_at)
        record = deliver(evidence, url, environ=os.environ, job="train", within_s=60, limits=Limits(at_once=1))
        code = 0 if record.complete else 1
        if code:
            print([(one.path, one.last_error) for one in record.artifacts], file=sys.stderr)
    except HangdrillError as error:
        print(error, file=sys.stderr)
    finally:
        os._exit(code)


def _arm(kill_at: int) -> None:
    count = 0

    def counting(real):
        def call(*arguments, **more):
            nonlocal count
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **more)

        return call

    for name in ("link", "fsync", "rename", "unlink", "mkdir"):
        setattr(os, name, counting(getattr(os, name)))


if __name__ == "__main__":
    main()
