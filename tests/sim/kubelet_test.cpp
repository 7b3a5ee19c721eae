// What a kubelet sent (tests/kubelet), sent again to the agents of two nodes with the times shifted: a call comes
// later, earlier or twice, its caller leaves, and agents die or hand over around it. Kubelet repeats what failed.
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <filesystem>
#include <fstream>
#include <random>

#include "../../src/csi/requests.hpp"
#include "scene.hpp"
#include "support/places.hpp"
#include "support/world/pair.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::Pair;
using test::World;

namespace {

namespace v1 = ::csi::v1;
namespace json = boost::json;

/// The codes of gRPC by name, as far as records have them.
const std::map<std::string, int> kCodes{
    {"OK", 0},       {"CANCELLED", 1},           {"DEADLINE_EXCEEDED", 4}, {"NOT_FOUND", 5}, {"RESOURCE_EXHAUSTED", 8},
    {"ABORTED", 10}, {"FAILED_PRECONDITION", 9}, {"UNAVAILABLE", 14}};
constexpr int kOk = 0, kNotFound = 5, kPrecondition = 9, kUnavailable = 14;
/// Kubelet repeats the call, and takes down what may be there (docs/sources.md#kubelet-final-errors).
bool is_transient(int code) {
  constexpr std::array codes{1, 4, 8, 10, kUnavailable};
  return std::ranges::find(codes, code) != codes.end();
}

std::string text_of(const json::value& value) { return std::string(value.as_string()); }

/// An event or a call of a record.
struct Line {
  duration at{}, took{}, deadline{};
  std::string node = "node-1", event, call, volume;
  json::object request;
  std::optional<plan::Wish> wish;  ///< what the agent is asked; nothing: for statistics, or an event
  int code = kOk;
  bool cancelled = false;
  bool undoes() const { return call == "NodeUnpublishVolume" || call == "NodeUnstageVolume"; }
  std::string text(const char* field) const {
    return request.contains(field) ? text_of(request.at(field)) : std::string();
  }
};

/// The volume of a record, and who serves it.
enum class As { recorded, kept, krbd, encrypted };
constexpr std::array kServed{As::recorded, As::kept, As::krbd, As::encrypted};
constexpr std::array kNames{"as recorded", "with a keeper", "by the kernel's client", "encrypted"};

struct Record {
  std::string name, situation;
  std::vector<Line> lines;
  As as = As::recorded;
};

duration seconds_of(const json::object& line, const char* field) {
  return line.contains(field) && line.at(field).is_number()
             ? std::chrono::duration_cast<duration>(std::chrono::duration<double>(line.at(field).to_number<double>()))
             : duration();
}

Record read_record(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text;
  REQUIRE(std::getline(file, text));
  const json::object header = json::parse(text).as_object();
  REQUIRE_FALSE(text_of(header.at("kubelet")).empty());
  REQUIRE_FALSE(text_of(header.at("source")).empty());
  Record record{
      path.parent_path().filename().string() + "/" + path.stem().string(), text_of(header.at("situation")), {}};
  while (std::getline(file, text)) {
    const json::object from = json::parse(text).as_object();
    Line line;
    line.at = seconds_of(from, "at"), line.took = seconds_of(from, "took"),
    line.deadline = seconds_of(from, "deadline");
    if (from.contains("node")) line.node = text_of(from.at("node"));
    if (from.contains("event")) line.event = text_of(from.at("event"));
    line.cancelled = from.contains("cancelled");
    if (from.contains("call")) {
      line.call = text_of(from.at("call"));
      line.request = from.at("request").as_object();
      line.volume = line.text("volume_id");
      line.code = kCodes.at(text_of(from.at("code")));
      // Calls about no volume are answered without the shell.
      if (line.volume.empty()) continue;
    }
    record.lines.push_back(std::move(line));
  }
  return record;
}

std::vector<Record> read_records() {
  std::vector<Record> records;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(test::tests_folder() + "/kubelet"))
    if (entry.path().extension() == ".jsonl") records.push_back(read_record(entry.path()));
  std::ranges::sort(records, {}, &Record::name);
  return records;
}

