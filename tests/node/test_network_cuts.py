"""Cuts of a real link between two hosts in namespaces, each taken back; and the guard that does it for a dead owner."""

import os
import signal
import sys

import pytest
from host_drills import link_is_up

from hangdrill.drill.waiting import Waiter
from hangdrill.model.errors import MachineError, UsageError
from hangdrill.model.scenario import FaultKind
from hangdrill.node.guard import Guard, Undo
from hangdrill.node.network import Cut, apply_cut, check_interface, plan_cut

GONE_S = 60.0
OWNER = """
import os, sys, time
from pathlib import Path
from hangdrill.drill.procfs import own_id
from hangdrill.model.scenario import FaultKind
from hangdrill.node.guard import Charge, run_undo, start_guard
from hangdrill.node.network import apply_cut, check_interface, plan_cut
kind, how, root = FaultKind(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
root.mkdir(exist_ok=True)
guard = start_guard(Charge(run_id="hd-1", node=0, owner=own_id(), local_root=str(root), controller_beat="/none"))
check_interface(kind, "eth0")
cut = plan_cut(kind, "eth0", run_id="hd-1")
for undo in cut.undoes:
    guard.remember(undo)
apply_cut(cut)
print("cut", flush=True)
if how == "wait":
    time.sleep(600)
if how == "undo":
    assert all([run_undo(undo) for undo in cut.undoes])
    guard.dismiss()
"""


def ping(host, to):
    return "1 received" in host.run(
        "python3", "-c",
        "import socket, sys\n"
        "s = socket.socket(); s.settimeout(1)\n"
        f"try: s.connect(('{to.address}', 9)); print('1 received')\n"
        "except ConnectionRefusedError: print('1 received')\n"
        "except OSError as error: print(error)",
    )  # fmt: skip


def own(host, kind, how):
    return host.start([sys.executable, "-c", OWNER, kind, how, str(host.own / "hangdrill-x")])


@pytest.mark.parametrize("kind", ["link-down", "link-loss"])
def test_cut_link_carries_nothing_until_it_is_taken_back(hosts, kind):
    assert ping(hosts.a, hosts.b)
    owner = own(hosts.b, kind, "wait")
    assert Waiter().until(lambda: "cut" in owner.output or None, deadline_s=GONE_S), owner.output
    assert not ping(hosts.a, hosts.b)
    owner.signal(signal.SIGKILL)
    assert Waiter().until(lambda: not hosts.b.guards() or None, deadline_s=GONE_S), "the guard did not end"
    assert link_is_up(hosts.b)
    assert ping(hosts.a, hosts.b)
    assert hosts.b.local_directories() == []


def test_slow_link_is_quick_again_after_its_owner_took_it_back(hosts):
    owner = own(hosts.b, "link-slow", "undo")
    assert owner.wait(GONE_S) == 0, owner.output
    assert link_is_up(hosts.b)


def test_routes_that_went_with_the_link_come_back(hosts):
    hosts.b.run("ip", "route", "add", "10.99.0.0/16", "via", "10.77.0.1")
    hosts.b.run("ip", "route", "add", "default", "via", "10.77.0.1")
    before = hosts.b.run("ip", "route")
    assert "default" in before
    owner = own(hosts.b, "link-down", "undo")
    assert owner.wait(GONE_S) == 0, owner.output
    assert sorted(hosts.b.run("ip", "route").splitlines()) == sorted(before.splitlines())


def test_interface_with_a_queueing_discipline_of_its_own_is_refused_and_left_alone(hosts):
    hosts.b.run("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "1gbit", "burst", "100kb", "limit", "1mb")
    owner = own(hosts.b, "link-slow", "die")
    assert owner.wait(GONE_S) != 0
    assert "tc qdisc add" in owner.output


@pytest.mark.parametrize(("name", "said"), [("nosuch0", "no interface nosuch0"), ("lo", "joins no hosts")])
def test_interface_that_is_not_there_or_is_the_loopback_is_refused(name, said):
    with pytest.raises(UsageError, match=said) as caught:
        check_interface(FaultKind.LINK_DOWN, name)
    assert caught.value.where == "fault.interface"
    assert caught.value.next_step


def test_command_that_is_refused_is_told_in_its_own_words():
    with pytest.raises(MachineError, match="No such file") as caught:
        apply_cut(Cut(command=("/bin/ls", "/nosuch"), undoes=(), what="nothing"))
    assert caught.value.next_step


def test_every_cut_has_commands_that_take_it_back():
    for kind in (FaultKind.LINK_DOWN, FaultKind.LINK_LOSS, FaultKind.LINK_SLOW):
        cut = plan_cut(kind, "nosuch0", run_id="hd-1")
        assert cut.undoes
        assert all("nosuch0" in undo.command for undo in cut.undoes)


def test_nothing_is_cut_once_the_guard_was_killed():
    read_end, write_end = os.pipe()
    guard = Guard(write_end)
    guard.remember(Undo(command=("true",)))
    os.close(read_end)  # as when it is killed
    with pytest.raises(MachineError, match="the guard of this host was killed"):
        guard.remember(Undo(command=("true",)))
    guard.forget()
    guard.dismiss()
