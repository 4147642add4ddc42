"""The shapes in the signatures hold: the same tests, with every annotation checked at run time."""

import subprocess
import sys
from pathlib import Path

CHECKED = "xformer.blocks,xformer.cache,xformer.models,xformer.ops,xformer.precision"


def test_blocks_and_models_keep_to_their_signatures():
    command = [
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--jaxtyping-packages={CHECKED},beartype.beartype",
        "tests/test_blocks.py",
        "tests/test_generate.py",
    ]
    done = subprocess.run([sys.executable, "-m", *command], cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout


def test_a_wrong_shape_is_caught():
    code = """
import numpy as np
from jaxtyping import TypeCheckError, install_import_hook
with install_import_hook("xformer", "beartype.beartype"):
    from xformer import blocks
try:
    blocks.split(np.zeros((2, 64), np.float32), 4)
except TypeCheckError as error:
    print("caught", "b t d" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "caught True"