template <class Request>
plan::Wish wish_of_line(const Line& line) {
  Request request;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json::serialize(line.request), &request);
  if (!parsed.ok()) throw std::runtime_error(parsed.ToString());
  // A record has no secrets.
  if constexpr (requires { request.mutable_secrets(); })
    if (line.call == "NodeStageVolume") {
      (*request.mutable_secrets())["userID"] = "node";
      (*request.mutable_secrets())["userKey"] = "canary-key";
      (*request.mutable_secrets())["encryptionPassphrase"] = "canary-passphrase";
    }
  return corbd::csi::wish_of(request).value();
}

std::optional<plan::Wish> asked(const Line& line) {
  if (line.call == "NodeStageVolume") return wish_of_line<v1::NodeStageVolumeRequest>(line);
  if (line.call == "NodePublishVolume") return wish_of_line<v1::NodePublishVolumeRequest>(line);
  if (line.call == "NodeUnpublishVolume") return wish_of_line<v1::NodeUnpublishVolumeRequest>(line);
  if (line.call == "NodeUnstageVolume") return wish_of_line<v1::NodeUnstageVolumeRequest>(line);
  if (line.call == "NodeExpandVolume") return wish_of_line<v1::NodeExpandVolumeRequest>(line);
  if (line.call == "NodeGetVolumeStats") return std::nullopt;
  throw std::runtime_error("a record has a call that is not replayed: " + line.call);
}

Record record_as(Record record, As as) {
  record.as = as;
  for (auto& line : record.lines) {
    if (!line.request.contains("volume_context")) continue;
    auto& attributes = line.request.at("volume_context").as_object();
    if (as == As::krbd) attributes["mounter"] = "rbd";
    if (as == As::encrypted) attributes["encrypted"] = "true";
    if (as == As::encrypted) attributes["encryptionKMSID"] = "default";
  }
  for (auto& line : record.lines)
    if (!line.call.empty()) line.wish = asked(line);
  return record;
}

/// What is done to one call of a record.
enum class Shift {
  nothing,
  later,      ///< it comes so much later
  early,      ///< it does not wait for the end of the call before it
  twice,      ///< it is sent twice at once
  again,      ///< it is sent again after its answer
  cut,        ///< its caller leaves after that time, and repeats it
  expires,    ///< the same by its deadline
  abandoned,  ///< its caller leaves after that time, and takes everything down
  killed_first,
  killed_in,
  killed_after,  ///< its agent dies: before the call, before its Nth port call, after it
  handed_over,
  handed_over_in  ///< the next agent takes over: before the call, or so long after it began
};

struct Blow {
  Shift shift = Shift::nothing;
  std::size_t at = 0;  ///< of the record's calls
  duration by{};
  int port_call = 0;
};

/// What is left open by the rules is drawn, the same for the same blow.
class Drawn final : public test::Calm {
 public:
  explicit Drawn(const Blow& blow)
      : random_(static_cast<unsigned>(1 + blow.at + 64 * blow.port_call + blow.by / 1ms)) {}
  duration any(duration limit) override { return duration(static_cast<duration::rep>(random_()) % limit.count()); }

 private:
  std::mt19937 random_;
};

/// A call on its way.
struct Sent {
  std::optional<result<>> answer;
  CancelScope scope;
  int life = 0;
  duration deadline{};
};

task<> sending(World& node, Line line, Until until, std::shared_ptr<Sent> sent) {
  if (line.wish) {
    sent->answer = co_await node.agent.shell().want(line.volume, *line.wish, until);
    co_return;
  }
  const auto usage = co_await node.agent.shell().usage(line.volume, line.text("volume_path"), until);
  sent->answer = usage ? result<>() : result<>(usage.error());
}

