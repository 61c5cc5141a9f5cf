"""One drill from beginning to end, and many of them: the only module that knows the order.

The steps of `run_drill`:

 1. plan       decide everything; check that the ranks' Python has torch; make the run directory; write the orders
 2. lock       hold the host's resources that the drill needs alone
 3. launch     start the collector, then the job; of a job on several hosts, wait until each has come
 4. steady     every rank has counted healthy operations
 5. confirm    every target rank has reported its fault
 6. notice     the collector (or torch, or the job's end) says that something hangs
 7. collect    the evidence is in, or `within_s` is over
 8. inspect    what is on the disk before anything is torn down
 9. release    let go of every held or stopped rank: always, also when a step before failed
10. teardown   each one that the scenario names, and an inspection after it; then everything is ended: always
11. sweep      prove that nothing is left: always
12. judge      from the run directory alone
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import msgspec

from hangdrill.drill.collector_command import check_target
from hangdrill.drill.gpus import check_gpus, spread
from hangdrill.drill.inspection import COLLECTED
from hangdrill.drill.judge import failed_result, judge
from hangdrill.drill.layout import Journal, RunLayout, create_run_dir, make_directory, write_json
from hangdrill.drill.lock import holding
from hangdrill.drill.nodes import prepare_nodes
from hangdrill.drill.phases import collect, confirm, gather, notice, reach_steady, tear_down
from hangdrill.drill.plan import launch_request, launcher_for, makes_dump_dir, new_run_id, plan_drill
from hangdrill.drill.plan_values import Plan, dump_place, is_healthy
from hangdrill.drill.pool import run_all
from hangdrill.drill.procfs import own_id
from hangdrill.drill.queue import await_turn
from hangdrill.drill.registry import Registration, open_runtime_dir, register, unregister
from hangdrill.drill.roads import Road, make_road
from hangdrill.drill.session import Session
from hangdrill.drill.shutdown import end_everything
from hangdrill.drill.waiting import Interrupt, Waiter, handling_signals
from hangdrill.launchers.agent_path import prepare_agent_path
from hangdrill.launchers.box import mounted_volumes
from hangdrill.launchers.protocol import Launcher
from hangdrill.model.errors import HangdrillError, InternalError, Interrupted, MachineError
from hangdrill.model.run import DrillResult
from hangdrill.model.scenario import Scenario, Teardown
from hangdrill.report.progress import Listener, NoopListener

__all__ = ["run_drill", "run_many"]


def run_drill(
    name: str,
    scenario: Scenario,
    *,
    run_dir: Path,
    python: str,
    environ: Mapping[str, str],
    listener: Listener | None = None,
    interrupt: Interrupt | None = None,
    launcher: Launcher | None = None,
    road_for: Callable[[Plan, RunLayout], Road] = make_road,
    cwd: Path | None = None,
) -> DrillResult:
    """Run one drill and judge it. cwd: of the job; None: where a script's job starts is where the user stands.

    Raises UsageError or MachineError when it cannot be started, Interrupted when the user or a signal stops it: then
    everything that it started has been ended, and the run directory keeps what was collected.
    """
    listener = listener or NoopListener()
    started_s = time.monotonic()
    with ExitStack() as stack:
        if interrupt is None:
            interrupt = stack.enter_context(Interrupt())
            stack.enter_context(handling_signals(interrupt))
        plan = plan_drill(scenario, name=name, run_dir=run_dir, python=python, environ=environ, run_id=new_run_id())
        if cwd is not None:
            plan = msgspec.structs.replace(plan, cwd=str(cwd))
        if launcher is None:
            check_gpus(scenario, environ)
            check_target(scenario)
        launcher = launcher or launcher_for(scenario)
        launcher.check(launch_request(plan, environ))
        runtime_dir = open_runtime_dir(environ)
        layout = _prepare(plan, run_dir)
        journal = Journal(layout.journal, started_s)
        session = Session(
            plan,
            layout,
            launcher=launcher,
            road=road_for(plan, layout),
            journal=journal,
            listener=listener,
            interrupt=interrupt,
        )
        session.tell("plan", "planned", {"run_id": plan.run_id})
        with (
            _recorded(journal, layout.root),
            _locks(session, runtime_dir, interrupt),
            _registered(plan, runtime_dir),
        ):
            _execute(session, environ)
            interrupt.check()  # also when it came too late to cut anything short
        journal.write("finished")
    result = judge(layout.root)
    listener.finished(result, layout.root)
    return result


def run_many(
    items: Sequence[tuple[str, Scenario]],
    *,
    out_dir: Path,
    jobs: int,
    python: str,
    environ: Mapping[str, str],
    listener_for: Callable[[str], Listener] | None = None,
) -> list[DrillResult]:
    """Run drills, `jobs` at a time, each in `out_dir`/its name; the results are in the order of `items`.

    A drill that hangdrill or the machine fails gives an UNKNOWN result and the others go on; if that happens to all of
    them, the first error is raised. Raises Interrupted once every drill has ended what it started.
    """
    errors: dict[str, HangdrillError] = {}
    with Interrupt() as interrupt, handling_signals(interrupt):

        def task(number: int, name: str, scenario: Scenario) -> DrillResult:
            listener = listener_for(name) if listener_for else NoopListener()
            run_dir = out_dir / name
            try:
                interrupt.check()
                return run_drill(
                    name,
                    scenario,
                    run_dir=run_dir,
                    python=python,
                    environ=spread(scenario, environ, number) if jobs > 1 else environ,
                    listener=listener,
                    interrupt=interrupt,
                )
            except Interrupted:
                raise
            except Exception as error:  # one drill's failure must not end the others
                errors[name] = error if isinstance(error, HangdrillError) else _internal(error, name)
                result = failed_result(name, scenario, errors[name])
                listener.finished(result, run_dir)
                return result

        # The longest first, so that none of them begins when all others are over; one at a time, in the given order.
        order = sorted(range(len(items)), key=lambda at: -_longest_s(items[at][1]) if jobs > 1 else 0)
        tasks = [partial(task, number, *items[at]) for number, at in enumerate(order)]
        try:
            done = run_all(tasks, jobs=jobs, interrupt=interrupt)
        except Interrupted as error:
            raise _interrupted(error, out_dir) from error
        results = [result for _, result in sorted(zip(order, done, strict=True), key=lambda pair: pair[0])]
    if errors and len(errors) == len(items):
        raise next(iter(errors.values()))
    return results


def _interrupted(error: Interrupted, place: Path) -> Interrupted:
    return Interrupted(error.what, next_step=f"what was there until then is in {place}")


def _longest_s(scenario: Scenario) -> float:
    """How long a drill may take: torch alone needs most of what it is allowed."""
    return scenario.expect.within_s or 3 * scenario.job.timeout_s


def _prepare(plan: Plan, run_dir: Path) -> RunLayout:
    """Make the run directory and write everything that the job finds there."""
    layout = create_run_dir(run_dir.absolute())
    write_json(layout.plan, plan)
    if plan.scenario.job.on_nodes:
        prepare_nodes(layout, plan.scenario.job.nnodes)
    write_json(layout.agent_orders, plan.orders)
    if plan.scenario.incident.has_hook:
        write_json(layout.hooks, plan.scenario.incident)
    for volume in mounted_volumes(launch_request(plan, {}).volumes, plan.run_dir):
        if Path(volume.source).is_relative_to(layout.root):
            make_directory(Path(volume.source))
    dumps = dump_place(plan, str(Path(plan.dump_prefix).parent))
    if dumps is not None and makes_dump_dir(plan.scenario):  # in the container's own layer its launcher makes it
        make_directory(dumps)
    prepare_agent_path(layout.agent_path)
    return layout


def _execute(session: Session, environ: Mapping[str, str]) -> None:
    """Steps 3 to 11."""
    scenario = session.plan.scenario
    try:
        session.fault.arm()
        pids = session.launch(environ)
        session.tell("launch", "launched", {"pids": pids})
        await_turn(session)
        gather(session)
        reach_steady(session)
        confirmed = confirm(session)
        since_s = time.monotonic()
        if confirmed:
            notice(session)
        collect(session, since_s=since_s if confirmed else since_s - session.plan.deadlines.within_s)
        if not session.plan.collector_command:
            session.finish_road()
        session.inspect(COLLECTED)
        for teardown in _teardowns(scenario):
            tear_down(session, teardown, healthy=is_healthy(scenario))
            session.inspect(teardown.value)
    finally:
        end_everything(session)


def _teardowns(scenario: Scenario) -> tuple[Teardown, ...]:
    """Those of the scenario: what needs the running job first; then from the mildest to the hardest."""
    named = set(scenario.expect.survives)
    if scenario.job.max_restarts:
        named.add(Teardown.RESTART)
    order = list(Teardown)
    first = (Teardown.RESTART, Teardown.HOST_LOSS)
    return tuple(sorted(named, key=lambda teardown: (teardown not in first, order.index(teardown))))


@contextmanager
def _recorded(journal: Journal, run_dir: Path) -> Iterator[None]:
    """The record says why it ends early."""
    try:
        yield
    except Interrupted as error:
        journal.write("interrupted", {"why": error.what})
        journal.write("finished")
        raise _interrupted(error, run_dir) from error
    except OSError as error:
        journal.write("failed", {"error": str(error)})
        raise MachineError(
            f"the system refused: {error.strerror or error}",
            where=error.filename or "",
            next_step="check the disk's free space, the rights and the limits of this user",
        ) from error
    except Exception as error:
        journal.write("failed", {"error": f"{type(error).__name__}: {error}"})
        raise


@contextmanager
def _locks(session: Session, runtime_dir: Path, interrupt: Interrupt) -> Iterator[None]:
    plan = session.plan
    with holding(
        runtime_dir,
        plan.resources,
        run_id=plan.run_id,
        name=plan.name,
        waiter=Waiter(interrupt),
        deadline_s=plan.deadlines.lock_s,
        note=session.listener.note,
    ):
        if plan.resources:
            session.tell("lock", "locked", {"resources": plan.resources})
        yield


@contextmanager
def _registered(plan: Plan, runtime_dir: Path) -> Iterator[None]:
    """Known to `hangdrill clean` from before the first process starts until after the last one is gone."""
    registration = Registration(
        run_id=plan.run_id,
        name=plan.name,
        controller=own_id(),
        run_dir=plan.run_dir,
        resources=plan.resources,
    )
    register(runtime_dir, registration)
    try:
        yield
    finally:
        unregister(runtime_dir, plan.run_id)


def _internal(error: Exception, name: str) -> InternalError:
    failure = InternalError(
        f"{type(error).__name__}: {error}",
        where=name,
        next_step="this is a bug in hangdrill: report it with the journal",
    )
    failure.__cause__ = error
    return failure
