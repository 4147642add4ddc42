"""docs/contract.md names tests that there are, and a library that nobody here knows can be held to it."""

import ast
import re
from pathlib import Path

pytest_plugins = ["pytester"]
HERE = Path(__file__).parent
ROWS = re.findall(r"^\| (.+?) \| (.+?) \| (`.+`) \|$", (HERE.parent / "docs" / "contract.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_rule_names_tests_that_there_are():
    assert len({rule for rule, _, _ in ROWS}) == len(ROWS) >= 12
    for rule, _, tests in ROWS:
        named = re.findall(r"`(\w+\.py)::(\w+)`", tests)
        assert named, rule
        for file, name in named:
            functions = {
                node.name for node in ast.parse((HERE / file).read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)
            }
            assert name in functions, (rule, file, name)


def test_a_module_of_any_name_can_be_asked_for(pytester):
    """Here one that is array-api-strict but for its name, and the same with a wrong exp."""
    same = "from array_api_strict import *\nfrom array_api_strict import __array_namespace_info__\n"
    pytester.makepyfile(other=same, wrong=f"import array_api_strict\n\narray_api_strict.exp = array_api_strict.cos\n{same}")
    pytester.syspathinsert()
    chosen = ("-m", "contract", "-k", "test_softmax", "-p", "no:cacheprovider", "-c", HERE.parent / "pyproject.toml", HERE / "test_ops.py")
    assert pytester.runpytest_subprocess("--namespace", "other", *chosen).ret == 0
    failed = pytester.runpytest_subprocess("--namespace", "wrong", *chosen)
    failed.assert_outcomes(failed=1)
