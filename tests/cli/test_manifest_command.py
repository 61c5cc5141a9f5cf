"""`hangdrill manifest`: what it prints is right by the schemas, and mistakes of a file are all listed."""

import pytest

from hangdrill.cli import run_command

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
CLUSTER = ("--image", "registry.example/train:1", "--run-volume", "pvc:drills")


@pytest.mark.parametrize(("kind", "kinds"), [("jobset", ["JobSet"]), ("job", ["Service", "Job"])])
@pytest.mark.parametrize("name", ["containers/collector", "kubernetes/volume", "quick/ddp-hold"])
def test_manifest_of_a_scenario_is_printed_and_checked(capsys, name, kind, kinds):
    assert run_command(["manifest", name, "--kind", kind, *CLUSTER]) == 0
    told = capsys.readouterr()
    assert [document["kind"] for document in yaml.safe_load_all(told.out)] == kinds
    assert f"{name}: no mistake by the schemas of Kubernetes" in told.err


def test_every_missing_setting_of_a_cluster_is_named_at_once(capsys):
    assert run_command(["manifest", "quick/ddp-hold"]) == 64
    told = capsys.readouterr()
    assert told.out == ""
    for key in ("image", "run_volume"):
        assert f"job.kubernetes.{key}" in told.err


def test_file_with_two_mistakes_lists_both_and_fails(capsys, tmp_path):
    path = tmp_path / "job.yaml"
    run_command(["manifest", "quick/ddp-hold", "--kind", "job", *CLUSTER])
    text = capsys.readouterr().out
    path.write_text(text.replace("backoffLimit: 0", "backofLimit: 0").replace("parallelism: 1", "parallelism: one"))
    assert run_command(["manifest", "--check", str(path)]) == 1
    told = capsys.readouterr().err
    assert "document 2: spec.backofLimit: there is no such field (did you mean backoffLimit?)" in told
    assert 'document 2: spec.parallelism: expected integer, got string "one"' in told
    assert "2 mistakes" in told


def test_file_without_a_mistake_passes(capsys, tmp_path):
    path = tmp_path / "job.yaml"
    run_command(["manifest", "quick/ddp-hold", *CLUSTER])
    path.write_text(capsys.readouterr().out)
    assert run_command(["manifest", "--check", str(path), "--kubernetes-version", "1.31"]) == 0


@pytest.mark.parametrize("words", [[], ["quick/ddp-hold", "--check", "pyproject.toml"]])
def test_a_scenario_or_a_file_and_not_both(words):
    assert run_command(["manifest", *words]) == 64
