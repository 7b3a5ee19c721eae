// The service Fencing of the admin socket: who has an image, and who is fenced from a cluster.
#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"
#include "corbd/v1/fencing.grpc.pb.h"
#include "question.hpp"

namespace corbd::cli {
namespace {

constexpr std::size_t kMostKeyBytes = 4096;

/// Options and checks that all these commands share.
class FencingQuestion : public Question<v1::Fencing> {
 protected:
  explicit FencingQuestion(CLI::App& command) : Question(command) {
    output = "text";
    timeout_s = 60;
    command.add_option("--timeout", timeout_s, "Seconds to wait for the answer")
        ->check(CLI::Range(1, 86400))
        ->capture_default_str();
    command.add_option("-o,--output", output, "Output format")
        ->check(CLI::IsMember({"text", "json"}))
        ->capture_default_str();
  }
  void add_user(CLI::App& command, bool required) {
    const std::string when = required ? "" : "; for an image by its name";
    command.add_option("--user", user_, "Ceph user, without the prefix client." + when)->required(required);
    command.add_option("--key-file", key_file_, "File that holds the user's key" + when)->required(required);
    command.add_option("--cluster", cluster_id_, "Cluster ID in config.json" + when)->required(required);
  }
  void add_confirm(CLI::App& command) {
    command.add_flag("--yes-really", yes_really, "Confirm; without this flag nothing is changed");
  }
  /// Fills in cluster, user and key. False: the key could not be read, and the reason is printed.
  template <class Message>
  bool fill_user(Message& message) const {
    message.set_cluster_id(cluster_id_);
    message.set_user(user_);
    if (key_file_.empty()) return true;
    const auto key = read_file(key_file_, kMostKeyBytes);
    if (key)
      message.set_key(std::string(trimmed(*key)));
    else
      tell("--key-file " + key_file_ + ": " + key.error().text);
    return key.has_value();
  }

  bool yes_really = false;

 private:
  std::string cluster_id_, user_, key_file_;
};

std::string line_of(const v1::Holder& holder) {
  std::string has = holder.watches() ? holder.locks() ? "has it open and locked" : "has it open"
                                     : "has its lock, and does not have it open";
  if (!holder.cookie().empty()) has += ", lock " + for_terminal(holder.cookie());
  return for_terminal(holder.text()) + ": " + has;
}

std::string holders_text(const v1::GetHoldersResponse& found) {
  std::string text = "image " + for_terminal(found.image()) +
                     (found.exclusive_lock() ? ", with exclusive-lock" : ", without exclusive-lock") + "\n";
  if (found.dirty_cache())
    text +=
        "it has the feature dirty-cache: a client's persistent cache has writes that are not in the cluster, and a "
        "client that is cut off stores none of them\n";
  if (found.holders().empty()) text += "no other client has it open or locked\n";
  for (const auto& holder : found.holders()) text += line_of(holder) + "\n";
  return text;
}

struct Holders : FencingQuestion {
  static constexpr const char* kName = "holders";
  static constexpr const char* kDescription =
      "Show which clients have an image, on which nodes they run, and what is known of those";

  explicit Holders(CLI::App& command) : FencingQuestion(command) {
    command.add_option("image", image, "Volume ID, or POOL/[NAMESPACE/]IMAGE")->required();
    add_user(command, false);
  }
  int ask(Agent& agent) override {
    v1::GetHoldersRequest request;
    v1::GetHoldersResponse found;
    if (!fill(*request.mutable_at()) || !answered(agent, &Stub::GetHolders, request, found)) return kRefused;
    return say(rpc::json_of(found), holders_text(found));
  }
  /// A volume ID of ceph-csi contains no '/', and an image's name contains one.
  bool fill(v1::ImageAt& at) const {
    if (image.find('/') == std::string::npos) {
      at.set_volume_id(image);
      return true;
    }
    at.set_image(image);
    return fill_user(at);
  }

