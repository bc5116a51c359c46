"""What runs on the code host: nothing that others exchange, and no early release."""

import pathlib
import re

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[1] / ".github"
WORKFLOWS = {path.name: path for path in sorted((ROOT / "workflows").glob("*.y*ml"))}
_PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40}  # v\d+(\.\d+)+")
# Jobs of the release that publish something.
PUBLISHING = ("release", "index", "pages")


def jobs(name):
    return yaml.safe_load(WORKFLOWS[name].read_text("utf-8"))["jobs"]


def upstream(name, job):
    """The jobs that must have succeeded before a job begins."""
    needs = jobs(name)[job].get("needs", [])
    needs = [needs] if isinstance(needs, str) else needs
    return {*needs, *(each for need in needs for each in upstream(name, need))}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_by_their_commits_and_tell_the_tag(name):
    text = WORKFLOWS[name].read_text("utf-8")
    used = re.findall(r"^ *(?:- )?uses: *(.*)$", text, re.MULTILINE)
    assert used
    for action in used:
        assert action.startswith("./") or _PINNED.fullmatch(action), action


def test_of_an_action_there_is_one_version():
    text = "".join(path.read_text("utf-8") for path in WORKFLOWS.values())
    used = set(re.findall(r"uses: *([\w./-]+)@(.*)", text))
    assert len(used) == len({name for name, _ in used}) > 5


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_checkout_leaves_its_credentials(name):
    for job in jobs(name).values():
        for step in job.get("steps", []):
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("name", WORKFLOWS)
def test_rights_are_given_job_by_job(name):
    workflow = yaml.safe_load(WORKFLOWS[name].read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    for job, settings in workflow["jobs"].items():
        may_write = "write" in settings.get("permissions", {}).values()
        assert may_write == (name == "release.yml" and job in PUBLISHING)


@pytest.mark.parametrize("job", PUBLISHING)
def test_nothing_is_published_without_green_tests_and_a_tag_on_main(job):
    assert {"tag", "checks", "tests", "build", "try"} <= upstream("release.yml", job)
    (run,) = [step["run"] for step in jobs("release.yml")["tag"]["steps"][1:]]
    assert "merge-base --is-ancestor" in run
    assert "origin/main" in run


def test_the_wheel_is_uploaded_before_anything_is_installed_beside_it():
    steps = jobs("release.yml")["build"]["steps"]
    assert steps[-1]["uses"].startswith("actions/upload-artifact@")
    runs = [step["run"] for step in steps if "run" in step]
    assert runs[0].endswith(" wheel")
    assert not [run for run in runs[1:] if "make" in run or "pip" in run]


def test_new_releases_of_actions_are_proposed():
    updates = yaml.safe_load((ROOT / "dependabot.yml").read_text("utf-8"))["updates"]
    assert [each["package-ecosystem"] for each in updates] == ["github-actions"]
