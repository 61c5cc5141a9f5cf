"""`hangdrill run --nnodes --node-rank`: the same command on every host. On the first it is the controller, on
every other one the node process of that drill: it waits for the run directory, serves, and says what it does."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from hangdrill.drill.scenario_file import NamedScenario
    from hangdrill.model.errors import ExitCode

__all__ = ["HostWords", "check_jobs", "host_options", "serve", "take_host_words", "with_nnodes"]

F = TypeVar("F", bound=Callable[..., Any])


def _endpoint(_context: click.Context, _option: click.Parameter, said: str | None) -> str | None:
    """torchrun would say so minutes later, once every host has come."""
    host, _, port = (said or "").rpartition(":")
    if said is None or (host and port.isdecimal() and 0 < int(port) < 65536):
        return said
    raise click.BadParameter(f"{said!r} is no HOST:PORT, such as head:29400.")


_OPTIONS = (
    click.option("--nnodes", type=click.IntRange(min=1), help="Hosts; --nproc counts the ranks of each."),
    click.option("--node-rank", type=click.IntRange(min=0), help="Which host this is, from 0; all share --out."),
    click.option("--address", help="This host's address for the others.  [default: by the routing table]"),
    click.option(
        "--rdzv-endpoint",
        metavar="HOST:PORT",
        callback=_endpoint,
        help="Where they meet.  [default: a free port of node 0]",
    ),
)


class HostWords:
    """What was said of the hosts."""

    def __init__(
        self, nnodes: int | None, node_rank: int | None, address: str | None, rdzv_endpoint: str | None
    ) -> None:
        self.nnodes = nnodes
        self.node = node_rank or 0
        self.address = address or ""
        self.endpoint = rdzv_endpoint or ""

    def environ(self) -> dict[str, str]:
        """This process's, with what the launcher of node 0 must know."""
        from hangdrill.launchers.hosts import ADDRESS_VARIABLE, ENDPOINT_VARIABLE

        said = {ADDRESS_VARIABLE: self.address, ENDPOINT_VARIABLE: self.endpoint}
        return {**os.environ, **{name: value for name, value in said.items() if value}}


def host_options(command: F) -> F:
    """Add the options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_host_words(words: dict[str, Any]) -> HostWords:
    """Take them out of the command's words."""
    names = ("nnodes", "node_rank", "address", "rdzv_endpoint")
    return HostWords(**{name: words.pop(name) for name in names})


def with_nnodes(items: "list[NamedScenario]", nnodes: int | None) -> "list[NamedScenario]":
    """The same scenarios on so many hosts; each is checked again."""
    import msgspec

    from hangdrill.drill.scenario_file import validate

    if nnodes is None:
        return items
    tables = [msgspec.to_builtins(named.scenario) for named in items]
    for table in tables:
        table["job"]["nnodes"] = nnodes
    return [
        validate(table, name=named.name, path=named.path, source="--nnodes")
        for named, table in zip(items, tables, strict=True)
    ]


def check_jobs(items: "list[NamedScenario]", jobs: int) -> None:
    """The other hosts serve one drill after the other."""
    from hangdrill.model.scenario import LauncherName

    on_hosts = [named.name for named in items if named.scenario.job.on_nodes]
    by_hand = [named.name for named in items if named.scenario.job.launcher is LauncherName.TORCHRUN]
    if jobs > 1 and (both := [name for name in on_hosts if name in by_hand]):
        raise click.UsageError(f"{both[0]} is on several hosts, which serve one drill at a time: leave -j out.")


def serve(items: "list[NamedScenario]", words: HostWords, out: Path | None) -> "ExitCode":
    """Be the node process of each drill in turn."""
    from hangdrill.checks.words import count_text
    from hangdrill.drill.waiting import Interrupt, handling_signals
    from hangdrill.model.errors import ExitCode
    from hangdrill.node.joining import NodeOptions
    from hangdrill.node.process import serve_node

    if out is None:
        raise click.UsageError("--node-rank needs --out: the directory that node 0 was given, which all hosts share.")
    for named in items:
        if words.node >= named.scenario.job.nnodes:
            nodes = count_text(named.scenario.job.nnodes, "node")
            raise click.UsageError(f"{named.name} has {nodes}, counted from 0: add --nnodes.")
    with Interrupt() as interrupt, handling_signals(interrupt):
        for named in items:
            options = NodeOptions(
                run=(out / named.name).absolute(), node=words.node, address=words.address, endpoint=words.endpoint
            )
            serve_node(options, os.environ, interrupt, tell=click.echo)
    return ExitCode.PASS
