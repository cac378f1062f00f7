"""Finds a Python with torch for the tests of `kolo.torch`."""

import os
import pathlib
import subprocess
import sys

# The default wheel of torch needs CUDA's libraries, even without a GPU.
CUDA = pathlib.Path("/usr/local/cuda/targets/x86_64-linux/lib")
HOME_CACHE = pathlib.Path.home() / ".cache"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or HOME_CACHE)


def enter_python_with_torch(is_short=False):
    """Restarts the test in a Python with torch 2.7 or later: this one, the one that KOLO_TORCH_PYTHON names, or the one
    that scripts/torch-check installs. Without one, prints the reason and exits with 77.

    CTest gives tests a separate cache. A short test also looks in the user's cache, so it runs if scripts/torch-check
    has run; only that script runs long tests.
    """
    if os.environ.get("KOLO_TORCH_PYTHON") == sys.executable:
        return
    if CUDA.exists():
        os.environ["LD_LIBRARY_PATH"] = f"{CUDA}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    script = "import torch; v = torch.__version__.split('.'); assert (int(v[0]), int(v[1])) >= (2, 7)"
    caches = (CACHE, HOME_CACHE) if is_short else (CACHE,)
    installed = [str(cache / "kolo" / "torch" / "bin" / "python") for cache in caches]
    for python in (os.environ.get("KOLO_TORCH_PYTHON"), *installed, sys.executable):
        if python and os.path.exists(python) and subprocess.run([python, "-c", script], capture_output=True).returncode == 0:
            os.environ["KOLO_TORCH_PYTHON"] = python
            os.execv(python, [python, "-B", *sys.argv])
    print("skipped: no Python with torch 2.7 or later was found; scripts/torch-check installs one")
    sys.exit(77)
