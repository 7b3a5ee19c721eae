# Generated gRPC code: a library of what the agent serves and calls, and one of what only tests play; without our warnings.
file(GLOB_RECURSE protos CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/proto/*.proto)
set(out ${CMAKE_BINARY_DIR}/proto)
file(MAKE_DIRECTORY ${out})
set(generated)
set(generated_for_tests)
foreach(proto ${protos})
  file(RELATIVE_PATH relative ${CMAKE_SOURCE_DIR}/proto ${proto})
  string(REGEX REPLACE "\\.proto$" "" stem ${relative})
  set(files ${out}/${stem}.pb.cc ${out}/${stem}.grpc.pb.cc)
  add_custom_command(OUTPUT ${files} ${out}/${stem}.pb.h ${out}/${stem}.grpc.pb.h
    COMMAND protobuf::protoc -I ${CMAKE_SOURCE_DIR}/proto --cpp_out=${out}
            --grpc_out=${out} --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} ${relative}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}/proto DEPENDS ${proto} VERBATIM)
  if(stem STREQUAL csi/v1/controller)
    list(APPEND generated_for_tests ${files})
  else()
    list(APPEND generated ${files})
  endif()
endforeach()
add_library(corbd_proto STATIC ${generated})
target_include_directories(corbd_proto SYSTEM PUBLIC ${out})
target_link_libraries(corbd_proto PUBLIC protobuf::libprotobuf PkgConfig::grpc)
target_compile_options(corbd_proto PRIVATE -g0)
if(CORBD_BATCH)
  target_compile_options(corbd_proto PRIVATE -O1)
  # Two compilations, messages and services; their headers cost more than they do. Each generated file hides tables of the same two names.
  set_target_properties(corbd_proto PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP UNITY_BUILD_UNIQUE_ID CORBD_FILE
    UNITY_BUILD_CODE_BEFORE_INCLUDE "#define CORBD_JOIN_(a, b) a##b
#define CORBD_JOIN(a, b) CORBD_JOIN_(a, b)
#define schemas CORBD_JOIN(schemas_, CORBD_FILE)
#define file_default_instances CORBD_JOIN(file_default_instances_, CORBD_FILE)"
    UNITY_BUILD_CODE_AFTER_INCLUDE "#undef CORBD_JOIN_
#undef CORBD_JOIN
#undef schemas
#undef file_default_instances")
  foreach(file ${generated})
    string(REGEX MATCH "grpc\\.pb\\.cc$" service ${file})
    set_source_files_properties(${file} PROPERTIES UNITY_GROUP "proto${service}")
  endforeach()
endif()
add_library(corbd_proto_for_tests STATIC EXCLUDE_FROM_ALL ${generated_for_tests})
target_link_libraries(corbd_proto_for_tests PUBLIC corbd_proto)
target_compile_options(corbd_proto_for_tests PRIVATE -g0)
