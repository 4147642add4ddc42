"""The program `xformer`: starts the commands when what they need is installed, and says what to install when not."""

import io
import signal
import sys
from types import FrameType
from typing import NoReturn

NEEDED = ("typer", "rich", "packaging")


def main() -> NoReturn:
    """Run the command that the process's arguments name, and exit with its code: 0, or 2 for anything the user can mend."""
    signal.signal(signal.SIGTERM, _terminated)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a model may write what the terminal's encoding has not
    try:
        from xformer.cli.commands import app
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in NEEDED:
            raise
        print(f"error: the command line needs `pip install {' '.join(NEEDED)}` ({error})", file=sys.stderr)
        sys.exit(2)
    sys.exit(app(prog_name="xformer"))


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    """End as an exception does, so that files which are half written are removed."""
    sys.exit(128 + number)