class Replay : public Pair {
 public:
  Replay(const Record& record, const Blow& blow) : record_(record), blow_(blow) {
    cluster.images[volume()].id = "id-1";
    const Line& stage = *std::ranges::find(record_.lines, "NodeStageVolume", &Line::call);
    const auto& attributes = stage.request.at("volume_context").as_object();
    block_ = stage.request.at("volume_capability").as_object().contains("block");
    cluster.pools = {{1, text_of(attributes.at("pool"))}};
    if (record_.as == As::encrypted) cluster.provision_encrypted(volume(), "default");
    for (World* node : {&a, &b}) {
      node->agent.keeper = record_.as == As::kept;
      node->disk.clusters.insert(text_of(attributes.at("clusterID")));
      node->hazards = &drawn_;
      node->network.sent_arrives = true;
      start(*node);
    }
  }
  ~Replay() {
    for (World* node : {&a, &b})
      if (node->agent.running()) node->agent.kill();
  }
  /// Whether the blow fell.
  bool play() {
    const time_point begin = now();
    duration late{};
    for (std::size_t i = 0; i < record_.lines.size(); ++i) {
      const Line& line = record_.lines[i];
      const bool here = i == blow_.at && blow_.shift != Shift::nothing;
      const bool beside = here && blow_.shift == Shift::early && last_ != nullptr && last_->node == line.node;
      const bool overlaps = beside || (last_ != nullptr && line.at < last_->at + last_->took);
      if (!overlaps) {
        answered();
        if (begin + line.at + late > now()) advance(begin + line.at + late - now());
      }
      if (here && blow_.shift == Shift::later) {
        late += blow_.by;
        advance(blow_.by);
      }
      if (!line.event.empty())
        happens(line.event);
      else if (!skipped(line))
        calls(line, here, beside);
    }
    answered();
    advance(5min);
    look_at_what_is_left();
    return fell_;
  }

 private:
  const std::string& volume() const {
    return std::ranges::find_if(record_.lines, [](const Line& line) { return !line.volume.empty(); })->volume;
  }
  World& node_of(const std::string& name) { return name == a.name ? a : b; }

  void happens(const std::string& event) {
    const auto attached = [&](World& node, World& other) {
      if (node.attachment.state == plan::Attachment::State::here) return;
      test::move_volumes(other, node, "uid-" + std::to_string(++attachments_));
    };
    if (event == "agent is killed") {
      serving[0] = nullptr;
      if (a.agent.running()) a.agent.kill();
    } else if (event == "agent starts") {
      serving[0] = &a;
      start(a);
    } else if (event == "ceph is silent") {
      cluster.dead = true;
    } else if (event == "ceph answers") {
      cluster.revive();
    } else if (event == "node-1 is cut off") {
      a.network.cut();
    } else if (event == "node-1 is back") {
      a.network.mend();
    } else if (event == "the volume is attached to node-1") {
      attached(a, b);
    } else if (event == "the volume is attached to node-2") {
      attached(b, a);
    } else if (event == "the claim grows") {
      cluster.images[volume()].size *= 2;
      cluster.resized("id-1");
    } else if (!event.starts_with("pod-") && !event.starts_with("kubelet ")) {
      throw std::runtime_error("a record has an event that is not replayed: " + event);
    }
    works();
  }

  /// True: the caller does not make this call. One that has given up takes down only what it tried to bring up.
  bool skipped(const Line& line) {
    auto& tried = tried_[line.node];
    if (!line.undoes()) {
      if (abandoned_) return true;
      tried.insert(line.call == "NodeStageVolume" ? "staged" : line.text("target_path"));
      return false;
    }
    const bool unstages = line.call == "NodeUnstageVolume";
    return !tried.contains(unstages ? "staged" : line.text("target_path"));
  }

