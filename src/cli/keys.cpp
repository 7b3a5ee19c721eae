#include "corbd/v1/admin.grpc.pb.h"
#include "key_uses.hpp"
#include "question.hpp"

namespace corbd::cli {
namespace {

struct Keys final : Question<v1::Admin> {
  static constexpr const char* kName = "keys";
  static constexpr const char* kDescription =
      "Show the Ceph users and keys of this node's volumes, and the volumes that are to have others. With a user, say "
      "whether a volume or device of this node needs it";

  explicit Keys(CLI::App& command) : Question(command) {
    command.add_option("user", user, "Ceph user: client.ID")->each([this](const std::string&) { named = true; });
    command.footer(
        exit_codes("0 each volume has the user and key that it is to have, or nothing here needs the named user, 1 "
                   "otherwise, or the call failed, 3 no agent answers"));
    add_output(command, {"table", "json"});
    add_timeout(command, timeout_s);
  }
  int ask(Agent& agent) override {
    const std::string name = user.starts_with("client.") ? user.substr(std::string("client.").size()) : user;
    if (named && name.empty()) return tell("the Ceph user is empty: write client.ID");
    v1::ListVolumesResponse response;
    if (!answered(agent, &Stub::ListVolumes, v1::ListVolumesRequest(), response)) return kRefused;
    const KeyUses uses = key_uses(response);
    if (name.empty()) {
      const int shown = say(keys_document(uses), keys_table(uses));
      return uses.moving.empty() && uses.unknown.empty() ? shown : kRefused;
    }
    const UserVerdict verdict = judge_user(uses, name);
    const int shown = say({{"user", name}, {"needed", verdict.needed}, {"text", verdict.text}}, verdict.text + "\n");
    return verdict.needed ? kRefused : shown;
  }

  std::string user;
  bool named = false;  ///< also if the user is ""
};

}  // namespace

void add_keys(CLI::App& app, Chosen& chosen) { add<Keys>(app, chosen); }

}  // namespace corbd::cli
