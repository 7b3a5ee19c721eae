// A command against a fake agent that listens where the command looks.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <utility>
#include <vector>

#include "admin_socket.hpp"
#include "corbd/v1/admin.grpc.pb.h"
#include "support/catch.hpp"
#include "support/command_line.hpp"
#include "support/folder.hpp"

namespace corbd::test {

inline Answer answer_from(v1::Admin::Service& agent, std::vector<std::string> words) {
  const Folder folder;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix://" + cli::admin_socket(folder.path()), grpc::InsecureServerCredentials());
  builder.RegisterService(&agent);
  const auto server = builder.BuildAndStart();
  REQUIRE(server);
  words.insert(words.end(), {"--runtime-dir", folder.path(), "--timeout", "20"});
  auto answer = answer_to(words);
  server->Shutdown();
  return answer;
}

}  // namespace corbd::test
