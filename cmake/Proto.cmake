# Generated gRPC code: one library, without our warnings.
file(GLOB_RECURSE protos CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/proto/*.proto)
set(out ${CMAKE_BINARY_DIR}/proto)
file(MAKE_DIRECTORY ${out})
set(generated)
foreach(proto ${protos})
  file(RELATIVE_PATH relative ${CMAKE_SOURCE_DIR}/proto ${proto})
  string(REGEX REPLACE "\\.proto$" "" stem ${relative})
  set(files ${out}/${stem}.pb.cc ${out}/${stem}.grpc.pb.cc)
  add_custom_command(OUTPUT ${files} ${out}/${stem}.pb.h ${out}/${stem}.grpc.pb.h
    COMMAND protobuf::protoc -I ${CMAKE_SOURCE_DIR}/proto --cpp_out=${out}
            --grpc_out=${out} --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} ${relative}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}/proto DEPENDS ${proto} VERBATIM)
  list(APPEND generated ${files})
endforeach()
add_library(corbd_proto STATIC ${generated})
target_include_directories(corbd_proto SYSTEM PUBLIC ${out})
target_link_libraries(corbd_proto PUBLIC protobuf::libprotobuf PkgConfig::grpc)
target_compile_options(corbd_proto PRIVATE -g0)
