"""One drill over two hosts, as a user starts it on each."""

import json
from pathlib import Path

from two_hosts import TwoHosts

from hangdrill.drill.waiting import Waiter

__all__ = ["DRILL_S", "Drill", "link_is_up", "nothing_left"]

DRILL_S = 240.0
LINK_S = 15.0


class Drill:
    """Started on both hosts."""

    def __init__(self, hosts: TwoHosts, scenario: str, *words: str) -> None:
        self.hosts = hosts
        self.out = hosts.shared / "out"
        self.run_dir = self.out / Path(scenario).with_suffix("")
        if scenario.endswith(".toml"):
            self.run_dir = self.out / Path(scenario).stem
        self.a = hosts.a.hangdrill("run", scenario, "--out", str(self.out), *words)
        self.b = hosts.b.hangdrill("run", scenario, "--out", str(self.out), "--node-rank", "1", *words)

    def end(self) -> tuple[int, int]:
        """The exit codes."""
        return self.a.wait(DRILL_S), self.b.wait(DRILL_S)

    @property
    def result(self) -> dict:
        path = self.run_dir / "result.json"
        assert path.exists(), self.a.output + self.b.output
        return json.loads(path.read_text())

    def not_passed(self) -> dict[str, dict]:
        return {check["name"]: check for check in self.result["checks"] if check["verdict"] != "pass"}

    def check(self, name: str) -> dict:
        return next(check for check in self.result["checks"] if check["name"] == name)

    def events(self) -> list[str]:
        path = self.run_dir / "journal.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["name"] for line in lines if line.endswith("}")]

    def dumps(self) -> list[str]:
        """The collected dumps that are there, by their paths."""
        return sorted(str(path.relative_to(self.run_dir)) for path in self.run_dir.glob("evidence/node*/*.dump.pickle"))


def nothing_left(hosts: TwoHosts) -> dict[str, list]:
    """Processes of a drill, guards and directories, by host; {} when there is nothing."""
    found = {
        f"{host.name} {what}": left
        for host in (hosts.a, hosts.b)
        for what, left in (
            ("processes", host.processes()),
            ("guards", host.guards()),
            ("directories", host.local_directories()),
        )
    }
    return {name: left for name, left in found.items() if left}


def link_is_up(host) -> bool:
    """Of eth0, with nothing of a fault left on it. The kernel tells of a link that was set up a moment later."""

    def is_up() -> bool:
        link = host.run("ip", "-o", "link", "show", "dev", "eth0")
        rules = host.run("iptables", "-S")
        queue = host.run("tc", "qdisc", "show", "dev", "eth0")
        return "state UP" in link and "hangdrill" not in rules and "tbf" not in queue

    return Waiter().until(lambda: is_up() or None, deadline_s=LINK_S) is not None
