#include "corbd/v1/admin.grpc.pb.h"
#include "question.hpp"
#include "view.hpp"

namespace corbd::cli {
namespace {

struct Heal final : Question<v1::Admin> {
  static constexpr const char* kName = "heal";
  static constexpr const char* kDescription = "Heal volumes now instead of at their next try";

  explicit Heal(CLI::App& command) : Question(command) {
    timeout_s = 120;
    command.add_option("id", id,
                       "Volume ID; the command waits for the end of its try [every volume without a server; the "
                       "command does not wait]");
    command
        .add_flag("--adopt", adopt,
                  "Take the volume over: if rbd-nbd serves it, ask rbd-nbd to end and serve it here; needs an ID")
        ->needs("id");
    command
        .add_flag("--without-proof", without_proof,
                  "Operator override: you confirm that no other node used the image. It counts for this one try and "
                  "overrules no client that "
                  "says otherwise. Needs an ID")
        ->needs("id")
        ->excludes("--adopt");
    command
        .add_flag("--loss-accepted", loss_accepted,
                  "Operator override: you accept what the cache of a dead rbd-nbd lost. Flushes of the volume then "
                  "succeed again. Needs an ID")
        ->needs("id")
        ->excludes("--adopt")
        ->excludes("--without-proof");
    add_output(command, {"text", "json"});
    add_timeout(command, timeout_s);
  }
  int ask(Agent& agent) override {
    v1::HealRequest request;
    request.set_id(id);
    request.set_adopt(adopt);
    request.set_without_proof(without_proof);
    request.set_loss_accepted(loss_accepted);
    v1::HealResponse response;
    if (!answered(agent, &Stub::Heal, request, response)) return kRefused;
    if (loss_accepted && !response.loss_accepted())
      return tell("cannot accept the loss of volume " + for_terminal(id) +
                  ": the agent is older than this command and does not know --loss-accepted, so it only tried to heal "
                  "the volume: upgrade the agent and repeat this, or end the volume's pods");
    if (!id.empty()) return say_state(agent);
    const boost::json::object document{{"volume_ids", ids_of(response.volume_ids())}, {"health", nullptr}};
    if (response.volume_ids().empty()) return say(document, "no volume needs healing\n");
    std::string text = "being healed now (corbd events -f shows the results):\n";
    for (const auto& one : response.volume_ids()) text += for_terminal(one) + "\n";
    return say(document, text);
  }
  /// The try ended well, but a volume without a device, or one that was given up, is still not served.
  int say_state(Agent& agent) const {
    v1::GetVolumeRequest request;
    request.set_id(id);
    v1::GetVolumeResponse response;
    if (!answered(agent, &Stub::GetVolume, request, response)) return kRefused;
    const std::string health = word(response.volume().health());
    return say({{"volume_ids", boost::json::array{id}}, {"health", health}},
               "tried to heal volume " + for_terminal(id) + ": it is now " + health + "\n");
  }

  std::string id;
  bool adopt = false, without_proof = false, loss_accepted = false;
};

}  // namespace

void add_heal(CLI::App& app, Chosen& chosen) { add<Heal>(app, chosen); }

}  // namespace corbd::cli
