#include "caller.hpp"
#include "corbd/agent/program.hpp"
#include "corbd/rpc/json.hpp"
#include "corbd/v1/admin.pb.h"
#include "subcommand.hpp"
#include "view.hpp"

namespace corbd::cli {
namespace {

/// Calls no agent, because an agent may have another version; `corbd doctor` reports that.
struct ShowVersion final : Subcommand {
  static constexpr const char* kName = "version";
  static constexpr const char* kDescription =
      "Show the versions of this program, its Ceph libraries, and the formats that decide whether two agents are "
      "compatible";

  explicit ShowVersion(CLI::App& command) {
    command.add_option("-o,--output", output, "Output format: text or json")
        ->check(CLI::IsMember({"text", "json"}))
        ->capture_default_str();
    command.footer(exit_codes("0 done, 1 could not be printed"));
  }
  int run() override {
    const auto own = agent::program();
    return (output == "json" ? print(rpc::json_of(own)) : print(program_view(own))) ? 0 : 1;
  }

  std::string output = "text";
};

}  // namespace

void add_version(CLI::App& app, Chosen& chosen) { add<ShowVersion>(app, chosen); }

}  // namespace corbd::cli
