"""A plan is read whole or refused with every mistake, its line and what to write instead."""

from pathlib import Path

import pytest

from hangdrill.certify.plan import LoadedPlan, load_plan, plan_of
from hangdrill.model.certify_plan import CertifyPlan, Measure, Topology
from hangdrill.model.errors import UsageError

SIDES = '[baseline]\npython = "/a/bin/python"\n[candidate]\npython = "/b/bin/python"\n'


def read(text: str, environ: dict[str, str] | None = None) -> LoadedPlan:
    return plan_of(text, path=Path("/plans/plan.toml"), environ=environ or {"HOME": "/home/kim"})


def plan(text: str) -> CertifyPlan:
    return read(text).plan


def test_the_least_plan_has_defaults() -> None:
    found = plan(f'title = "up"\n{SIDES}')
    assert (found.valid_days, found.topologies, found.declared) == (30, (Topology.SINGLE_NODE,), ("torch",))


def test_every_key_is_read() -> None:
    text = """
title = "up"
valid_days = 14
declared = ["torch", "nvidia-*"]
topologies = ["dp", "2d", "multi-gpu-process"]
[baseline]
python = "/a"
env = { NCCL_ALGO = "Ring" }
[candidate]
python = "/b"
[workload]
backend = "nccl"
pairs = 10
[thresholds.throughput]
ratio = 0.03
[checkpoint]
modes = ["async"]
[[checkpoint.stack]]
name = "2.13"
python = "/c"
[rollback]
owner = "Kim"
expires = "2027-03-31"
[ring]
name = "internal-workload"
receipt_before = "r.json"
key = "k.pub"
[price]
per_hour = 12.5
"""
    found = plan(text)
    assert found.thresholds[Measure.THROUGHPUT].ratio == 0.03
    assert found.checkpoint.stack[0].name == "2.13"
    assert found.ring.receipt_before == "/plans/r.json"
    assert read(text).record.text == text


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        ('key = "k.pub"', ("/plans/k.pub",)),
        ('key = ["k.pub", "~/l.pub", "/m.pub"]', ("/plans/k.pub", "/home/kim/l.pub", "/m.pub")),
        ("", ()),
    ],
)
def test_a_ring_has_one_key_or_several(written: str, keys: tuple[str, ...]) -> None:
    found = plan(f'title = "up"\n{SIDES}[ring]\nname = "internal-workload"\n{written}\n').ring
    assert (found.keys, found.threshold) == (keys, None)


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        ("/a/bin/python", "/a/bin/python"),
        ("envs/a/bin/python", "/plans/envs/a/bin/python"),
        ("~/a/bin/python", "/home/kim/a/bin/python"),
        ("${HANGDRILL_STACKS}/2.14/bin/python", "/home/kim/.cache/hangdrill-stacks/2.14/bin/python"),
        ("python3.12", "python3.12"),
        ("../envs/a/bin/python", "/envs/a/bin/python"),
    ],
)
def test_paths_are_absolute_and_names_are_left(written: str, read_as: str) -> None:
    text = f'title = "up"\n[baseline]\npython = "{written}"\n[candidate]\npython = "/b"\n'
    assert plan(text).baseline.python == read_as


def test_dots_stay_where_a_link_makes_them_another_place(tmp_path: Path) -> None:
    (tmp_path / "far/away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far/away")
    for written, read_as in (("far/../a", tmp_path / "a"), ("link/../a", tmp_path / "link/../a")):
        text = f'title = "up"\n[baseline]\npython = "{tmp_path / written}"\n[candidate]\npython = "/b"\n'
        assert plan(text).baseline.python == str(read_as)


def test_an_image_has_a_python_in_it_and_mounts_of_this_host() -> None:
    text = """
title = "up"
[baseline]
image = "train:2.14"
[candidate]
image = "train:2.15"
python = "bin/python"
mounts = ["data:/data:ro", "~/x:/x", "/y:/y"]
"""
    found = plan(text)
    assert (found.baseline.image, found.baseline.python, found.baseline.mounts) == ("train:2.14", "python3", ())
    assert found.candidate.python == "bin/python", "a path in the image is left as it is"
    assert found.candidate.mounts == ("/plans/data:/data:ro", "/home/kim/x:/x", "/y:/y")