  std::string image;
};

struct Take final : Holders {
  static constexpr const char* kName = "take";
  static constexpr const char* kDescription =
      "Cut every other client of an image off from the cluster, so that the image can be staged here";

  explicit Take(CLI::App& command) : Holders(command) {
    add_confirm(command);
    command.add_flag("--force", force, "Also clients whose node is ready");
    command.add_flag("--also-dirty", also_dirty,
                     "Also if a client's persistent cache has writes that are not in the cluster");
  }
  int ask(Agent& agent) override {
    if (!yes_really) {
      if (Holders::ask(agent) != 0) return kRefused;
      return tell(
          "nothing was done. This cuts these clients off from the whole cluster, each by its address, for seven days. "
          "Writes that they have not stored are lost to them, and every other image that they have open fails too. "
          "Confirm with --yes-really");
    }
    v1::TakeRequest request;
    request.set_force(force);
    request.set_also_dirty(also_dirty);
    v1::TakeResponse done;
    if (!fill(*request.mutable_at()) || !answered(agent, &Stub::Take, request, done)) return kRefused;
    std::string text;
    for (const auto& holder : done.cut_off()) text += "cut off: " + for_terminal(holder.text()) + "\n";
    // A dirty cache stays recorded in the image's header.
    const char* const now =
        also_dirty ? " can be staged here now, or once `rbd persistent-cache invalidate` has given up its dirty cache\n"
                   : " can be staged here now\n";
    return say(rpc::json_of(done), text + "image " + for_terminal(done.image()) + now);
  }

  bool force = false, also_dirty = false;
};

/// Prints the blocks of addresses that were fenced or unfenced.
class FenceChange : public FencingQuestion {
 protected:
  explicit FenceChange(CLI::App& command) : FencingQuestion(command) {
    command.add_option("blocks", blocks_, "Blocks of addresses, as CIDR: 10.0.0.7/32")->required();
    add_user(command, true);
    add_confirm(command);
  }
  bool fill(v1::FenceRequest& request) const {
    for (const auto& block : blocks_) request.add_blocks(block);
    request.set_dry_run(!yes_really);
    return fill_user(request);
  }
  static std::string changes(const v1::FenceResponse& done, const std::string& verb) {
    std::string text;
    for (const auto& entry : done.changed()) text += verb + ": " + entry + "\n";
    return text;
  }

 private:
  std::vector<std::string> blocks_;
};

struct AddFence final : FenceChange {
  static constexpr const char* kName = "add";
  static constexpr const char* kDescription =
      "Fence blocks of addresses; without --yes-really, show what that cuts off";

  explicit AddFence(CLI::App& command) : FenceChange(command) {
    command.add_option("--duration", duration, "How long: seconds, or a number with s, m, h or d [five years]");
    command.add_flag("--force", force, "Also blocks that have a client of this very agent");
  }
  int ask(Agent& agent) override {
    v1::FenceRequest request;
    request.set_duration(duration);
    request.set_force(force);
    v1::FenceResponse done;
    if (!fill(request) || !answered(agent, &Stub::Fence, request, done)) return kRefused;
    std::string text = changes(done, yes_really ? "fenced" : "would fence");
    for (const auto& one : done.touched())
      text +=
          "cuts off " + one.client() + " at " + one.address() + ", which has " + for_terminal(one.image()) + " open\n";
    if (!yes_really && done.touched().empty()) text += "no client in these blocks was seen with an image open\n";
    for (const auto& own : done.own()) text += "has this very agent's own client " + own + ": needs --force\n";
    for (const auto& why : done.not_looked()) text += "not looked at: " + for_terminal(why) + "\n";
    if (say(rpc::json_of(done), text) != 0) return kRefused;
    if (yes_really) return 0;
    return tell(
        "nothing was done. A fence cuts off every client of these addresses, also those of other pools and other "
        "users. Confirm with --yes-really");
  }

  std::string duration;  ///< "24h"; empty: five years
  bool force = false;
};

struct RemoveFence final : FenceChange {
  static constexpr const char* kName = "rm";
  static constexpr const char* kDescription = "Take fences away; without --yes-really, show which";

