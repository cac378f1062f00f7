#!/usr/bin/env -S python3 -B
"""Runs scenes of torch.distributed over Gloo and over Kolo. Results must be equal on every rank, and no scene may hang.

    differential_test.py LIBRARY [long=1] [SCENE...]

Results are equal bit by bit if sums do not depend on the order, otherwise within a bound that the scene derives. The
short form runs each scene on one number of ranks. `long=1` runs it on all of its numbers, and makes and destroys 2,000
groups. Then it runs the ends: separate jobs, in which some processes leave by an exception. To add a scene, write a
function in differential_scenes.py.
"""

import contextlib
import os
import queue
import signal
import sys
import tempfile
import threading
import time

import support
import torch_support

torch_support.enter_python_with_torch(is_short="long=1" not in sys.argv)

IS_LONG = "long=1" in sys.argv
CHOSEN = [argument for argument in sys.argv[2:] if "=" not in argument]
import torch  # noqa: E402  (a Python that has it)

import differential_ends  # noqa: E402
import differential_scenes  # noqa: E402, F401
import differential_training_scenes  # noqa: E402, F401
import scene_jobs  # noqa: E402
from differential_table import SCENES, Bounded  # noqa: E402
from scene_jobs import HERE, job  # noqa: E402

PATIENCE = 600 if IS_LONG else 90
"""Seconds after which a scene counts as hung; far more than any scene takes on a busy machine."""

SETTINGS = scene_jobs.SETTINGS | {"mismatch_after": 500}


# --- running ----------------------------------------------------------------------------------------


class Failure(Exception):
    """The error of a scene."""


def listen(rank, lines):
    """Passes the lines of a rank's output, and its end, to `lines`."""
    for line in rank.process.stdout:
        lines.put((rank.rank, line.split()))
    lines.put((rank.rank, ["ended"]))


def run_scenes(backend, ranks, names, folder):
    """Runs the scenes in one job until one fails. Returns the scenes that have ended on all ranks, and the error of the
    failed scene, or None."""
    os.environ["PYTHONPATH"] = str(support.PACKAGE)
    os.environ["DIFFERENTIAL_GROUPS"] = "2000" if IS_LONG else "300"
    os.environ["OMP_NUM_THREADS"] = "1"
    arguments = ["-B", str(HERE / "differential_rank.py"), backend, folder, *names]
    with job.started(arguments, [ranks], **SETTINGS) as processes:
        lines = queue.Queue()
        for process in processes:
            threading.Thread(target=listen, args=(process, lines), daemon=True).start()
        left = {name: ranks for name in [*names, "over"]}
        end = time.monotonic() + PATIENCE
        while left:
            name = next(iter(left))
            try:
                rank, words = lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                for process in processes:
                    process.signal(signal.SIGABRT)
                    process.process.wait()
                stacks = "".join(process.errors()[-4000:] for process in processes)
                return done(names, left), f"no end within {PATIENCE} s\n{stacks}"
            if words[:1] == ["end"] or words == ["over"]:
                left[words[-1]] -= 1
                if left[words[-1]] == 0:
                    del left[words[-1]]
                    end = time.monotonic() + PATIENCE
            elif words[:1] == ["error"] or (words == ["ended"] and left):
                if words == ["ended"] and "over" in left and left["over"] < ranks and list(left) == ["over"]:
                    continue  # It ended first.
                errors = processes[rank].errors()[-3000:]
                return done(names, left), f"rank {rank} failed\n{errors}"
    return names, None


def done(names, left):
    return [name for name in names if name not in left]


def run_all(backend, ranks, names, folder):
    """Runs all scenes; after each failed scene it starts a new job. Returns failures by scene."""
    failures = {}
    left = list(names)
    while left:
        ended, failure = run_scenes(backend, ranks, left, folder)
        left = left[len(ended) :]
        if failure is not None:
            failures[left.pop(0) if left else names[-1]] = f"over {backend}: {failure}"
    return failures


# --- comparing --------------------------------------------------------------------------------------


