"""`python -m kolo`: commands that diagnose a problem or show what a machine can do."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

from . import __version__, _bench, _doctor
from ._errors import KoloError

_HELP = """usage: python -m kolo COMMAND

  doctor           says what this machine lacks for jobs, and sums on two ranks of it
  bench [BYTES...] times all-reduces of arrays that were written before each call; alone on two local ranks
  topo [OPTION...] ranks, hardware, link costs and the chosen algorithms; `topo --help` says more (this is kolo-topo)

Below mpirun, torchrun or srun, bench and topo look at that job: mpirun -np 4 python -m kolo topo"""


def _topo(arguments: list[str]) -> int:
    """Replaces this process by kolo-topo, which is beside the package, in the build folder of a source tree, or on
    PATH."""
    package = pathlib.Path(__file__).resolve().parent
    places = [package / "kolo-topo", package.parent.parent / "build" / "bin" / "kolo-topo"]
    program = next((str(place) for place in places if place.exists()), None) or shutil.which("kolo-topo")
    if program is None:
        print("kolo topo: no kolo-topo beside the package and none on PATH; the wheel has it, and so does a build",
              file=sys.stderr)
        return 69
    os.execv(program, ["kolo-topo", *arguments])


def main(arguments: list[str]) -> int:
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command in ("-h", "--help"):
        print(_HELP)
        return 0
    if command == "--version":
        print(f"kolo {__version__}")
        return 0
    if command == "topo":
        return _topo(rest)
    if command == "doctor" and not rest:
        return _doctor.main()
    if command == "bench" and all(size.isdecimal() for size in rest):
        return _bench.main(rest)
    print(_HELP, file=sys.stderr)
    return 64


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (KoloError, ImportError) as error:
        print(f"kolo: {error}", file=sys.stderr)
        sys.exit(error.exit_status if isinstance(error, KoloError) else 69)
