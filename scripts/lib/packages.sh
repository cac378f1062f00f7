# The Debian and Ubuntu packages needed to build this project, and functions that install them.
# Sourced.
# shellcheck shell=bash

# Packages to build scripts/train's program.
train_packages=(
  g++ cmake ninja-build ccache pkg-config
  libhwloc-dev                      # topology
  libhwy-dev                        # SIMD kernels
  libdnnl-dev ocl-icd-opencl-dev    # the trainer's CPU math, whose CMake package requires OpenCL
  libisal-dev libtomlplusplus-dev   # checksums of event files; configuration
  libpcre2-dev                      # splits texts into pieces for byte pairs
  libcli11-dev nlohmann-json3-dev libfmt-dev libspdlog-dev libxxhash-dev zlib1g-dev
)

build_packages=(
  "${train_packages[@]}"
  build-essential git python3
  libopenmpi-dev openmpi-bin        # rendezvous and launch
  libucx-dev                        # transport between nodes
  libgtest-dev libgmock-dev libbenchmark-dev
  libgloo-dev                       # measured beside Kolo
)

# The output of clang-format and clang-tidy differs between versions, so they are pinned.
test_packages=(
  clang libclang-rt-dev clang-format-14 clang-tidy-14
  iproute2                          # scripts/cluster
  strace gnuplot-nox
  python3-numpy                     # arrays in the tests of python/
)

# Packages for the target `docs`.
docs_packages=(doxygen)

# Prints the given packages that are not installed.
missing_packages() {
  local installed package
  installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null |
    sed -n 's/^ii //p') || true
  for package in "$@"; do
    grep -qxF -- "$package" <<<"$installed" || echo "$package"
  done
}

# Prints the prefix that runs a command as root; fails if that needs a password and nobody can type
# it.
root_prefix() {
  if ((EUID == 0)); then return 0; fi
  command -v sudo >/dev/null || return 1
  if [[ -t 0 ]]; then echo sudo; return 0; fi
  sudo -n true 2>/dev/null && echo "sudo -n"
}

# install_packages PACKAGE...: installs the packages that are missing.
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    warn "no dpkg on this system, so these Debian packages (or their equivalents) are assumed to be installed: $*"
    return 0
  fi
  local missing prefix
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then return 0; fi
  prefix=$(root_prefix) || die "these packages are missing, and without root or sudo they cannot be" \
    "installed; ask an administrator for: apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  # shellcheck disable=SC2086  # the prefix is a command with its options, or nothing
  {
    $prefix env DEBIAN_FRONTEND=noninteractive apt-get update -q ||
      warn "apt-get update failed; trying with the present package lists"
    $prefix env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
      -o DPkg::Lock::Timeout=300 "${missing[@]}" </dev/null ||
      die "apt-get could not install: ${missing[*]}"
  }
}