  explicit RemoveFence(CLI::App& command) : FenceChange(command) {}
  int ask(Agent& agent) override {
    v1::FenceRequest request;
    v1::FenceResponse done;
    if (!fill(request) || !answered(agent, &Stub::Unfence, request, done)) return kRefused;
    const std::string changed = changes(done, yes_really ? "unfenced" : "would unfence");
    if (say(rpc::json_of(done), changed.empty() ? "these blocks have no fence of their own\n" : changed) != 0)
      return kRefused;
    for (const auto& entry : done.remain()) tell("still fenced by " + entry);
    return yes_really ? 0 : tell("nothing was done. Confirm with --yes-really");
  }
};

struct ListFences final : FencingQuestion {
  static constexpr const char* kName = "ls";
  static constexpr const char* kDescription = "Show a cluster's blocklist";

  explicit ListFences(CLI::App& command) : FencingQuestion(command) { add_user(command, true); }
  int ask(Agent& agent) override {
    v1::ListFencesRequest request;
    v1::ListFencesResponse found;
    if (!fill_user(request) || !answered(agent, &Stub::ListFences, request, found)) return kRefused;
    std::vector<std::vector<std::string>> rows{{"ENTRY", "KIND", "UNTIL", "THIS-AGENT"}};
    for (const auto& entry : found.entries())
      rows.push_back(
          {for_terminal(entry.what()), entry.kind(), time_text(entry.until_at_ms()), entry.own() ? "yes" : "no"});
    return say(rpc::json_of(found), table(rows));
  }
};

/// Only the node itself sees what it still has, so it is asked about itself.
struct Unfence final : FencingQuestion {
  static constexpr const char* kName = "unfence";
  static constexpr const char* kDescription =
      "Check whether this node, which the cluster has fenced, may be let in again without a reboot";

  explicit Unfence(CLI::App& command) : FencingQuestion(command) {
    command
        .add_flag("--self-check", self_check,
                  "Look at this agent's volumes and clients, and at every other Ceph client of the node")
        ->required();
    add_user(command, true);
    command.add_flag("--yes-really", yes_really, "Take the fences away that are clean");
  }
  int ask(Agent& agent) override {
    v1::SelfCheckRequest request;
    request.set_unfence(yes_really);
    v1::SelfCheckResponse done;
    if (!fill_user(request) || !answered(agent, &Stub::SelfCheck, request, done)) return kRefused;
    std::string text;
    bool clean = true;
    for (const auto& fence : done.fences()) {
      text += fence.verdict() + ": " + for_terminal(fence.what()) + ", until " + time_text(fence.until_at_ms()) + "\n";
      for (const auto& reason : fence.reasons()) text += "  " + for_terminal(reason) + "\n";
      clean = clean && fence.verdict() == "clean";
    }
    for (const auto& entry : done.removed()) text += "unfenced: " + entry + "\n";
    if (say(rpc::json_of(done), text.empty() ? "no fence covers a client of this node\n" : text) != 0) return kRefused;
    for (const auto& entry : done.remain()) tell("still fenced by " + entry);
    if (!clean) return tell("not every fence may be taken away now. Those that are not clean stay");
    return yes_really || done.fences().empty() ? 0 : tell("nothing was unfenced. Confirm with --yes-really", 0);
  }

  bool self_check = false;
};

}  // namespace

void add_fencing(CLI::App& app, Chosen& chosen) {
  add<Holders>(app, chosen);
  add<Take>(app, chosen);
  auto* fence = app.add_subcommand("fence", "Keep every client of some addresses from a cluster, or let them in again");
  fence->require_subcommand(1);
  fence->footer(exit_codes(kAnswerCodes));
  add<AddFence>(*fence, chosen);
  add<RemoveFence>(*fence, chosen);
  add<ListFences>(*fence, chosen);
  add<Unfence>(app, chosen);
}

}  // namespace corbd::cli
