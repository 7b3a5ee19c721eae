// What must be true of two nodes when nothing goes wrong any more. That no two servers write one image is looked after
// with every step (tests/support/world/pair.cpp), and what is written and read where it happens.
#include "two_nodes.hpp"

namespace corbd::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::minutes kByItself{6}, kByHand{20};

}  // namespace

/// Liveness: the volume is served on the node that it is attached to, and has what was acknowledged on either.
void TwoNodes::converge() {
  forced_at_ = pair_.now();
  const auto has_converged = [&] { return attached_ == wanted_ && is_up(sides_.at(attached_)); };
  const auto converge = [&] {
    const auto by_itself = pair_.now() + kByItself, end = by_itself + kByHand;
    while (!has_converged() && pair_.now() < end && !broken()) {
      go_until(std::min(pair_.now() + 1min, end));
      if (pair_.now() >= by_itself) operator_gives_up();
    }
  };
  converge();
  // Only now it may hear that it was cut off.
  go_until(pair_.now() + 30s);
  // A handover that was under way may have ended with an agent of another name: somebody starts one with the right
  // name.
  for (Side& side : sides_) {
    if (!side.world->agent.misnamed()) continue;
    side.processes->crash();
    test::Pair::start(*side.world);
  }
  converge();
  const Side& side = sides_.at(wanted_);
  // A format that another node began may be another's data, an older copy of a record has no proof, and neither has an
  // image without a lock whose client was given up: people look at it.
  const bool for_people =
      image().metadata.contains("corbd/format") || changes_.damaged(volume_.image) || changes_.rests_on_operator();
  if (broken() || (for_people && !has_converged())) return;
  if (!has_converged()) {
    const auto status =
        side.world->agent.running() ? side.world->agent.shell().status(volume_.image) : std::optional<volume::Status>();
    return side.world->broke("the volume is not served on " + side.name + ", which it is attached to" +
                             (status && status->last_error ? ": " + status->last_error->text : ""));
  }
  go_until(pair_.now() + 30s);
  if (broken() || device_of(side) == nullptr) return;
  const auto before = side.world->kernel.answered;
  for (std::size_t block = 0; block < test::kBlocks; ++block)
    side.world->kernel.application_reads(*device_of(side), block);
  // A client that is still denied what its user may do again is replaced after a few denials.
  const auto is_answered = [&] { return side.world->kernel.answered == before + test::kBlocks; };
  for (const auto end = pair_.now() + 3min; !is_answered() && pair_.now() < end && !broken();)
    go_until(pair_.now() + 10s);
  if (!broken() && !is_answered() && !for_people)
    side.world->broke("a volume that is served answers no reads: " + volume_.image);
}

/// What is not proven ours, or lost, for minutes, ends by hand only.
void TwoNodes::operator_gives_up() {
  for (Side& side : sides_) {
    const auto* device = device_of(side);
    const bool waits = device != nullptr && !device->alive && side.world->agent.running();
    if (!waits) continue;
    side.trace("an operator gives the volume up");
    side.world->agent.given_up.insert(volume_.image);
    static_cast<void>(pair_.ask(*side.world, volume_.image, plan::GivenUp{}));
  }
}

void TwoNodes::take_down() {
  unwanted_ = true;
  const auto left = [&] { return is_left(sides_[0]) || is_left(sides_[1]); };
  const auto by_itself = pair_.now() + kByItself, end = by_itself + kByHand;
  while (left() && pair_.now() < end && !broken()) {
    go_until(std::min(pair_.now() + 1min, end));
    if (pair_.now() >= by_itself) operator_gives_up();
  }
  // Images of volumes that were given up are closed when they can be.
  while (pair_.cluster.has_open_images() && pair_.now() < end && !broken()) go_until(pair_.now() + 1s);
}

void TwoNodes::look_at_what_is_left() {
  if (broken()) return;
  for (const Side& side : sides_) {
    test::World& world = *side.world;
    const auto left = [&](bool is, const char* what) {
      if (is) world.broke(std::string(what) + " is left on " + side.name + " after everything was unstaged");
    };
    left(!world.kernel.devices.empty(), "a device");
    left(!world.disk.records.empty(), "a record");
    left(!world.disk.keys.empty(), "a key");
    left(!world.kernel.mounts.empty(), "a mount");
    left(!world.disk.places.empty(), "a folder or file for a mount");
  }
  if (pair_.cluster.has_open_images()) pair_.a.broke("an image is left open after everything was unstaged");
  for (std::size_t block = 0; block < test::kBlocks; ++block)
    if (image().blocks[block] < image().acked[block])
      pair_.a.broke("an acknowledged write is lost: block " + std::to_string(block) + " of " + image().id);
  if (!pair_.cluster.opens(volume_.image)) pair_.a.broke("no key slot opens with the key that the KMS has");
}

}  // namespace corbd::sim
