#include "corbd/v1/admin.grpc.pb.h"
#include "question.hpp"

namespace corbd::cli {
namespace {

struct FailVolume final : Question<v1::Admin> {
  static constexpr const char* kName = "fail";
  static constexpr const char* kDescription =
      "Give a volume up: every request to its device gets EIO until the volume is unstaged";

  explicit FailVolume(CLI::App& command) : Question(command) {
    timeout_s = 120;
    command.add_option("id", id, "Volume ID")->required();
    command.add_flag("--yes-really", yes_really, "Confirm; without this flag nothing is done");
    add_output(command, {"text", "json"});
    add_timeout(command, timeout_s);
  }
  int ask(Agent& agent) override {
    if (!yes_really) {
      return tell("nothing was done. This gives volume " + for_terminal(id) +
                  " up: every request to its device, waiting or new, gets EIO. Then its pods can end, and its mounts "
                  "can be removed. Writes that are not acknowledged yet are lost. Only unstage and stage bring the "
                  "volume back. Confirm with --yes-really");
    }
    v1::FailRequest request;
    request.set_id(id);
    v1::FailResponse response;
    if (!answered(agent, &Stub::Fail, request, response)) return kRefused;
    return say({{"volume_ids", boost::json::array{id}}, {"health", "failed"}},
               "volume " + for_terminal(id) + " is given up: every request gets EIO until it is unstaged\n");
  }

  std::string id;
  bool yes_really = false;
};

}  // namespace

void add_fail(CLI::App& app, Chosen& chosen) { add<FailVolume>(app, chosen); }

}  // namespace corbd::cli
