# scripts/release says both. An environment, and no variable of the cache, so that the next configuration of this build is no release.
set(CORBD_VERSION $ENV{CORBD_VERSION})
set(CORBD_GIT_HASH $ENV{CORBD_GIT_HASH})
if(NOT CORBD_VERSION)
  set(CORBD_VERSION ${PROJECT_VERSION})
endif()
if(NOT CORBD_GIT_HASH)
  execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} rev-parse --short=12 HEAD
    OUTPUT_VARIABLE CORBD_GIT_HASH OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT CORBD_GIT_HASH)
  set(CORBD_GIT_HASH unknown)
endif()
configure_file(${CMAKE_SOURCE_DIR}/cmake/version.hpp.in ${CMAKE_BINARY_DIR}/generated/version.hpp)