  void calls(const Line& line, bool here, bool beside) {
    World& node = node_of(line.node);
    const Shift shift = here ? blow_.shift : Shift::nothing;
    if (line.call == "NodeUnpublishVolume") end_of_pod(node, line);
    if (line.undoes()) abandoned_ = false;
    if (shift == Shift::killed_first) kill_one(node);
    if (shift == Shift::handed_over) hand_over(node);
    if (shift == Shift::killed_in) node.calls.crash_at = blow_.port_call;
    if (shift == Shift::twice) sent_.push_back({&line, send(node, line, line.deadline)});
    const bool expires = shift == Shift::expires;
    sent_.push_back({&line, send(node, line, expires ? blow_.by : line.deadline)});
    last_ = &line;
    if (beside) fell_ = true;
    if (shift == Shift::cut || shift == Shift::abandoned || line.cancelled) {
      leave(node, *sent_.back().how, here ? blow_.by : line.took);
      abandoned_ = shift == Shift::abandoned && !line.undoes();
      if (abandoned_ || (line.cancelled && !here)) sent_.pop_back();
    }
    if (expires) wait(node, *sent_.back().how, blow_.by);
    if (shift == Shift::handed_over_in && wait(node, *sent_.back().how, blow_.by)) hand_over(node);
    if (shift == Shift::nothing || beside) return;
    answered();
    if (shift == Shift::killed_in) fell_ = std::exchange(node.calls.crash_at, 0) == 0;
    if (shift == Shift::killed_after) kill_one(node);
    if (shift == Shift::again) sent_.push_back({&line, send(node, line, line.deadline)});
    answered();
  }

  /// The pod of a raw block volume ends after its last request.
  void end_of_pod(World& node, const Line& line) {
    published_[line.node].erase(line.text("target_path"));
    const auto owes = [](const test::KernelDevice& device) { return !device.requests.empty(); };
    while (block_ && std::ranges::any_of(node.kernel.devices, owes)) step(now() + 1s);
  }

  std::shared_ptr<Sent> send(World& node, const Line& line, duration deadline) {
    auto sent = std::make_shared<Sent>();
    sent->deadline = deadline;
    if (!node.agent.running() || node.loop().crashed()) {
      sent->answer = Error{errc::unavailable, "no agent runs"};
      return sent;
    }
    sent->life = node.agent.life();
    const Until until{now() + deadline, &sent->scope};
    asio::co_spawn(node.loop().io, sending(node, line, until, sent), asio::detached);
    return sent;
  }
  /// False: it ended before.
  bool wait(World& node, Sent& sent, duration at_most) {
    const auto end = now() + at_most;
    while (!sent.answer && node.agent.lives(sent.life) && now() < end) step(end);
    if (sent.answer || !node.agent.lives(sent.life)) return false;
    return fell_ = true;
  }
  void leave(World& node, Sent& sent, duration after) {
    if (!wait(node, sent, after)) return;
    sent.scope.cancel();
    step(now());
  }
  int code_of(World& node, Sent& sent) {
    const auto end = now() + sent.deadline + 1min;
    while (!sent.answer && node.agent.lives(sent.life) && now() < end) step(now() + 1s);
    if (sent.answer) return *sent.answer ? kOk : grpc_code(sent.answer->error().code);
    if (node.agent.lives(sent.life)) node.broke("a call was not answered by its deadline");
    return kUnavailable;
  }

  /// Waits for every call that is on its way, and repeats what failed, as kubelet does.
  void answered() {
    for (auto& [line, how] : std::exchange(sent_, {})) {
      World& node = node_of(line->node);
      int code = code_of(node, *how);
      look_at_code(*line, *how, code);
      const bool undone = last_ != line && last_ != nullptr && last_->node == line->node && last_->undoes();
      const bool repeats = line->code == kOk && line->call != "NodeGetVolumeStats" && !(undone && !line->undoes());
      duration pause = 500ms;
      for (int tries = 0; repeats && code != kOk && tries < 30; ++tries) {
        advance(pause);
        pause = std::min<duration>(2 * pause, 122s);
        const auto repeated = send(node, *line, line->deadline);
        code = code_of(node, *repeated);
        look_at_code(*line, *repeated, code);
      }
      if (repeats && code != kOk) node.broke(line->call + " was repeated in vain");
      if (code == kOk) succeeded(node, *line, !undone);
    }
    last_ = nullptr;
    works();
  }
  void look_at_code(const Line& line, const Sent& sent, int code) {
    // Before its stage has ended a volume has nothing to publish, and what is not there has no statistics.
    const bool early = blow_.shift == Shift::early && code == kPrecondition;
    const bool unknown = line.call == "NodeGetVolumeStats" && code == kNotFound;
    if (code == kOk || is_transient(code) || early || unknown) return;
    a.broke(line.call + " ended with code " + std::to_string(code) + ": " + sent.answer->error().text);
  }
  void succeeded(World& node, const Line& line, bool alone) {
    const auto mounted = [&](const std::string& target) {
      return std::ranges::any_of(node.kernel.mounts, [&](const auto& mount) { return mount.target == target; });
    };
    const auto target = line.text("target_path");
    if (line.call == "NodePublishVolume" && alone) {
      if (!mounted(target)) node.broke("a published volume is not mounted");
      published_[line.node].insert(target);
    }
    if (line.call == "NodeUnpublishVolume" && mounted(target)) node.broke("a volume is mounted that was unpublished");
    if (line.call == "NodeUnstageVolume" && !node.kernel.devices.empty())
      node.broke("a device is left after its unstage");
  }

