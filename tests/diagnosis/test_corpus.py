"""Every built case is answered rightly, also in any order of files, with a dump lost, and with mixed formats."""

import dataclasses
import random
import zlib
from collections import Counter
from collections.abc import Sequence

import pytest
from corpus import CORPUS, CorpusCase
from simulated_dumps import groups_of, record

from hangdrill.diagnosis import diagnose
from hangdrill.model.diagnosis import Basis, Diagnosis, HangVerdict
from hangdrill.model.dump import RankDump

MIXED = ((2, 9), (2, 10))
by_name = pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)


def dice(case: CorpusCase) -> random.Random:
    return random.Random(zlib.crc32(case.name.encode()))


def ask(case: CorpusCase, dumps: Sequence[RankDump]) -> Diagnosis:
    groups = groups_of(case.outcome) if case.launch_groups else ()
    return diagnose(dumps, world_size=case.outcome.program.world, launch_groups=groups)


def named(diagnosis: Diagnosis) -> set[int]:
    return {culprit.rank for culprit in diagnosis.culprits}


def complaint(case: CorpusCase, diagnosis: Diagnosis) -> str:
    answer = (diagnosis.verdict.value, diagnosis.kind and diagnosis.kind.value, sorted(named(diagnosis)))
    right = diagnosis.verdict.value in case.verdicts
    right &= diagnosis.kind is None or not case.kinds or diagnosis.kind.value in case.kinds
    must_say_kind = bool(case.kinds) and (diagnosis.verdict is HangVerdict.HANG or "hang" not in case.verdicts)
    right &= diagnosis.kind is not None or not must_say_kind
    right &= named(diagnosis) == set(case.culprits) or (not case.culprits and named(diagnosis) <= set(case.may))
    return (
        "" if right else f"{answer} instead of {case.verdicts}, {case.kinds}, {case.culprits or case.may}: {diagnosis}"
    )


def hold_to(problem: str) -> None:
    """Fail with the problem alone: a case prints as pages."""
    if problem:
        pytest.fail(problem, pytrace=False)


@by_name
def test_the_answer_is_right(case: CorpusCase) -> None:
    hold_to(complaint(case, ask(case, record(case.outcome, case.how))))


@by_name
def test_the_order_of_the_files_changes_nothing(case: CorpusCase) -> None:
    dumps = record(case.outcome, case.how)
    first = ask(case, dumps)
    assert ask(case, dumps[::-1]) == first
    for _ in range(3):
        dice(case).shuffle(dumps)
        assert ask(case, dumps) == first


@by_name
def test_mixed_formats_change_nothing(case: CorpusCase) -> None:
    how = dataclasses.replace(case.how, versions=MIXED)
    hold_to(complaint(case, ask(case, record(case.outcome, how))))


@by_name
def test_a_lost_dump_makes_no_innocent_a_culprit(case: CorpusCase) -> None:
    """Right or undecided. A lost rank may be inferred when all who are there wait: a killed rank looks the same."""
    world = case.outcome.program.world
    for rank in range(world) if world <= 8 else dice(case).sample(range(world), 3):
        how = dataclasses.replace(case.how, lost=case.how.lost | {rank})
        missing = how.lost | case.outcome.killed
        dumps = record(case.outcome, how)
        if not dumps:
            continue
        diagnosis = ask(case, dumps)
        entries = [mine for r, mine in enumerate(case.outcome.entries) if r not in missing]
        all_wait = all(any(entry.pending for entry in mine) for mine in entries)
        excused = {c.rank for c in diagnosis.culprits if c.basis is Basis.INFERRED and c.rank in missing and all_wait}
        if innocents := named(diagnosis) - {*case.culprits, *case.may, *excused}:
            hold_to(f"without the dump of {rank}, names the innocent {innocents}: {diagnosis}")
        if diagnosis.verdict.value == ("no-hang" if case.outcome.hung else "hang"):
            hold_to(f"without the dump of {rank}: {diagnosis}")


def test_the_corpus_is_as_wide_as_it_says() -> None:
    names = Counter(case.name for case in CORPUS)
    sizes = {case.outcome.program.world for case in CORPUS}
    assert len(names) == len(CORPUS) >= 60
    assert min(sizes) == 2
    assert max(sizes) == 64
    assert sum(not case.outcome.hung for case in CORPUS) >= 20
    assert {0, 63} < {rank for case in CORPUS for rank in case.culprits}


def test_a_wrong_answer_is_noticed() -> None:
    """The negative control: the answer to one case is wrong for another."""
    absent, well, other = (
        next(c for c in CORPUS if c.name == n) for n in ("absent-4-first", "healthy-64", "absent-4-last")
    )
    answer = ask(absent, record(absent.outcome, absent.how))
    assert complaint(well, answer)
    assert complaint(other, answer)
    assert complaint(absent, ask(well, record(well.outcome, well.how)))
