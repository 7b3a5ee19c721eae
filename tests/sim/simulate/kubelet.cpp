// Those above the agent: kubelet, which wants volumes up and down and repeats what failed, and an application on each
// device.
#include <algorithm>

#include "node.hpp"

namespace corbd::sim {
namespace {

using namespace std::chrono_literals;
using plan::Wish;

}  // namespace

plan::Staged stage_wish(const Volume& volume) {
  auto wish = volume.kms.empty() ? test::staged_wish(volume.image) : test::encrypted_wish(volume.image, volume.kms);
  if (volume.files) wish.encryption_type = "file";
  if (volume.integrity) wish.luks.integrity = "hmac-sha256";
  wish.capability.block = volume.block;
  wish.capability.read_only = volume.read_only;
  if (volume.block) wish.capability.fstype.clear();
  return wish;
}

plan::Published publish_wish(const Volume& volume) {
  const auto staged = stage_wish(volume);
  plan::Published wish;
  wish.path = staged.path;
  wish.target = "/kubelet/pods/p/" + volume.image;
  wish.capability = staged.capability;
  return wish;
}

void Node::kubelet_looks(std::size_t i) {
  if (faults_over_) return;
  loop_.outside_in(100ms + below(4s), [this, i] { kubelet_looks(i); });
  Kubelet& kubelet = kubelets_[i];
  if (!agent().running() || kubelet.asking) return;
  if (one_in(20)) kubelet.wants_up = !kubelet.wants_up;
  // After its own restart kubelet stages and publishes everything again.
  const bool again = one_in(15);
  if (history_.orchestrated && !attach(kubelet)) return;
  const bool noted = std::ranges::any_of(
      world_.disk.records, [&](const auto& record) { return record.proof.attachment_uid == world_.attachment.uid; });
  const auto* device = device_of(kubelet.volume.image);
  if (noted && world_.attachment.state == plan::Attachment::State::here && device != nullptr && device->alive)
    world_.moved_away.reset();
  if (history_.orchestrated && kubelet.staged && !noted && !agent().misnamed() && one_in(2))
    return ask(i, plan::Attached{world_.attachment.uid});
  if (kubelet.wants_up) {
    if (!kubelet.staged || (again && !history_.forgetful)) return ask(i, changes_.staged(stage_wish(kubelet.volume)));
    if (!kubelet.published || one_in(15)) return ask(i, changes_.published(publish_wish(kubelet.volume)));
    if (one_in(10) && !kubelet.volume.integrity) return ask(i, plan::Expanded{publish_wish(kubelet.volume).target});
    const bool is_rotated = kubelet.volume.kms == "own" || kubelet.volume.kms == "kept" ||
                            (history_.meddled && kubelet.volume.kms == "plain");
    if (is_rotated && one_in(8)) return ask(i, plan::Rekeyed{stage_wish(kubelet.volume).passphrase});
  } else {
    // A pod ends when its requests have.
    if (kubelet.volume.block && owes(kubelet.volume.image)) return;
    if (kubelet.published || again || (kubelet.refused && one_in(3)))
      return ask(i, plan::Unpublished{publish_wish(kubelet.volume).target});
    if (kubelet.staged || one_in(15)) return ask(i, plan::Unstaged{stage_wish(kubelet.volume).path});
  }
}

/// What is attached elsewhere is taken down here, and then attached anew once nobody else has it: who waits for it
/// still has it no more then. False: nothing is wanted of it now.
bool Node::attach(Kubelet& kubelet) {
  if (world_.attachment.state == plan::Attachment::State::here) return true;
  const auto image = world_.cluster.images.find(kubelet.volume.image);
  const bool left =
      device_of(kubelet.volume.image) != nullptr || !world_.disk.records.empty() || kubelet.staged || kubelet.published;
  if (left || image == world_.cluster.images.end() || !image->second.watchers.empty()) {
    kubelet.wants_up = false;
    return true;
  }
  for (const auto& [agent, name] : waiting_) world_.cluster.other_agent_gives_up(agent);
  waiting_.clear();
  image->second.taken.reset();
  moved_at_.reset();
  world_.attachment = {plan::Attachment::State::here, "uid-" + std::to_string(++attachments_), ""};
  return true;
}

void Node::ask(std::size_t i, Wish wish) {
  kubelets_[i].asking = true;
  trace(std::string(plan::name(wish)) + " of " + kubelets_[i].volume.image);
  asio::co_spawn(processes_.serving().loop().io, asking(*this, i, std::move(wish)), asio::detached);
}

task<> Node::asking(Node& node, std::size_t i, Wish wish) {
  const Until until{node.loop_.clock.now() + 2min};
  const auto done = co_await node.agent().shell().want(node.kubelets_[i].volume.image, wish, until);
  node.answered(i, wish, done);
}

void Node::answered(std::size_t i, const Wish& wish, const result<>& done) {
  Kubelet& kubelet = kubelets_[i];
  kubelet.asking = false;
  if (std::holds_alternative<plan::Healed>(wish)) overridden_.erase(kubelet.volume.image);
  trace(std::string(plan::name(wish)) + " of " + kubelet.volume.image + (done ? " done" : ": " + done.error().text));
  // What may be there must be taken down, also when it is not known to be there.
  if (std::holds_alternative<plan::Staged>(wish)) kubelet.staged = done.has_value();
  if (std::holds_alternative<plan::Published>(wish)) kubelet.published = done.has_value();
  if (std::holds_alternative<plan::Unstaged>(wish)) kubelet.refused = !done;
  if (!done) return;
  if (std::holds_alternative<plan::Unstaged>(wish)) kubelet.staged = false;
  if (std::holds_alternative<plan::Unpublished>(wish)) kubelet.published = false;
  look_at_success(kubelet, wish);
}

void Node::application_works(std::size_t i) {
  if (faults_over_) return;
  loop_.outside_in(20ms + (one_in(3) ? below(50ms) : below(2s)), [this, i] { application_works(i); });
  application_asks(i);
}

void Node::application_hurries(std::size_t i, time_point end) {
  if (faults_over_ || loop_.clock.now() >= end) return;
  loop_.outside_in(below(100ms), [this, i, end] { application_hurries(i, end); });
  application_asks(i);
}

void Node::application_asks(std::size_t i) {
  const Kubelet& kubelet = kubelets_[i];
  auto* device = device_of(kubelet.volume.image);
  if (device == nullptr || !kubelet.published || !kubelet.wants_up) return;
  if (history_.caches && one_in(6)) return world_.kernel.application_flushes(*device);
  const std::size_t block = random_() % test::kBlocks;
  if (!kubelet.volume.read_only && !one_in(4))
    world_.kernel.application_writes(*device, block);
  else
    world_.kernel.application_reads(*device, block);
}

}  // namespace corbd::sim
