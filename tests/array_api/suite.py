"""Runs the official suite of the Array API standard (data-apis/array-api-tests) on TVM's namespace.

    python tests/array_api/suite.py --suite FOLDER [arguments of pytest]

Without a folder the suite is cloned, with the standard that it reads. It is copied before it is run: two of its lines
cannot take a namespace that has no complex numbers. Every test that is left out stands in skips.txt with its reason.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = "https://github.com/data-apis/array-api-tests"
STANDARD = "array-api"  # the suite's submodule
HERE = Path(__file__).parent
NOT_CLONED = 3  # the exit code where there is no network: nothing was found wrong
NAMESPACE = "xformer.frontends.tvm.namespace"
SETTINGS = {
    "ARRAY_API_TESTS_MODULE": NAMESPACE,
    "ARRAY_API_TESTS_VERSION": "2024.12",
    "ARRAY_API_TESTS_SKIP_DTYPES": "complex64,complex128",
    "ARRAY_API_TESTS_MAX_ARRAY_SIZE": "64",
}
OPTIONS = ("--disable-deadline", "--derandomize", "-p", "no:cacheprovider", "-q", "--tb=short", "-rf")
CHANGES = {  # file: what it says, and what it says once no dtype is complex
    "array_api_tests/dtype_helpers.py": (
        "for dt in complex_dtypes], key=lambda x: x[1]\n",
        "for dt in complex_dtypes], key=lambda x: x[1], default=(None, 0)\n",
    ),
    "array_api_tests/test_signatures.py": ("dh.dtype_to_name[dh.widest_complex_dtype]", '"complex128"'),
}


def main() -> int:
    """Run it; the number of passes goes to standard output. Returns pytest's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", type=Path, help="a checkout of the suite, with its submodule; default: a clone")
    parser.add_argument("--max-examples", type=int, default=20, help="examples of each property")
    given, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            suite = prepared(given.suite, Path(folder) / "suite")
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            print(f"the suite of the Array API was not run: {error}; a checkout of it can be given: --suite FOLDER", file=sys.stderr)
            return NOT_CLONED if isinstance(error, subprocess.CalledProcessError) else 1
        return run(suite, given.max_examples, rest)


def prepared(source: Path | None, folder: Path) -> Path:
    """A copy of the suite with its changes. Raises ValueError, OSError or CalledProcessError for one that cannot be had."""
    if source is None:
        subprocess.run(["git", "clone", "--depth", "1", "--recurse-submodules", "--shallow-submodules", SOURCE, folder], check=True)
    else:
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns(".git", "__pycache__"))
    if not any((folder / STANDARD).glob("spec")) and not any((folder / STANDARD).glob("src")):
        raise ValueError(f"{source or SOURCE} has no {STANDARD}: git submodule update --init")
    for name, (before, after) in CHANGES.items():
        text = (folder / name).read_text(encoding="utf-8")
        if before not in text:
            raise ValueError(f"{name} of {source or SOURCE} does not say {before.strip()!r}: another version than this was written for?")
        (folder / name).write_text(text.replace(before, after), encoding="utf-8")
    return folder


def run(suite: Path, examples: int, rest: list[str]) -> int:
    """pytest on the suite, with the skips of this folder and of complex numbers."""
    report = suite / "report.json"
    arguments = [f"--max-examples={examples}", f"--skips-file={HERE / 'skips.txt'}", "--json-report", f"--json-report-file={report}", *rest]
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-p", "complex_numbers", *OPTIONS, *arguments, "array_api_tests"]
    code = subprocess.run(command, cwd=suite, env=os.environ | SETTINGS | {"PYTHONPATH": path}, check=False).returncode
    counts = json.loads(report.read_text(encoding="utf-8"))["summary"] if report.exists() else {}
    lines = sum(line.startswith("array_api_tests") for line in (HERE / "skips.txt").read_text(encoding="utf-8").splitlines())
    found = ", ".join(f"{counts.get(name, 0)} {name}" for name in ("passed", "failed", "skipped"))
    print(f"Array API {SETTINGS['ARRAY_API_TESTS_VERSION']} on {NAMESPACE}: {found} of {counts.get('total', 0)}; {lines} lines of skips")
    return code


if __name__ == "__main__":
    sys.exit(main())
