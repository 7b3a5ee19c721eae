// Who has an image, and who is kept from a cluster: the service Fencing of the admin socket.
#include "caller.hpp"
#include "corbd/cli/options.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"
#include "corbd/rpc/json.hpp"
#include "corbd/v1/fencing.grpc.pb.h"

namespace corbd::cli {
namespace {

using FencingCaller = Caller<v1::Fencing>;
using Stub = v1::Fencing::Stub;

constexpr int kFencingRefused = 1, kNobodyAnswers = 3;
constexpr std::size_t kMostKeyBytes = 4096;

/// Nothing: it could not be read, and the reason is told.
std::optional<std::string> read_key(const FencingCaller& asking, const Fencing& ask) {
  if (ask.key_file.empty()) return std::string();
  const auto key = read_file(ask.key_file, kMostKeyBytes);
  if (key) return std::string(trimmed(*key));
  asking.tell("--key-file " + ask.key_file + ": " + key.error().text);
  return std::nullopt;
}

/// A volume ID of ceph-csi has no '/', and a name of an image has one.
bool fill(const FencingCaller& asking, const Fencing& ask, v1::ImageAt& at) {
  if (ask.image.find('/') == std::string::npos) {
    at.set_volume_id(ask.image);
    return true;
  }
  const auto key = read_key(asking, ask);
  if (!key) return false;
  at.set_image(ask.image);
  at.set_cluster_id(ask.cluster_id);
  at.set_user(ask.user);
  at.set_key(*key);
  return true;
}

std::string line_of(const v1::Holder& holder) {
  std::string has = holder.watches() ? holder.locks() ? "has it open and locked" : "has it open"
                                     : "has its lock, and does not have it open";
  if (!holder.cookie().empty()) has += ", lock " + for_terminal(holder.cookie());
  return for_terminal(holder.text()) + ": " + has;
}

bool show_holders(const v1::GetHoldersResponse& found) {
  std::string text = "image " + for_terminal(found.image()) +
                     (found.exclusive_lock() ? ", with exclusive-lock" : ", without exclusive-lock") + "\n";
  if (found.holders().empty()) text += "no other client has it open or locked\n";
  for (const auto& holder : found.holders()) text += line_of(holder) + "\n";
  return print(text);
}

/// False: it was told why not.
bool look(FencingCaller& asking, const Fencing& ask, v1::GetHoldersResponse& found) {
  v1::GetHoldersRequest request;
  return fill(asking, ask, *request.mutable_at()) && asking.answered(&Stub::GetHolders, request, found);
}

int show_who(FencingCaller& asking, const Fencing& ask) {
  v1::GetHoldersResponse found;
  if (!look(asking, ask, found)) return kFencingRefused;
  return (ask.output == "json" ? print(rpc::json_of(found)) : show_holders(found)) ? 0 : kFencingRefused;
}

int take(FencingCaller& asking, const Fencing& ask) {
  if (!ask.yes_really) {
    v1::GetHoldersResponse found;
    if (!look(asking, ask, found)) return kFencingRefused;
    if (!(ask.output == "json" ? print(rpc::json_of(found)) : show_holders(found))) return kFencingRefused;
    asking.tell(
        "nothing was done. This cuts these clients off from the whole cluster, each by its address, for seven days. "
        "Writes that they have not stored are lost to them, and every other image that they have open fails too. "
        "Confirm with --yes-really");
    return kFencingRefused;
  }
  v1::TakeRequest request;
  request.set_force(ask.force);
  v1::TakeResponse done;
  if (!fill(asking, ask, *request.mutable_at()) || !asking.answered(&Stub::Take, request, done)) return kFencingRefused;
  if (ask.output == "json") return print(rpc::json_of(done)) ? 0 : kFencingRefused;
  std::string text;
  for (const auto& holder : done.cut_off()) text += "cut off: " + for_terminal(holder.text()) + "\n";
  return print(text + "image " + for_terminal(done.image()) + " can be staged here now\n") ? 0 : kFencingRefused;
}

bool fill(const FencingCaller& asking, const Fencing& ask, v1::FenceRequest& request) {
  const auto key = read_key(asking, ask);
  if (!key) return false;
  request.set_cluster_id(ask.cluster_id);
  request.set_user(ask.user);
  request.set_key(*key);
  for (const auto& block : ask.blocks) request.add_blocks(block);
  request.set_duration(ask.duration);
  request.set_force(ask.force);
  request.set_dry_run(!ask.yes_really);
  return true;
}

std::string changes(const v1::FenceResponse& done, const std::string& verb) {
  std::string text;
  for (const auto& entry : done.changed()) text += verb + ": " + entry + "\n";
  return text;
}

int add_fence(FencingCaller& asking, const Fencing& ask) {
  v1::FenceRequest request;
  v1::FenceResponse done;
  if (!fill(asking, ask, request) || !asking.answered(&Stub::Fence, request, done)) return kFencingRefused;
  if (ask.output == "json") {
    if (!print(rpc::json_of(done))) return kFencingRefused;
  } else {
    std::string text = changes(done, ask.yes_really ? "fenced" : "would fence");
    for (const auto& one : done.touched())
      text +=
          "cuts off " + one.client() + " at " + one.address() + ", which has " + for_terminal(one.image()) + " open\n";
    if (!ask.yes_really && done.touched().empty()) text += "no client in these blocks was seen with an image open\n";
    for (const auto& own : done.own()) text += "has this very agent's own client " + own + ": needs --force\n";
    for (const auto& why : done.not_looked()) text += "not looked at: " + for_terminal(why) + "\n";
    if (!print(text)) return kFencingRefused;
  }
  if (ask.yes_really) return 0;
  asking.tell(
      "nothing was done. A fence cuts off every client of these addresses, also those of other pools and other users. "
      "Confirm with --yes-really");
  return kFencingRefused;
}

int remove_fence(FencingCaller& asking, const Fencing& ask) {
  v1::FenceRequest request;
  v1::FenceResponse done;
  if (!fill(asking, ask, request) || !asking.answered(&Stub::Unfence, request, done)) return kFencingRefused;
  const std::string changed = changes(done, ask.yes_really ? "unfenced" : "would unfence");
  const bool printed = ask.output == "json"
                           ? print(rpc::json_of(done))
                           : print(changed.empty() ? "these blocks have no fence of their own\n" : changed);
  if (!printed) return kFencingRefused;
  for (const auto& entry : done.remain()) asking.tell("still fenced by " + entry);
  if (ask.yes_really) return 0;
  asking.tell("nothing was done. Confirm with --yes-really");
  return kFencingRefused;
}

int list_fences(FencingCaller& asking, const Fencing& ask) {
  v1::ListFencesRequest request;
  const auto key = read_key(asking, ask);
  if (!key) return kFencingRefused;
  request.set_cluster_id(ask.cluster_id);
  request.set_user(ask.user);
  request.set_key(*key);
  v1::ListFencesResponse found;
  if (!asking.answered(&Stub::ListFences, request, found)) return kFencingRefused;
  if (ask.output == "json") return print(rpc::json_of(found)) ? 0 : kFencingRefused;
  std::vector<std::vector<std::string>> rows{{"ENTRY", "KIND", "UNTIL", "THIS-AGENT"}};
  for (const auto& entry : found.entries())
    rows.push_back(
        {for_terminal(entry.what()), entry.kind(), time_text(entry.until_at_ms()), entry.own() ? "yes" : "no"});
  return print(table(rows)) ? 0 : kFencingRefused;
}

}  // namespace

int call_fencing(const Fencing& ask) {
  struct Row {
    const char* name;
    int (*run)(FencingCaller&, const Fencing&);
  };
  // In the order of Fencing::What, after none.
  constexpr Row rows[] = {{"holders", show_who},
                          {"take", take},
                          {"fence add", add_fence},
                          {"fence rm", remove_fence},
                          {"fence ls", list_fences}};
  const Row& row = rows[static_cast<int>(ask.what) - 1];
  const auto socket = admin_socket(agents_folder(ask.runtime_dir));
  if (const auto there = look_for_agent(socket); !there) {
    std::cerr << "corbd " << row.name << ": " << there.error().text << std::endl;
    return kNobodyAnswers;
  }
  FencingCaller asking(socket, row.name, std::chrono::seconds(ask.timeout_s));
  return row.run(asking, ask);
}

}  // namespace corbd::cli