def compare(ours, theirs, place):
    """Raises Failure, which names the position in the result, if results differ."""
    if type(ours) is not type(theirs):
        raise Failure(f"{place} is of {type(ours).__name__}, over Gloo of {type(theirs).__name__}")
    if isinstance(ours, Bounded):
        differences = (ours.value.double() - theirs.value.double()).abs() - ours.bound
        if not (differences <= 0).all():  # true for NaN too
            raise Failure(f"{place} differs by {differences.max():.3g} more than the bound")
    elif isinstance(ours, torch.Tensor):
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            raise Failure(f"{place}: {ours.dtype} {list(ours.shape)}, over Gloo {theirs.dtype} {list(theirs.shape)}")
        if not torch.equal(ours, theirs):
            where = (ours != theirs).flatten().nonzero()
            raise Failure(f"{place} differs in {len(where)} of {ours.numel()} elements: {ours}, over Gloo {theirs}")
    elif isinstance(ours, dict):
        if list(ours) != list(theirs):
            raise Failure(f"{place} has {list(ours)}, over Gloo {list(theirs)}")
        for key in ours:
            compare(ours[key], theirs[key], f"{place}[{key!r}]")
    elif isinstance(ours, (list, tuple)):
        if len(ours) != len(theirs):
            raise Failure(f"{place} has {len(ours)} items, over Gloo {len(theirs)}")
        for index, pair in enumerate(zip(ours, theirs)):
            compare(*pair, f"{place}[{index}]")
    elif ours != theirs:
        raise Failure(f"{place} is {ours!r}, over Gloo {theirs!r}")


def compare_scene(name, ranks, ours, theirs):
    for rank in range(ranks):
        both = [torch.load(os.path.join(folder, f"{name}.{rank}"), weights_only=False) for folder in (ours, theirs)]
        compare(*both, f"the result of rank {rank}")


def check_scenes(ranks, scenes):
    """Prints a line for each scene. Returns the number of failures."""
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        both = [scene.name for scene in scenes if not scene.alone]
        failures = run_all("gloo", ranks, both, theirs) if both else {}
        failures |= run_all("kolo", ranks, [scene.name for scene in scenes], ours)
        for scene in scenes:
            failure = failures.get(scene.name)
            if failure is None and not scene.alone:
                try:
                    compare_scene(scene.name, ranks, ours, theirs)
                except Failure as error:
                    failures[scene.name] = failure = str(error)
            report(f"{scene.name}, {ranks} ranks", failure)
    return len(failures)


def report(what, failure):
    print(f"FAILED {what}: {failure}" if failure else f"ok {what}", flush=True)


# --- ends -------------------------------------------------------------------------------------------


def check_ends(names):
    """Runs jobs that a rank leaves while other ranks wait. Returns the number of failures."""
    failed = 0
    for name in names:
        end = differential_ends.ENDS[name]
        command = ["-B", str(HERE / "differential_ends.py"), name]
        outcome = job.run(command, [end.ranks], **SETTINGS)
        failure = None
        if outcome.statuses != list(end.statuses):
            failure = f"statuses {outcome.statuses}, not {list(end.statuses)}\n{outcome}"
        missing = [text for text in end.texts if text not in str(outcome)]
        if missing and failure is None:
            failure = f"nobody says {missing}\n{outcome}"
        report(f"{name}, {end.ranks} ranks", failure)
        failed += failure is not None
    return failed


def main():
    unknown = [name for name in CHOSEN if name not in SCENES and name not in differential_ends.ENDS]
    if unknown:
        sys.exit(f"no scene is called {', '.join(unknown)}")
    chosen = [scene for scene in SCENES.values() if not CHOSEN or scene.name in CHOSEN]
    failed = 0
    for ranks in (2, 3, 4):
        scenes = [scene for scene in chosen if ranks in (scene.ranks if IS_LONG else scene.ranks[:1])]
        failed += check_scenes(ranks, scenes) if scenes else 0
    ends = [name for name in differential_ends.ENDS if not CHOSEN or name in CHOSEN]
    with contextlib.suppress(KeyError):
        del os.environ["DIFFERENTIAL_GROUPS"]
    failed += check_ends(ends)
    print(f"{failed} of {len(chosen)} scenes and {len(ends)} ends failed" if failed else
          f"all {len(chosen)} scenes and {len(ends)} ends have the same results")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
