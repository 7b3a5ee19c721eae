// The story of a node that dies and comes back, told with a whole agent on each of two nodes.
#pragma once

#include <algorithm>

#include "scene.hpp"
#include "support/world/pair.hpp"

namespace corbd::test {

/// How the other node comes to the volume.
enum class Way { fenced, tainted, watch_ends };

struct TwoAgents : Pair {
  explicit TwoAgents(Way of_way, bool exclusive = true) : way(of_way) {
    image().id = "id-1";
    image().exclusive = exclusive;
    image().data = true;
    image().content = host::Probe::Kind::filesystem;
    image().fstype = "ext4";
    b.agent.fence_out_of_service = way == Way::tainted;
    a.attachment = {plan::Attachment::State::here, "uid-1", ""};
    for (World* node : {&a, &b}) {
      node->hazards = &calm;
      node->network.sent_arrives = false;
      start(*node);
    }
  }
  ~TwoAgents() {
    for (World* node : {&a, &b})
      if (node->agent.running()) node->agent.kill();
    for (const auto& rule : broken_rules()) FAIL_CHECK(rule);
  }
  FakeImage& image() { return cluster.images[kId]; }
  static KernelDevice* device(World& node) {
    return node.kernel.devices.empty() ? nullptr : &node.kernel.devices.front();
  }
  static bool served(World& node) { return device(node) != nullptr && device(node)->alive; }
  /// By its lock, or without one by the mark of its writer.
  bool had_by(const World& node) const {
    const FakeImage& image = cluster.images.at(kId);
    return node.agent.clients.contains(image.exclusive ? image.lock_owner : image.writer);
  }

  // Kubelet, which repeats what failed.
  result<> insist(World& node, const plan::Wish& wish, int tries = 8) {
    result<> done = Error{errc::internal, "not asked"};
    for (; tries > 0 && !done; --tries) {
      done = want(node, kId, wish);
      if (!done) advance(std::chrono::seconds(10));
    }
    INFO((done ? "" : done.error().text));
    CHECK(done);
    return done;
  }
  void bring_up(World& node) {
    static_cast<void>(insist(node, staged_wish(kId)));
    if (!node.attachment.uid.empty()) static_cast<void>(want(node, kId, plan::Attached{node.attachment.uid}));
    static_cast<void>(insist(node, published(staged_wish(kId), kTarget)));
  }
  /// An agent that was killed before it knew its volume's attachment cannot prove it lost: that is given up by hand.
  void take_down(World& node) {
    const auto unknown = [](const plan::Record& record) { return record.proof.attachment_uid.empty(); };
    for (const auto& wish : {plan::Wish(plan::Unpublished{kTarget}), plan::Wish(kUnstaged)})
      for (int tries = 0; tries < 20 && !want(node, kId, wish); ++tries) {
        advance(std::chrono::seconds(10));
        if (tries == 17 && node.agent.life() > 1 && std::ranges::any_of(node.disk.records, unknown))
          static_cast<void>(want(node, kId, plan::GivenUp{}));
      }
    CHECK(node.kernel.devices.empty());
    CHECK(node.disk.records.empty());
  }
  /// The application; what it is told is looked after by the world.
  static void writes(World& node, std::size_t block) {
    if (device(node) != nullptr) node.kernel.application_writes(*device(node), block);
  }
  void reads_all(World& node) {
    const auto before = node.kernel.answered;
    for (std::size_t block = 0; block < kBlocks; ++block) node.kernel.application_reads(*device(node), block);
    advance(std::chrono::seconds(5));
    CHECK(node.kernel.answered == before + kBlocks);
  }

  /// A's network is cut, and with it the way to the orchestrator.
  void cut_off() {
    a.network.cut();
    a.attachment = {};
  }
  /// Its pod is started on B instead.
  void moves() {
    using std::chrono::seconds;
    move_volumes(a, b, "uid-2");
    a.attachment = {};
    if (way == Way::fenced) cluster.fence_host(a.agent.node_address, seconds(100));
    if (way == Way::tainted)
      b.nodes.by_name[a.name] = {.address = a.agent.node_address, .ready = false, .out_of_service = true};
  }
  void comes_back() {
    a.attachment = {plan::Attachment::State::away, "", "it is attached to " + b.name};
    a.network.mend();
  }
  /// When it is known to be well again, and B has left.
  void returns_to_a() {
    cluster.unfence_host(a.agent.node_address);
    take_down(a);
    take_down(b);
    move_volumes(b, a, "uid-3");
    bring_up(a);
    reads_all(a);
  }

  static inline const std::string kTarget = "/kubelet/pods/p/" + kId;
  const Way way;
  Calm calm;
};

}  // namespace corbd::test
