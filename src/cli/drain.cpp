#include <thread>
#include <utility>

#include "corbd/v1/admin.grpc.pb.h"
#include "question.hpp"

namespace corbd::cli {
namespace {

constexpr std::chrono::milliseconds kAskAgain{300};  ///< between two checks of a drain

struct Drain final : Question<v1::Admin> {
  static constexpr const char* kName = "drain";
  static constexpr const char* kDescription =
      "Stop staging new volumes, and wait until every volume of this node is unstaged. Run this before you remove the "
      "agent. It holds across restarts of the agent and of the node, until --undo or for a week";

  explicit Drain(CLI::App& command) : Question(command) {
    add_output(command, {"text", "json"});
    command.add_flag("--undo", undo, "Allow new volumes to be staged again");
    add_timeout(command, within_s);
  }
  /// Prints the remaining volumes whenever they change.
  int ask(Agent& agent) override {
    v1::DrainRequest request;
    request.set_undo(undo);
    v1::DrainResponse response;
    if (!answered(agent, &Stub::Drain, request, response)) return kRefused;
    bool draining = !undo;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(within_s);
    std::string said;
    boost::json::object document;
    for (;;) {
      document = {{"draining", draining}, {"volume_ids", ids_of(response.volume_ids())}};
      if (undo) return say(document, "new volumes can be staged again\n");
      if (!draining) {
        if (json()) print(document);
        return tell(
            "the drain was undone: new volumes can be staged again. Run corbd drain again if that was a mistake");
      }
      if (response.volume_ids().empty())
        return say(document, "no volume is left, and no new one can be staged: you can remove the agent\n");
      std::string left = std::to_string(response.volume_ids_size()) + " left:";
      for (const auto& id : response.volume_ids()) left += " " + for_terminal(id);
      if (std::exchange(said, left) != left && !json() && !print(left + "\n")) return kRefused;
      if (std::chrono::steady_clock::now() >= end) break;
      std::this_thread::sleep_for(kAskAgain);
      if (!look(agent, draining, response)) return kRefused;
    }
    if (json()) print(document);
    return tell(
        "volumes are left: end their pods (kubectl drain moves them to other nodes). No new volume is staged here "
        "until corbd drain --undo");
  }
  /// Asks whether the node is still drained, and which volumes are left. It sets nothing, because to drain again would
  /// cancel somebody's undo.
  bool look(Agent& agent, bool& draining, v1::DrainResponse& left) const {
    v1::GetStatusResponse status;
    v1::ListVolumesResponse volumes;
    if (!answered(agent, &Stub::GetStatus, v1::GetStatusRequest(), status) ||
        !answered(agent, &Stub::ListVolumes, v1::ListVolumesRequest(), volumes))
      return false;
    draining = status.draining();
    left.clear_volume_ids();
    for (const auto& volume : volumes.volumes()) left.add_volume_ids(volume.id());
    return true;
  }

  bool undo = false;
  int within_s = 3600;  ///< limit of the whole drain; each of its calls answers at once
};

}  // namespace

void add_drain(CLI::App& app, Chosen& chosen) { add<Drain>(app, chosen); }

}  // namespace corbd::cli
