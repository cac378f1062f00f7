# Builds the libraries inside the wheel from the sources of Debian's packages, for an older C
# library. Sourced.
# shellcheck shell=bash

# The C library of RHEL 8; those of Debian 11, RHEL 9 and Amazon Linux 2023 are newer.
glibc=2.28

pool=http://deb.debian.org/debian/pool/main
# Name, package, SHA-256 and licence file (copied to python/licenses/). nlohmann-json and CLI11 are
# header-only.
wheel_libraries=(
  "fmt f/fmtlib/fmtlib_9.1.0+ds1.orig.tar.gz 84ce1c2d0be3a9863935137969dcec6970125caac032f82474640bfc81463583 LICENSE.rst"
  "spdlog s/spdlog/spdlog_1.10.0+ds.orig.tar.xz 620ca6842b5c21014470bd42eb4716024674214fb973b5ffa3aaea33310ad327 LICENSE"
  "highway h/highway/highway_1.2.0.orig.tar.gz 7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343 LICENSE"
  "xxhash x/xxhash/xxhash_0.8.1.orig.tar.gz 3bb6b7d6f30c591dd65aaaff1c8b7a5b94d81687998ca9400082c739a690436c LICENSE"
  "hwloc h/hwloc/hwloc_2.9.0.orig.tar.bz2 b3fb1a43a14d8fbcd8e976de5ede2ea7ce1d768ed173adb33c7ceaaf098dc970 COPYING"
  "nlohmann-json n/nlohmann-json3/nlohmann-json3_3.11.2.orig.tar.gz d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273 LICENSE.MIT"
  "cli11 c/cli11/cli11_2.1.2+ds.orig.tar.xz 8143d20b688e98ccce8e24562d3b68e5f47c12e896c42c7ca8553dbde5bed55d LICENSE"
)

# use_old_glibc ENVIRONMENT FOLDER: sets CC and CXX to compilers for that C library, from the Python
# package ziglang in this environment; they link their C++ library statically. GCC cannot serve,
# because its C++ library was compiled for the machine's C library.
use_old_glibc() {
  local language
  mkdir -p "$2"
  for language in cc c++; do
    # shellcheck disable=SC2016  # arguments of the script that is written
    printf '#!/bin/sh\nexec %q -m ziglang %s -target %s-linux-gnu.%s "$@"\n' \
      "$1/bin/python" $language "$(uname -m)" $glibc >"$2/$language"
    chmod +x "$2/$language"
  done
  export CC=$2/cc CXX=$2/c++
}

# make_wheel_libraries PREFIX: builds static libraries and headers in this folder.
make_wheel_libraries() {
  local prefix=$1 line name package sum license source
  if [[ -e $prefix/complete ]]; then return 0; fi
  rm -rf "$prefix"
  mkdir -p "$prefix/sources" "$prefix/include"
  for line in "${wheel_libraries[@]}"; do
    read -r name package sum license <<<"$line"
    say "compiling $name"
    source=$prefix/sources/$name
    mkdir "$source"
    curl -sSfL --retry 3 -o "$source.tar" "$pool/$package" || die "$pool/$package could not be fetched"
    sha256sum --quiet --check <<<"$sum  $source.tar" || die "$pool/$package is not the file it was"
    tar -xf "$source.tar" -C "$source" --strip-components 1
    cmp "$source/$license" "$root/python/licenses/$name.txt" || die "python/licenses/$name.txt is not the licence of $name"
    "make_$([[ $name == hwloc ]] && echo hwloc || echo with_cmake)" "$source" "$prefix" >"$source.log" 2>&1 ||
      { tail -n 30 "$source.log" >&2; die "$name could not be compiled"; }
  done
  # UCX is loaded at run time, so only its headers are needed.
  ln -s /usr/include/uc[mpst] "$prefix/include"
  touch "$prefix/complete"
}
make_with_cmake() { # SOURCE PREFIX
  local folder=$1 switches=(-DBUILD_TESTING=OFF -DFMT_TEST=OFF -DFMT_DOC=OFF -DSPDLOG_FMT_EXTERNAL=ON -DSPDLOG_BUILD_EXAMPLE=OFF
    -DHWY_ENABLE_TESTS=OFF -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_CONTRIB=OFF -DXXHASH_BUILD_XXHSUM=OFF
    -DJSON_BuildTests=OFF -DCLI11_BUILD_TESTS=OFF -DCLI11_BUILD_EXAMPLES=OFF)
  if [[ -e $1/cmake_unofficial ]]; then folder=$1/cmake_unofficial; fi
  cmake -S "$folder" -B "$1/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DBUILD_SHARED_LIBS=OFF -DCMAKE_PREFIX_PATH="$2" -DCMAKE_INSTALL_PREFIX="$2" -DCMAKE_INSTALL_LIBDIR=lib "${switches[@]}" &&
    cmake --build "$1/build" -j "$(jobs_at_once)" --target install
}
# Excludes libudev, whose licence is the LGPL, and other optional libraries of the machine.
make_hwloc() { # SOURCE PREFIX
  (cd "$1" && ./configure --prefix="$2" --enable-static --disable-shared --with-pic --disable-libudev --disable-pci \
    --disable-libxml2 --disable-cairo --disable-opencl --disable-cuda --disable-nvml --disable-rsmi --disable-levelzero \
    --disable-gl --disable-plugin-dlopen --disable-plugin-ltdl &&
    make -C include install && make -j"$(jobs_at_once)" -C hwloc install && cp hwloc.pc "$2/lib/pkgconfig")
}
