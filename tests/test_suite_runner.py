"""The runner of the Array API's official suite changes a copy of what it knows, and refuses the rest by name."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parent / "array_api" / "suite.py"
spec = importlib.util.spec_from_file_location("suite", RUNNER)
suite = importlib.util.module_from_spec(spec)
spec.loader.exec_module(suite)


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    (folder / suite.STANDARD / "spec").mkdir(parents=True)
    for name, (before, _) in suite.CHANGES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"first\n{before}last\n")
    return folder


def test_only_the_copy_is_changed(checkout, tmp_path):
    copy = suite.prepared(checkout, tmp_path / "copy")
    for name, (before, after) in suite.CHANGES.items():
        assert before in (checkout / name).read_text()
        assert (copy / name).read_text() == f"first\n{after}last\n"


def test_what_is_no_checkout_of_it_is_refused_by_name(checkout, tmp_path):
    name = next(iter(suite.CHANGES))
    (checkout / name).write_text("something else\n")
    with pytest.raises(ValueError, match=name):
        suite.prepared(checkout, tmp_path / "copy")
    (checkout / suite.STANDARD / "spec").rmdir()
    with pytest.raises(ValueError, match="git submodule update"):
        suite.prepared(checkout, tmp_path / "other")
    ended = subprocess.run([sys.executable, RUNNER, "--suite", tmp_path / "none"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "was not run" in ended.stderr
    assert str(tmp_path / "none") in ended.stderr


def test_every_skip_has_its_reason_above_it():
    lines = (RUNNER.parent / "skips.txt").read_text().splitlines()
    blocks = [block.splitlines() for block in "\n".join(lines).split("\n\n")]
    for reason, *skipped in blocks:
        assert reason.startswith("# ")
        assert len(reason) > 20
        assert skipped
        assert all(line.startswith("array_api_tests/") for line in skipped)
    assert len(lines) < 136  # what the nearest library of its kind leaves out
