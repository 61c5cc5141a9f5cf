"""What a name says: the rank, the attempt, and whether only a recorder gives such a name."""

import pytest

from hangdrill.recorder.names import claim_of, rank_in_name, why_ignored


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("comm_lib_trace_rank_0", 0),
        ("comm_lib_trace_rank_1023", 1023),
        ("nccl_trace_rank_7", 7),
        ("fr_3", 3),
        ("fr_trace_12.pickle", 12),
        ("_dump_15", 15),
        ("dump_4.json", 4),
        ("rank_2.a1.dump.pickle", 2),
        ("rank_2.a0.trace.json", 2),
        ("rank5.pkl", 5),
        ("host-12.fr_3", 3),
        ("node07_nccl_trace_rank_9", 9),
        ("nccl_trace_rank_3.host-44", 3),
        ("fr_8_node01", 8),
        ("mytrace_6", 6),
        ("job-17-31.pickle", 31),
        ("_dump_3.json", 3),
        ("host-12_rank3.pkl", 3),
        ("trace_rank_3.1", 3),
        ("fr_3.host-a.bak", 3),
        ("nccl_trace3", 3),
        ("nccl-dump-4", 4),
        ("torchcomm_fr_trace_5", 5),
        ("rccl_trace_99120_rank6", 6),
        ("rank_2.a0.dump.2.pickle", 2),
        ("7", 7),
        ("mytrace", None),
        ("fr_", None),
        ("fr_3x", None),
        ("truth.json", None),
    ],
)
def test_names_say_the_rank(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


@pytest.mark.parametrize(("name", "rank"), [("try2-7", 7), ("try2-7.host3", 7), ("fr_7", None), ("try2-x", None)])
def test_with_a_prefix_only_the_digits_behind_it_count(name: str, rank: int | None) -> None:
    assert rank_in_name(name, prefix="try2-") == rank


def test_with_a_prefix_a_host_may_stand_before_it() -> None:
    assert rank_in_name("host12-try2-7", prefix="try2-") == 7


@pytest.mark.parametrize("name", ["comm_lib_trace_rank_1", "fr_1", "_dump_1", "host3.fr_1.bak", "rank_1.a0.trace.json"])
def test_a_recorders_own_name_is_strong(name: str) -> None:
    claim = claim_of(name)
    assert claim is not None
    assert claim.strong


@pytest.mark.parametrize("name", ["rank1.pkl", "dump_1", "job-17-1", "1", "node7/1", "trace1"])
def test_other_names_are_weak(name: str) -> None:
    claim = claim_of(name)
    assert claim is not None
    assert (claim.rank, claim.strong) == (1, False)


def test_hangdrills_own_names_say_the_attempt_and_the_road() -> None:
    claim = claim_of("evidence/rank_12.a3.trace.json")
    assert claim is not None
    assert (claim.rank, claim.series, claim.attempt, claim.road) == (12, "attempt", 3, "trace")


def test_torchft_names_a_directory_a_quorum_and_a_file_a_rank() -> None:
    claim = claim_of("run/fr_quorum_7/12")
    assert claim is not None
    assert (claim.rank, claim.strong, claim.series, claim.attempt) == (12, True, "quorum", 7)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fr_3.tmp", "temporary"),
        ("fr_3.tmp.81723", "temporary"),
        ("fr_3~", "temporary"),
        ("fr_3.part", "temporary"),
        (".fr_3.swp", "temporary"),
        ("a/.hidden_3", "temporary"),
        ("hosts.tar.gz", "an archive inside a directory"),
        ("fr_3.gz", "compressed"),
        ("fr_trace_20261129_184131.txt", "not a dump by its name"),
        ("rank_0.log", "not a dump by its name"),
    ],
)
def test_names_that_are_passed_over_say_why(name: str, reason: str) -> None:
    assert reason in (why_ignored(name) or "")


@pytest.mark.parametrize(
    "name", ["fr_3", "fr_3.bak", "nccl_trace_rank_3.host-44", "rank_3.pkl", "3", "temp_3", "partial_3"]
)
def test_the_others_are_not(name: str) -> None:
    assert why_ignored(name) is None