  /// The applications of both nodes write, and the agents learn by which attachment the volume is theirs.
  void works() {
    for (World* node : {&a, &b}) {
      const bool uses = !published_[node->name].empty();
      for (auto& device : node->kernel.devices)
        for (std::size_t block = 0; uses && device.kind == device::Kind::nbd && block < test::kBlocks; ++block) {
          node->kernel.application_writes(device, block);
          node->kernel.application_reads(device, block);
        }
      const auto& told = node->attachment;
      if (told.state != plan::Attachment::State::here) continue;
      const bool noted = std::ranges::all_of(
          node->disk.records, [&](const auto& record) { return record.proof.attachment_uid == told.uid; });
      if (!noted) static_cast<void>(want(*node, volume(), plan::Attached{told.uid}));
    }
    advance(20ms);
  }
  void kill_one(World& node) {
    if (!node.agent.running()) return;
    fell_ = true;
    kill(node);
  }
  void hand_over(World& node) {
    if (!node.agent.running()) return;
    fell_ = true;
    node.agent.hand_over(true);
  }

  void look_at_what_is_left() {
    for (World* node : {&a, &b}) {
      if (!node->kernel.devices.empty()) node->broke("a device is left");
      if (!node->kernel.mounts.empty()) node->broke("a mount is left: " + node->kernel.mounts.front().target);
      if (!node->disk.records.empty()) node->broke("a record is left");
      if (!node->disk.keys.empty()) node->broke("a key is left");
      if (!node->disk.places.empty()) node->broke("a place of a mount is left: " + *node->disk.places.begin());
      if (node->kernel.errors != 0 && !lost_a_node()) node->broke("an application was told of an error");
    }
    if (!cluster.opened.empty()) a.broke("an image is left open");
    const auto& image = cluster.images[volume()];
    if (!image.watchers.empty()) a.broke("a watch is left: " + *image.watchers.begin());
    if (image.owner_lives()) a.broke("a lock is left: " + image.lock_owner);
    for (std::size_t block = 0; block < test::kBlocks; ++block)
      if (image.blocks[block] < image.acked[block]) a.broke("an acknowledged write is lost");
  }
  bool lost_a_node() const {
    return std::ranges::any_of(record_.lines, [](const Line& line) { return line.event == "node-1 is cut off"; });
  }

  struct Pending {
    const Line* line;
    std::shared_ptr<Sent> how;
  };
  const Record& record_;
  const Blow blow_;
  Drawn drawn_{blow_};
  std::vector<Pending> sent_;
  const Line* last_ = nullptr;  ///< the call that was sent last, until it is answered
  bool fell_ = false, abandoned_ = false, block_ = false;
  int attachments_ = 0;
  std::map<std::string, std::set<std::string>> published_, tried_;  ///< by node
};

