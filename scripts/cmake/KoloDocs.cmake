# The target `docs`: the API reference and the pages of docs/ as HTML in BUILD/docs/api, made by
# Doxygen. It fails if a public name has no comment.

find_package(Doxygen 1.9.1 QUIET)

if(NOT DOXYGEN_FOUND)
  add_custom_target(docs
    COMMAND ${CMAKE_COMMAND} -E echo
      "docs: Doxygen 1.9.1 or later is missing; run scripts/setup --with-docs and configure again"
    COMMAND ${CMAKE_COMMAND} -E false
    VERBATIM)
  return()
endif()

set(DOXYGEN_PROJECT_NAME Kolo)
set(DOXYGEN_PROJECT_BRIEF ${PROJECT_DESCRIPTION})
set(DOXYGEN_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/docs)
set(DOXYGEN_HTML_OUTPUT api)
set(DOXYGEN_GENERATE_LATEX NO)
set(DOXYGEN_HAVE_DOT NO)
set(DOXYGEN_QUIET YES)
set(DOXYGEN_WARN_AS_ERROR FAIL_ON_WARNINGS)
set(DOXYGEN_JAVADOC_AUTOBRIEF YES)
set(DOXYGEN_BUILTIN_STL_SUPPORT YES)
set(DOXYGEN_FULL_PATH_NAMES YES)
set(DOXYGEN_STRIP_FROM_PATH ${PROJECT_SOURCE_DIR})
set(DOXYGEN_STRIP_FROM_INC_PATH ${PROJECT_SOURCE_DIR}/runtime/include ${PROJECT_SOURCE_DIR})
set(DOXYGEN_USE_MDFILE_AS_MAINPAGE ${PROJECT_SOURCE_DIR}/README.md)
set(DOXYGEN_MARKDOWN_SUPPORT YES)
# Words like "first/second" or "Plan" are prose, not links.
set(DOXYGEN_AUTOLINK_SUPPORT NO)
set(DOXYGEN_IMAGE_PATH ${PROJECT_SOURCE_DIR}/benchmarks/results ${PROJECT_SOURCE_DIR}/docs)
# The pages link to sources and to folders' README pages, which are not part of the reference.
set(DOXYGEN_FILTER_PATTERNS "*.md=${PROJECT_SOURCE_DIR}/scripts/lib/doxygen-links")

doxygen_add_docs(docs
  README.md CONTRIBUTING.md CHANGELOG.md docs runtime/include/kolo/kolo.h runtime/include/kolo/torch.h ${public_headers}
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
  COMMENT "API reference: ${PROJECT_BINARY_DIR}/docs/api/index.html")