def test_stacks_come_from_the_variable_where_it_is_set() -> None:
    text = 'title = "up"\n[baseline]\npython = "${HANGDRILL_STACKS}/a"\n[candidate]\npython = "/b"\n'
    assert read(text, {"HANGDRILL_STACKS": "/stacks"}).plan.baseline.python == "/stacks/a"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "title: this key is missing"),
        ('title = "u"\ntopologys = ["dp"]', "did you mean `topologies`"),
        ('title = "u"\ntopologies = ["ddp"]', "did you mean `dp`"),
        ('title = "u"\ntopologies = []', "there are none"),
        ('title = "u"\ntopologies = ["dp", "dp"]', "twice"),
        ('title = "u"\nvalid_days = 0', "1 or more"),
        ('title = "u"\n[workload]\npairs = 0', "more than 0"),
        ('title = "u"\n[workload]\nscript = "none.py"', "no such script"),
        ('title = "u"\n[thresholds.init-tim]\nratio = 1.0', "did you mean `init-time`"),
        ('title = "u"\n[thresholds.init-time]\nratio = -1.0', "negative"),
        ('title = "u"\n[rollback]\nexpires = "31.3.2027"', "no date"),
        ('title = "u"\n[rollback]\nexpires = "2027-02-30"', "no date"),
        ('title = "u"\n[ring]\nname = "everybody"', "unknown ring"),
        ('title = "u"\n[ring]\nreceipt_before = "r"', "needs ring.name"),
        ('title = "u"\n[ring]\nkey = []', "ring.key: there are none"),
        ('title = "u"\n[ring]\nkey = ["k", "./k"]', "stands there twice"),
        ('title = "u"\n[ring]\nkey = 3', "a text or a list"),
        ('title = "u"\n[ring]\nkey = ["k", 3]', "ring.key"),
        ('title = "u"\n[ring]\nkey = ["k", "l"]\nthreshold = 0', "1 or more"),
        ('title = "u"\n[ring]\nkey = ["k", "l"]\nthreshold = 3', "3 signatures are wanted, of 2 keys"),
        ('title = "u"\n[ring]\nkey = "k"\nthreshold = 2', "2 signatures are wanted, of 1 key"),
        ('title = "u"\n[ring]\nthreshold = 2', "2 signatures are wanted, of 0 keys"),
        ('title = "u"\n[ring]\nkey = ["k", "l"]\nthreshold = 1.5', "ring.threshold"),
        ('title = "u"\n[price]\nper_hour = 0', "more than 0"),
        ('title = "u"\n[[checkpoint.stack]]\nname = "candidate"\npython = "/c"', "two stacks"),
        ('title = "u"\n[[checkpoint.stack]]\nname = "a/b"\npython = "/c"', "is no name"),
        ('title = "u"\n[[checkpoint.stack]]\nname = "x"\npython = "${NO_SUCH}/c"', "NO_SUCH is not set"),
        ('title = "u"\n[[checkpoint.stack]]\nname = "x"', "checkpoint.stack[0].python: this key is missing"),
        ('title = "u"\n[[checkpoint.stack]]\nname = "x"\nimage = "i:1"\nmounts = ["d"]', "must be SOURCE:TARGET"),
        (
            'title = "u"\n[[checkpoint.stack]]\nname = "x"\npython = "/c"\nmounts = ["/d:/d"]',
            "only an image has mounts",
        ),
        ("title = ", "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_file_and_next_step(more: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(f"{more}\n{SIDES}")
    assert said in str(caught.value)
    assert "/plans/plan.toml" in str(caught.value)


def test_all_mistakes_are_told_at_once_with_their_lines() -> None:
    with pytest.raises(UsageError, match="2 mistakes") as caught:
        read(f'title = "u"\nvalid_days = 0\n{SIDES}[workload]\nsteps = 0\n')
    assert "plan.toml:2" in str(caught.value)
    assert "plan.toml:8" in str(caught.value)


def test_a_file_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the plan"):
        load_plan(tmp_path / "no.toml", {})


def test_the_same_stack_on_both_sides_and_a_fallback_without_owner_are_warned_of() -> None:
    same = 'title = "u"\n[baseline]\npython = "/a"\n[candidate]\npython = "/a"\n'
    nccl = '[workload]\nbackend = "nccl"\n'
    assert len(read(same + nccl).warnings) == 2
    assert len(read(same).warnings) == 1  # only NCCL has a fallback
    assert not read(f'title = "u"\n{SIDES}{nccl}[rollback]\nowner = "Kim"\n').warnings
