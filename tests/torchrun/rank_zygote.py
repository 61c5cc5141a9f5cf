"""A process that has imported the agent, and forks itself for every program it is asked to run under it.

Importing torch costs more than most of these programs do. The forked child goes on as `python -m hangdrill.rank` would,
to Python's own end. Requests and answers are JSON lines: {argv, environ, cwd, out} and {status}.
"""

import json
import os
import sys

import hangdrill.rank.__main__ as entry
import hangdrill.rank.agent


def become(request):
    """Make this process the one that was asked for."""
    os.chdir(request["cwd"])
    for number in (1, 2):
        output = os.open(f"{request['out']}.{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, number)
        os.close(output)
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv = ["hangdrill.rank", *request["argv"]]


def main():
    assert hangdrill.rank.agent
    while line := os.read(0, 1 << 16):
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            become(request)
            entry.main()
            return
        _, status = os.waitpid(child, 0)
        os.write(1, json.dumps({"status": os.waitstatus_to_exitcode(status)}).encode() + b"\n")


if __name__ == "__main__":
    main()
