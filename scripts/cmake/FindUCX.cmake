# UCX_INCLUDE_DIR: the headers of OpenUCX, found by pkg-config or else by a search. The library is
# loaded at run time.

find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(PC_UCX QUIET ucx)
endif()

find_path(UCX_INCLUDE_DIR ucp/api/ucp.h HINTS ${PC_UCX_INCLUDE_DIRS} ENV UCX_HOME PATH_SUFFIXES include)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(UCX REQUIRED_VARS UCX_INCLUDE_DIR VERSION_VAR PC_UCX_VERSION)
mark_as_advanced(UCX_INCLUDE_DIR)
