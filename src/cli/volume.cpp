#include "corbd/v1/admin.grpc.pb.h"
#include "question.hpp"
#include "view.hpp"

namespace corbd::cli {
namespace {

struct ShowVolume final : Question<v1::Admin> {
  static constexpr const char* kName = "volume";
  static constexpr const char* kDescription = "Show one volume and its latest state changes";

  explicit ShowVolume(CLI::App& command) : Question(command) {
    command.add_option("id", id, "Volume ID")->required();
    add_output(command, {"text", "json"});
    add_timeout(command, timeout_s);
  }
  int ask(Agent& agent) override {
    v1::GetVolumeRequest request;
    request.set_id(id);
    v1::GetVolumeResponse response;
    if (!answered(agent, &Stub::GetVolume, request, response)) return kRefused;
    say(rpc::json_of(response), volume_page(response, now_ms()));
    return 0;
  }

  std::string id;
};

}  // namespace

void add_volume(CLI::App& app, Chosen& chosen) { add<ShowVolume>(app, chosen); }

}  // namespace corbd::cli
