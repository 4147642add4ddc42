"""docs/cases.md and the tests named by case tell the same."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROWS = re.findall(r"^\| (C\d\d) \| (.+?) \| (.+?) \|$", (ROOT / "docs" / "cases.md").read_text(encoding="utf-8"), re.MULTILINE)
STATES = ("tested", "does not apply", "open")


def files_by_case() -> dict[str, set[str]]:
    """The files that hold tests named by a case, by case."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for name in re.findall(r"^def test((?:_C\d\d)+)_", path.read_text(encoding="utf-8"), re.MULTILINE):
            for case in name.split("_")[1:]:
                found.setdefault(case, set()).add(path.relative_to(ROOT / "tests").as_posix())
    return found


def test_every_case_is_listed_once_and_has_a_state():
    cases = [case for case, _, _ in ROWS]
    assert len(cases) == len(set(cases)) > 50
    assert all(state.startswith(STATES) for _, _, state in ROWS)


def test_the_table_names_the_files_that_test_a_case():
    stated = {case: set(re.findall(r"`([^`]+)`", state)) for case, _, state in ROWS if state.startswith("tested")}
    assert stated == files_by_case()


def test_what_is_not_tested_says_why():
    assert all(len(state.split(": ", 1)[1]) > 10 for _, _, state in ROWS if not state.startswith("tested"))
