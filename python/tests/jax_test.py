#!/usr/bin/env -S python3 -B
"""Jobs of JAX processes: the scenes of jax_scenes.py.

    jax_test.py LIBRARY [install=1]

If no Python with JAX is found, `install=1` makes one (0.6 GB, in a cache); without `install=1` the test is skipped.
"""

import os
import pathlib
import subprocess
import sys

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "kolo" / "jax"


def _has_jax(python):
    return os.path.exists(python) and subprocess.run([python, "-c", "import jax"], capture_output=True).returncode == 0


def _install(python):
    """Installs JAX for CPUs (0.6 GB) into a separate folder. Ends with 77 and the reason if that fails."""
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "0", "jax"]
    for command in ([sys.executable, "-m", "venv", "--clear", str(CACHE)], pip):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines() or [f"{command[2]} failed"]
            print(f"skipped: no Python with JAX was found, and none can be made: {lines[-1]}")
            sys.exit(77)


def enter_python_with_jax(may_install):
    """Restarts in a Python with JAX: that of KOLO_JAX_PYTHON, this one, or one in a cache, where it may be installed.
    Ends with 77 and the reason without one."""
    if os.environ.get("KOLO_JAX_PYTHON") == sys.executable:
        return
    cached = str(CACHE / "bin" / "python")
    python = next(filter(_has_jax, (os.environ.get("KOLO_JAX_PYTHON", ""), sys.executable, cached)), None)
    if python is None:
        if not may_install:
            print("skipped: no Python with JAX was found; KOLO_JAX_PYTHON names one, scripts/torch-check makes one")
            sys.exit(77)
        _install(cached)
        python = cached
    os.environ["KOLO_JAX_PYTHON"] = python
    os.execv(python, [python, "-B", *sys.argv])


enter_python_with_jax(may_install="install=1" in sys.argv)
sys.argv = [each for each in sys.argv if each != "install=1"]

from scene_jobs import Scenes, job  # noqa: E402  (a Python that has JAX)

# Each rank simulates two devices on the CPU, even if there are others.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"


class JaxScenes(Scenes):
    file = "jax_scenes.py"

    def test_trees(self):
        self.check("trees,memory,refused,jitted_trees", nodes=[3])

    def test_inside_jit(self):
        self.check("jitted_order,jitted_gradients")

    def test_a_lost_rank_inside_jit(self):
        self.check_lost("jitted_lost", survivor=1)


if __name__ == "__main__":
    job.main()
