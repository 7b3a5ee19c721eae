#include <grpcpp/grpcpp.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <iostream>
#include <thread>

#include "admin_socket.hpp"
#include "caller.hpp"
#include "corbd/cli/options.hpp"
#include "corbd/core/display.hpp"
#include "corbd/handover/reserve.hpp"
#include "corbd/rpc/json.hpp"
#include "corbd/v1/admin.grpc.pb.h"
#include "handover_call.hpp"
#include "top_watch.hpp"
#include "view.hpp"

namespace corbd::cli {
namespace {

namespace json = boost::json;
using std::chrono::seconds;

constexpr int kRefused = 1, kCritical = 2, kNoAgent = 3;
constexpr seconds kFollowWait{30};
constexpr std::chrono::milliseconds kAskAgain{300};  ///< between two questions about a drain
constexpr seconds kDrainWithin{3600};
constexpr seconds kGrace{10};  ///< for the answer, after the wait that was asked for

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

seconds limit_of(const Admin& ask) {
  // A drain's timeout is for the whole drain. Each of its calls answers at once.
  const bool acts = ask.what == Admin::What::heal || ask.what == Admin::What::fail;
  const bool own = ask.timeout_s > 0 && ask.what != Admin::What::drain;
  return own ? seconds(ask.timeout_s) : acts ? seconds(120) : seconds(10);
}

using Asking = Caller<v1::Admin>;

int status(Asking& asking, const Admin& ask) {
  v1::GetStatusResponse response;
  if (!asking.answered(&v1::Admin::Stub::GetStatus, v1::GetStatusRequest(), response)) return kCritical;
  ask.output == "json" ? print(rpc::json_of(response)) : print(status_screen(response));
  return exit_code(response);
}

int volumes(Asking& asking, const Admin& ask) {
  v1::ListVolumesResponse response;
  if (!asking.answered(&v1::Admin::Stub::ListVolumes, v1::ListVolumesRequest(), response)) return kRefused;
  ask.output == "json" ? print(rpc::json_of(response)) : print(volumes_table(response, ask.output == "wide", now_ms()));
  return 0;
}

int volume(Asking& asking, const Admin& ask) {
  v1::GetVolumeRequest request;
  request.set_id(ask.volume_id);
  v1::GetVolumeResponse response;
  if (!asking.answered(&v1::Admin::Stub::GetVolume, request, response)) return kRefused;
  ask.output == "json" ? print(rpc::json_of(response)) : print(volume_page(response, now_ms()));
  return 0;
}

/// The answer of a command that changes something. The exit code.
int say(const Admin& ask, const json::object& object, const std::string& text) {
  return (ask.output == "json" ? print(object) : print(text)) ? 0 : kRefused;
}

json::array ids_of(const google::protobuf::RepeatedPtrField<std::string>& ids) {
  json::array all;
  for (const auto& id : ids) all.push_back(json::string(id));
  return all;
}

/// The try ended well. A volume without a device, or one that was given up, is still not served.
int say_state(Asking& asking, const Admin& ask) {
  v1::GetVolumeRequest request;
  request.set_id(ask.volume_id);
  v1::GetVolumeResponse response;
  if (!asking.answered(&v1::Admin::Stub::GetVolume, request, response)) return kRefused;
  const std::string health = word(response.volume().health());
  return say(ask, {{"volume_ids", json::array{ask.volume_id}}, {"health", health}},
             "tried to heal volume " + for_terminal(ask.volume_id) + ": it is now " + health + "\n");
}

int heal(Asking& asking, const Admin& ask) {
  v1::HealRequest request;
  request.set_id(ask.volume_id);
  request.set_adopt(ask.adopt);
  request.set_without_proof(ask.without_proof);
  v1::HealResponse response;
  if (!asking.answered(&v1::Admin::Stub::Heal, request, response)) return kRefused;
  if (!ask.volume_id.empty()) return say_state(asking, ask);
  const json::object object{{"volume_ids", ids_of(response.volume_ids())}, {"health", nullptr}};
  if (response.volume_ids().empty()) return say(ask, object, "no volume needs healing\n");
  std::string text = "being healed now (corbd events -f shows the results):\n";
  for (const auto& id : response.volume_ids()) text += for_terminal(id) + "\n";
  return say(ask, object, text);
}

int fail(Asking& asking, const Admin& ask) {
  if (!ask.yes_really) {
    asking.tell("nothing was done. This gives volume " + for_terminal(ask.volume_id) +
                " up: every request to its device, waiting or new, gets EIO. Then its pods can end, and its mounts can "
                "be removed. Writes that are not acknowledged yet are lost. Only unstage and stage bring the volume "
                "back. Confirm with --yes-really");
    return kRefused;
  }
  v1::FailRequest request;
  request.set_id(ask.volume_id);
  v1::FailResponse response;
  if (!asking.answered(&v1::Admin::Stub::Fail, request, response)) return kRefused;
  return say(ask, {{"volume_ids", json::array{ask.volume_id}}, {"health", "failed"}},
             "volume " + for_terminal(ask.volume_id) + " is given up: every request gets EIO until it is unstaged\n");
}

/// Whether the node is still drained, and what is left. It sets nothing: to drain again would undo somebody's undo.
bool look_at_drain(Asking& asking, bool& draining, v1::DrainResponse& left) {
  v1::GetStatusResponse status;
  v1::ListVolumesResponse volumes;
  if (!asking.answered(&v1::Admin::Stub::GetStatus, v1::GetStatusRequest(), status) ||
      !asking.answered(&v1::Admin::Stub::ListVolumes, v1::ListVolumesRequest(), volumes))
    return false;
  draining = status.draining();
  left.clear_volume_ids();
  for (const auto& volume : volumes.volumes()) left.add_volume_ids(volume.id());
  return true;
}

/// Prints the remaining volumes whenever they change.
int drain(Asking& asking, const Admin& ask) {
  v1::DrainRequest request;
  request.set_undo(ask.undo);
  v1::DrainResponse response;
  if (!asking.answered(&v1::Admin::Stub::Drain, request, response)) return kRefused;
  bool draining = !ask.undo;
  const auto end = std::chrono::steady_clock::now() + (ask.timeout_s > 0 ? seconds(ask.timeout_s) : kDrainWithin);
  std::string said;
  json::object object;
  for (;;) {
    object = {{"draining", draining}, {"volume_ids", ids_of(response.volume_ids())}};
    if (ask.undo) return say(ask, object, "new volumes can be staged again\n");
    if (!draining) {
      if (ask.output == "json") print(object);
      asking.tell(
          "somebody undid the drain: new volumes can be staged again. Run corbd drain anew if that was a mistake");
      return kRefused;
    }
    if (response.volume_ids().empty())
      return say(ask, object, "no volume is left, and no new one can be staged: you can remove the agent\n");
    std::string left = std::to_string(response.volume_ids_size()) + " left:";
    for (const auto& id : response.volume_ids()) left += " " + for_terminal(id);
    if (std::exchange(said, left) != left && ask.output != "json" && !print(left + "\n")) return kRefused;
    if (std::chrono::steady_clock::now() >= end) break;
    std::this_thread::sleep_for(kAskAgain);
    if (!look_at_drain(asking, draining, response)) return kRefused;
  }
  if (ask.output == "json") print(object);
  asking.tell(
      "volumes are left: end their pods (kubectl drain moves them to other nodes). No new volume is staged here until "
      "corbd drain --undo");
  return kRefused;
}

int log_level(Asking& asking, const Admin& ask) {
  v1::SetLogLevelRequest request;
  request.set_level(ask.level);
  v1::SetLogLevelResponse response;
  if (!asking.answered(&v1::Admin::Stub::SetLogLevel, request, response)) return kRefused;
  return say(ask, {{"level", ask.level}}, "the agent logs " + ask.level + " and above until it ends\n");
}

bool show(const Asking& asking, const v1::NextEventsResponse& page, bool json) {
  if (page.missed() > 0)
    asking.tell(std::to_string(page.missed()) + " events came too fast to be shown here; the agent's log has them");
  for (const auto& change : page.events())
    if (!(json ? print(rpc::json_of(change)) : print(event_line(change) + "\n"))) return false;
  return true;
}

/// The agent went away, before or during the call.
bool left(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_code() == grpc::StatusCode::CANCELLED;
}

/// Prints every page that is there already. With --follow it also prints those to come, until nobody reads any more.
int events(Asking& asking, const Admin& ask) {
  v1::NextEventsRequest request;
  bool gone = false;
  for (;;) {
    v1::NextEventsResponse page;
    const auto status =
        asking.call(&v1::Admin::Stub::NextEvents, request, page, seconds(request.wait_ms() / 1000) + kGrace);
    if (!status.ok()) {
      if (!ask.follow || request.run() == 0 || !left(status)) {
        asking.tell(said_of(status, kGrace));
        return kRefused;
      }
      if (!std::exchange(gone, true)) asking.tell("the agent is gone; waiting for the next one");
      request.set_wait_ms(0);
      asking.wait_for_agent();
      continue;
    }
    if (std::exchange(gone, false)) asking.tell("an agent answers again");
    if (!show(asking, page, ask.output == "json")) return kRefused;
    if (!ask.follow && page.events().empty()) return 0;
    request.set_run(page.run());
    request.set_after(page.last());
    if (ask.follow) request.set_wait_ms(static_cast<std::uint32_t>(std::chrono::milliseconds(kFollowWait).count()));
  }
}

/// While two pods are beside each other, both reach whichever agent serves: it counts for its own pod only.
int own_pod_ready(Asking& asking, const Admin& ask) {
  v1::GetStatusResponse response;
  if (!asking.answered(&v1::Admin::Stub::GetStatus, v1::GetStatusRequest(), response)) return kRefused;
  if (!ask.pod.empty() && response.pod() != ask.pod) {
    asking.tell("the agent of another pod serves (" + for_terminal(response.pod()) + "): this one's has not begun yet");
    return kRefused;
  }
  if (response.ready()) return 0;
  for (const auto& part : response.components())
    if (part.keeps_from_serving()) asking.tell(for_terminal(part.name()) + ": " + for_terminal(part.text()));
  return kRefused;
}

/// Between two agents nobody listens on the admin socket: one hands over, the other one takes over. A kill would only
/// lengthen that.
bool lives_unheard(const Admin& ask) {
  return ask.what == Admin::What::alive && !ask.ready && handover::pod_lives(agents_folder(ask.runtime_dir), ask.pod);
}

/// Prints nothing when all is well, because kubelet asks every few seconds.
int alive(Asking& asking, const Admin& ask) {
  if (ask.ready) return own_pod_ready(asking, ask);
  v1::CheckAliveResponse response;
  const auto limit = limit_of(ask);
  const auto status = asking.call(&v1::Admin::Stub::CheckAlive, v1::CheckAliveRequest(), response, limit);
  if (status.ok() || (left(status) && lives_unheard(ask))) return 0;
  asking.tell(said_of(status, limit));
  return kRefused;
}

}  // namespace

int call_admin(const Admin& ask) {
  // It asks no agent; it starts one.
  if (ask.what == Admin::What::handover) return hand_over(ask, admin_socket(agents_folder(ask.runtime_dir)));
  struct Row {
    const char* name;
    int (*run)(Asking&, const Admin&);
  };
  // In the order of Admin::What, after none.
  constexpr Row rows[] = {{"status", status}, {"volumes", volumes}, {"volume", volume},       {"heal", heal},
                          {"fail", fail},     {"drain", drain},     {"log-level", log_level}, {"events", events},
                          {"alive", alive},   {"top", watch_top}};
  const Row& row = rows[static_cast<int>(ask.what) - 1];
  const std::string folder = agents_folder(ask.runtime_dir);
  // It serves as soon as nobody else does. Were it not ready, a rollback to its pod would wait for it for ever.
  if (ask.ready && !ask.pod.empty() && handover::pod_in_reserve(folder) == ask.pod) return 0;
  const auto socket = admin_socket(folder);
  if (const auto there = look_for_agent(socket); !there) {
    if (lives_unheard(ask)) return 0;
    std::cerr << "corbd " << row.name << ": " << there.error().text << std::endl;
    return kNoAgent;
  }
  Asking asking(socket, row.name, limit_of(ask));
  return row.run(asking, ask);
}

}  // namespace corbd::cli
