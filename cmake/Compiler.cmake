if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  message(FATAL_ERROR "corbd: g++ ${CMAKE_CXX_COMPILER_VERSION} miscompiles coroutines (lost and doubled destructors around co_await); "
                      "use clang-19: cmake --preset release")
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/cmake/compile ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${CCACHE})
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

# What ccache has from one folder must not name that folder, and what a release compiles does not depend on its place.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-ffile-compilation-dir=.)
endif()

# Compile options of our own code; generated code does without the warnings.
add_library(corbd_flags INTERFACE)
target_compile_options(corbd_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror)
target_compile_definitions(corbd_flags INTERFACE
  BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_SEPARATE_COMPILATION BOOST_ALLOW_DEPRECATED_HEADERS _GNU_SOURCE)
target_include_directories(corbd_flags INTERFACE ${CMAKE_SOURCE_DIR}/include)

set(CORBD_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=")
if(CORBD_SANITIZE)
  add_compile_options(-fsanitize=${CORBD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${CORBD_SANITIZE})
  # Asio's recycling of frames would hide a use after free.
  target_compile_definitions(corbd_flags INTERFACE
    BOOST_ASIO_DISABLE_AWAITABLE_FRAME_RECYCLING BOOST_ASIO_DISABLE_SMALL_BLOCK_RECYCLING)
endif()

# The linker of the compiler's own release.
string(REGEX MATCH "^[0-9]+" lld "${CMAKE_CXX_COMPILER_VERSION}")
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(lld 19)
endif()
add_link_options(-fuse-ld=lld-${lld} LINKER:--version-script=${CMAKE_SOURCE_DIR}/cmake/hide-boost.map LINKER:--undefined-version)
