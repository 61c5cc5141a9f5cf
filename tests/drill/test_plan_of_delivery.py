"""What a plan says of the delivery and of the hooks; and what of a scenario is refused."""

import shlex

import msgspec
import pytest
from fake_job import scenario

from hangdrill.drill.collector_command import check_target, collector_words
from hangdrill.drill.plan import plan_drill
from hangdrill.drill.plan_values import COLLECTOR_S
from hangdrill.drill.scenario_file import tomllib, validate
from hangdrill.model.errors import UsageError
from hangdrill.model.scenario import Incident

HOOKS = Incident(command=("notify.sh",), webhook="https://chat.example/SECRETPATH", timeout_s=7.0)


def plan(tmp_path, *, incident=None, **recorder):
    given = msgspec.structs.replace(scenario(recorder=recorder), incident=incident or Incident())
    return plan_drill(given, name="delivery/ours", run_dir=tmp_path, python="py", environ={}, run_id="hd-1")


def option(made, name):
    words = list(made.collector_command)
    return words[words.index(name) + 1] if name in words else None


def test_without_a_target_and_a_hook_the_collector_is_told_nothing(tmp_path):
    made = plan(tmp_path)
    assert not {"--deliver-to", "--incident", "--job"} & set(made.collector_command)
    assert made.deadlines.collector_s == COLLECTOR_S


def test_the_target_the_job_and_the_time_are_told(tmp_path):
    made = plan(tmp_path, deliver_to="s3://dumps/x", deliver_within_s=12.0)
    assert [option(made, name) for name in ("--deliver-to", "--deliver-within-s", "--job")] == [
        "s3://dumps/x",
        "12",
        "delivery/ours",
    ]
    assert option(made, "--started-ns") == str(made.created_ns)
    assert made.deadlines.collector_s > COLLECTOR_S + 12


def test_a_directory_is_meant_from_where_the_user_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert option(plan(tmp_path, deliver_to="there"), "--deliver-to") == str(tmp_path / "there")


def test_hooks_are_in_a_file_and_no_webhook_is_on_a_command_line(tmp_path):
    made = plan(tmp_path, incident=HOOKS)
    assert option(made, "--incident") == str(tmp_path / "control" / "hooks.json")
    assert "SECRETPATH" not in shlex.join(made.collector_command)
    assert made.deadlines.collector_s > COLLECTOR_S + 2 * HOOKS.timeout_s


def test_on_several_hosts_one_calls_the_hooks(tmp_path):
    made = plan(tmp_path, incident=HOOKS, deliver_to="s3://dumps")
    assert "--incident" in collector_words(made, 0)
    assert "--incident" not in collector_words(made, 1)
    assert "--deliver-to" in collector_words(made, 1)
    hosts = {words[words.index("--host") + 1] for words in (collector_words(made, 0), collector_words(made, 1))}
    assert len(hosts) == 2  # also where both hosts have one name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[recorder]\ntrigger = "native"\ndeliver_to = "s3://x"', "only the collector delivers"),
        ('[recorder]\ndeliver_to = " "', "the target has no name"),
        ('[recorder]\ndeliver_to = "ftp://me:hunter22@x"', "the URL holds a password"),
        ('[recorder]\ndeliver_to = "s3://x?secret=hunter22"', "the URL holds a secret"),
        ("[recorder]\ndeliver_within_s = 0", "0 is out of bounds"),
        ("[recorder]\nkeep_days = -1", "-1 is out of bounds"),
        ('[recorder]\ntrigger = "native"\n[incident]\ncommand = ["x"]', "only the collector calls hooks"),
        ('[incident]\ncommand = [""]', "the command has no name"),
        ('[incident]\nwebhook = "chat.example"', "it is no http:// or https:// URL"),
        ('[incident]\ncommand = ["x"]\ntimeout_s = nan', "nan is out of bounds"),
        ('[incident]\nhook = "x"', "unknown key"),
    ],
)
def test_a_mistake_is_refused_and_no_secret_repeated(text, words):
    base = 'title = "x"\n[job]\nworkload = "ddp"\n'
    with pytest.raises(UsageError) as caught:
        validate(tomllib.loads(base + text), name="x", path=None, source="x")
    assert words in str(caught.value)
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "mend"),
    [
        ("/no/such/place/x", "mount the volume, or make that directory"),
        ("s3:bucket/prefix", "the URL of a store has ://"),
    ],
)
def test_a_target_that_is_not_there_is_refused_before_the_drill_for_the_collector_would_end_at_its_start(
    tmp_path, monkeypatch, place, mend
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is not a directory") as caught:
        check_target(scenario(recorder={"deliver_to": place}))
    assert caught.value.where == "recorder.deliver_to"
    assert mend in caught.value.next_step


def test_a_target_that_only_the_nodes_need_to_have_is_left_to_them(tmp_path):
    check_target(scenario(job={"launcher": "slurm"}, recorder={"deliver_to": "/no/such/place/x"}))
    check_target(scenario(recorder={"deliver_to": str(tmp_path / "made-by-the-delivery")}))
    check_target(scenario(recorder={"deliver_to": "s3://bucket/prefix"}))
    check_target(scenario())
