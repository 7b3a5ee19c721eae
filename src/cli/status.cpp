#include "corbd/v1/admin.grpc.pb.h"
#include "question.hpp"
#include "view.hpp"

namespace corbd::cli {
namespace {

struct Status final : Question<v1::Admin> {
  static constexpr const char* kName = "status";
  static constexpr const char* kDescription = "Show the state of this node's agent, its volumes and their clusters";

  explicit Status(CLI::App& command) : Question(command) {
    command.footer(exit_codes(
        "0 OK, 1 warning (it may clear by itself), 2 critical (requests wait or fail until you act), 3 no agent "
        "answers"));
    add_output(command, {"text", "json"});
    add_timeout(command, timeout_s);
  }
  int ask(Agent& agent) override {
    v1::GetStatusResponse response;
    if (!answered(agent, &Stub::GetStatus, v1::GetStatusRequest(), response)) return kCritical;
    say(rpc::json_of(response), status_screen(response));
    return exit_code(response);
  }
};

}  // namespace

void add_status(CLI::App& app, Chosen& chosen) { add<Status>(app, chosen); }

}  // namespace corbd::cli
