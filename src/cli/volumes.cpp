#include "corbd/v1/admin.grpc.pb.h"
#include "question.hpp"
#include "view.hpp"

namespace corbd::cli {
namespace {

struct ListVolumes final : Question<v1::Admin> {
  static constexpr const char* kName = "volumes";
  static constexpr const char* kDescription = "List the volumes of this node";

  explicit ListVolumes(CLI::App& command) : Question(command) {
    add_output(command, {"table", "wide", "json"});
    add_timeout(command, timeout_s);
  }
  int ask(Agent& agent) override {
    v1::ListVolumesResponse response;
    if (!answered(agent, &Stub::ListVolumes, v1::ListVolumesRequest(), response)) return kRefused;
    say(rpc::json_of(response), volumes_table(response, output == "wide", now_ms()));
    return 0;
  }
};

}  // namespace

void add_volumes(CLI::App& app, Chosen& chosen) { add<ListVolumes>(app, chosen); }

}  // namespace corbd::cli
