"""Finds a Python with JAX for the tests of `kolo.jax`."""

import os
import pathlib
import subprocess
import sys

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "kolo" / "jax"


def _has_jax(python):
    return os.path.exists(python) and subprocess.run([python, "-c", "import jax"], capture_output=True).returncode == 0


def _install(python):
    """Installs JAX for CPUs (0.6 GB) into a folder of its own. Ends with 77 and the reason where that fails."""
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "0", "jax"]
    for command in ([sys.executable, "-m", "venv", "--clear", str(CACHE)], pip):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines() or [f"{command[2]} failed"]
            print(f"skipped: no Python with JAX was found, and none can be made: {lines[-1]}")
            sys.exit(77)


def enter_python_with_jax(may_install):
    """Goes on in a Python that has JAX: that of KOLO_JAX_PYTHON, this one, or one in a cache, where it may be
    installed. Ends with 77 and the reason without one."""
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