bool survives_blow(const Record& record, const Blow& blow) {
  INFO(record.name << ", " << kNames.at(static_cast<std::size_t>(record.as)) << ": " << record.situation);
  INFO("shift " << static_cast<int>(blow.shift) << " of line " << blow.at << " (" << record.lines[blow.at].call
                << ") by " << blow.by / 1ms << " ms, port call " << blow.port_call);
  Replay replay(record, blow);
  const bool fell = replay.play();
  for (const auto& rule : replay.broken_rules()) FAIL_CHECK(rule);
  return fell;
}

// A replay costs ten times as much with a sanitizer.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr std::size_t kOneIn = 5;
#else
constexpr std::size_t kOneIn = 1;
#endif

/// Each call of each record that ended well: those that kubelet repeated say the same. Once, where records begin alike.
void each_call(As as, const std::function<void(const Record&, std::size_t)>& does) {
  std::set<std::string> seen;
  for (const auto& record : read_records()) {
    std::string before;
    const Record of = record_as(record, as);
    for (std::size_t i = 0; i < record.lines.size(); ++i) {
      const Line& line = record.lines[i];
      before += line.node + line.event + line.call + json::serialize(line.request) + std::to_string(line.code);
      const bool well = !line.call.empty() && line.code == kOk;
      if (well && seen.insert(before).second && seen.size() % kOneIn == 0) does(of, i);
    }
  }
}

/// Shifts each call further and further, until it ends before the blow. Most port calls of the world take 1 ms. Other
/// ways of serving have sweeps of their own (sweep_test.cpp, krbd_sweep_test.cpp, luks_test.cpp), so fewer moments do.
void sweep_time(As as, Shift shift) {
  const auto step = as == As::recorded ? 3ms : 9ms;
  each_call(as, [&](const Record& record, std::size_t i) {
    for (duration by{}; by < 40ms && survives_blow(record, {shift, i, by}); by += step) {
    }
  });
}

/// Kills the agent before each port call that it makes within a call of kubelet.
void sweep_deaths(As as) {
  const int step = as == As::recorded ? 1 : 3;
  each_call(as, [&](const Record& record, std::size_t i) {
    for (int call = 1; call < 200 && survives_blow(record, {Shift::killed_in, i, {}, call}); call += step) {
    }
  });
}

}  // namespace

TEST_CASE("recorded calls of kubelet are answered as in the record, or better") {
  const auto as = GENERATE(from_range(kServed));
  const auto records = read_records();
  REQUIRE(records.size() >= 10);
  for (const auto& record : records) survives_blow(record_as(record, as), {});
}

TEST_CASE("a call of kubelet may come seconds, minutes or an hour late") {
  const auto by = GENERATE(as<duration>(), 1s, 40s, 3min, 1h);
  each_call(As::recorded, [&](const Record& record, std::size_t i) { survives_blow(record, {Shift::later, i, by}); });
}

TEST_CASE("a call of kubelet may be sent twice at once, again after its answer, or before the end of the last one") {
  const auto shift = GENERATE(Shift::twice, Shift::again, Shift::early);
  const auto as = GENERATE(from_range(kServed));
  each_call(as, [&](const Record& record, std::size_t i) { survives_blow(record, {shift, i}); });
}

TEST_CASE("a call of kubelet may be cut off at any moment and repeated") {
  const auto as = GENERATE(from_range(kServed));
  sweep_time(as, GENERATE(Shift::cut, Shift::expires));
}

TEST_CASE("a call of kubelet may be cut off at any moment and undone") {
  sweep_time(GENERATE(from_range(kServed)), Shift::abandoned);
}

TEST_CASE("an agent may die around and within each call of kubelet") {
  const auto as = GENERATE(from_range(kServed));
  each_call(as, [&](const Record& record, std::size_t i) {
    survives_blow(record, {Shift::killed_first, i});
    survives_blow(record, {Shift::killed_after, i});
  });
  sweep_deaths(as);
}

TEST_CASE("an agent may hand over before and within each call of kubelet") {
  const auto as = GENERATE(from_range(kServed));
  each_call(as, [&](const Record& record, std::size_t i) { survives_blow(record, {Shift::handed_over, i}); });
  sweep_time(as, Shift::handed_over_in);
}
