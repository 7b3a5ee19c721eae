#include "corbd/v1/admin.grpc.pb.h"
#include "question.hpp"

namespace corbd::cli {
namespace {

struct LogLevel final : Question<v1::Admin> {
  static constexpr const char* kName = "log-level";
  static constexpr const char* kDescription = "Set the log level of the running agent, until it ends";

  explicit LogLevel(CLI::App& command) : Question(command) {
    command.add_option("level", level, "Lowest level that is logged")
        ->required()
        ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
    add_output(command, {"text", "json"});
    add_timeout(command, timeout_s);
  }
  int ask(Agent& agent) override {
    v1::SetLogLevelRequest request;
    request.set_level(level);
    v1::SetLogLevelResponse response;
    if (!answered(agent, &Stub::SetLogLevel, request, response)) return kRefused;
    return say({{"level", level}}, "the agent logs " + level + " and above until it ends\n");
  }

  std::string level;
};

}  // namespace

void add_log_level(CLI::App& app, Chosen& chosen) { add<LogLevel>(app, chosen); }

}  // namespace corbd::cli
