// A first stage of an image that has holders: which of them may be evicted, and the error if none may.
#include <utility>

#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

namespace {

using State = HolderNode::State;
using Steps = std::vector<Step>;

const Holder kHolder{.address = "10.0.0.7:0/1", .client = "client.7", .watches = true, .locks = true};

Holder on(State state, std::optional<bool> attached = std::nullopt) {
  Holder holder = kHolder;
  holder.node = {.state = state, .name = "node-7", .attached = attached};
  return holder;
}

Holder fenced() {
  Holder holder = kHolder;
  holder.blocked = true;
  return holder;
}

/// These clients hold the image, and the volume is attached to this node.
Model held_by(std::vector<Holder> holders) {
  Model model = fresh();
  model.holders = std::move(holders);
  for (const auto& holder : model.holders) {
    model.ownership.foreign_watchers.push_back(holder.address);
    if (holder.locks) model.ownership.lock = Lock::other, model.ownership.owner = holder.address;
  }
  model.attachment = {Attachment::State::here, "uid", ""};
  model.policy.fence_out_of_service = true;
  return model;
}

Model without_flag(Model model) {
  return but(std::move(model), [](Model& of) { of.policy.fence_out_of_service = false; });
}

/// The owner of the lock is dead, and its watch has ended.
Model left_its_lock() {
  return but(held_by({kHolder}), [](Model& of) { of.ownership.foreign_watchers.clear(); });
}

Model attachment(Model model, Attachment::State state) {
  return but(std::move(model), [&](Model& of) { of.attachment = {state, "uid", ""}; });
}

/// The image has no exclusive-lock feature.
Model lockless(Model model) {
  return but(std::move(model), [](Model& of) { of.exclusive_lock = false; });
}

/// The image has no exclusive-lock feature, and the mark of a writer on a ready node.
Model marked(bool watches) {
  Holder writer = on(State::ready);
  writer.watches = watches;
  writer.locks = false;
  Model model = lockless(held_by({writer}));
  if (!watches) model.ownership.foreign_watchers.clear();
  model.ownership.writer = writer.address;
  model.ownership.writer_signed = true;
  return model;
}

const Step kHolders = step::Look{Fact::holders}, kAttachment = step::Look{Fact::attachment};

/// The whole stage, with the eviction after these looks.
Steps taken(Steps looks) {
  looks.push_back(step::Evict{});
  looks.push_back(step::Look{Fact::ownership});
  return sequence({opened(), looks, connected(), {step::Look{Fact::probe}}, proven_empty(), {step::Mkfs{}}, mounted()});
}

Steps refused(Steps looks) { return sequence({opened(), looks}); }

std::string refusal(Model model) {
  Decision last = Done{};
  REQUIRE(run(model, Wish(staged_wish()), &last));
  const auto* failed = std::get_if<Refusal>(&last);
  REQUIRE(failed != nullptr);
  CHECK(failed->error.code == errc::in_use);
  CHECK(failed->leaves);
  return failed->error.text;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("an image is taken over only from holders that can no longer write it, and only after their eviction") {
  const Wish stage = staged_wish();
  using At = Attachment::State;
  check({
      {"a fenced client", held_by({fenced()}), stage, taken({kHolders, kAttachment})},
      {"a fenced client, without the flag", without_flag(held_by({fenced()})), stage, taken({kHolders, kAttachment})},
      {"a fenced client, not known where attached", attachment(held_by({fenced()}), At::unknown), stage,
       taken({kHolders, kAttachment})},
      {"a fenced client, never attached", attachment(held_by({fenced()}), At::none), stage,
       taken({kHolders, kAttachment})},
      {"a fenced client of an image without a lock", lockless(held_by({fenced()})), stage,
       taken({kHolders, kAttachment})},
      {"a writer of an image without a lock, whose watch has ended since it was asked whose it is",
       but(marked(false), [](Model& of) { of.holders.front().watches = true; }), stage, taken({kHolders, kAttachment})},
      {"a writer of an image without a lock, of which only its mark is left", without_flag(marked(false)), stage,
       taken({kHolders, kAttachment})},
      {"the owner of a lock, whose watch has ended", left_its_lock(), stage, taken({kAttachment, kHolders})},
      {"the owner of a lock, whose watch has ended, without the flag", without_flag(left_its_lock()), stage,
       taken({kAttachment, kHolders})},
      {"out of service", held_by({on(State::out_of_service)}), stage, taken({kHolders, kAttachment})},
      {"gone, and detached", held_by({on(State::gone, false)}), stage, taken({kHolders, kAttachment})},
      {"fenced, and out of service",
       held_by({fenced(),
                [] {
                  auto other = on(State::out_of_service);
                  other.address = "10.0.0.8:0/1";
                  other.locks = false;
                  return other;
                }()}),
       stage, taken({kHolders, kAttachment})},
  });
  check({
      {"out of service, without the flag", without_flag(held_by({on(State::out_of_service)})), stage,
       refused({kHolders}), errc::in_use},
      {"fenced, attached elsewhere", attachment(held_by({fenced()}), At::away), stage, refused({kHolders, kAttachment}),
       errc::in_use},
      {"left its lock, attached elsewhere", attachment(left_its_lock(), At::away), stage, refused({kAttachment}),
       errc::in_use},
      {"a mark that is not signed", but(marked(false), [](Model& of) { of.ownership.writer_signed = false; }), stage,
       refused({kHolders}), errc::in_use},
      {"out of service, attached elsewhere", attachment(held_by({on(State::out_of_service)}), At::away), stage,
       refused({kHolders, kAttachment}), errc::in_use},
      {"out of service, not known where attached", attachment(held_by({on(State::out_of_service)}), At::unknown), stage,
       refused({kHolders, kAttachment}), errc::in_use},
      {"out of service, never attached", attachment(held_by({on(State::out_of_service)}), At::none), stage,
       refused({kHolders, kAttachment}), errc::in_use},
      {"out of service, an image without a lock", lockless(held_by({on(State::out_of_service)})), stage,
       refused({kHolders, kAttachment}), errc::in_use},
      {"a writer of an image without a lock, whose watch is back since it was asked whose it is",
       but(marked(true), [](Model& of) { of.holders.front().watches = false; }), stage, refused({kHolders}),
       errc::in_use},
      {"a writer of an image without a lock, which has it open", marked(true), stage, refused({kHolders}),
       errc::in_use},
      {"gone, and still attached", held_by({on(State::gone, true)}), stage, refused({kHolders}), errc::in_use},
      {"gone, nobody knows whether attached", held_by({on(State::gone)}), stage, refused({kHolders}), errc::in_use},
      {"not ready", held_by({on(State::not_ready, false)}), stage, refused({kHolders}), errc::in_use},
      {"ready", held_by({on(State::ready, false)}), stage, refused({kHolders}), errc::in_use},
      {"of no known node", held_by({kHolder}), stage, refused({kHolders}), errc::in_use},
      {"one fenced, one alive",
       held_by({fenced(),
                [] {
                  auto other = on(State::ready);
                  other.address = "10.0.0.8:0/1";
                  return other;
                }()}),
       stage, refused({kHolders}), errc::in_use},
  });
}

TEST_CASE("a heal evicts no other client, even one whose node is out of service") {
  Model model = staged_model();
  model.seen.link = Observation::Link::none;
  model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
  model.ownership.foreign_watchers = {kHolder.address};
  model.ownership.lock = Lock::other;
  model.ownership.owner = kHolder.address;
  model.holders = {on(State::out_of_service)};
  model.policy.fence_out_of_service = true;
  model.attachment = {Attachment::State::here, "uid", ""};
  model.record->proof.attachment_uid = "uid";
  const auto steps = run(model, Wish(Healed{}));
  REQUIRE(steps);
  for (const auto& step : *steps) CHECK_FALSE(std::holds_alternative<step::Evict>(step));
}

TEST_CASE("the error of an unproven volume waits for a living lock owner, and says how to remove a dead one's lock") {
  const bool lives = GENERATE(true, false);
  Model model = staged_model();
  model.seen.link = Observation::Link::none;
  model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
  if (lives) model.ownership.foreign_watchers = {kHolder.address};
  model.ownership.lock = Lock::other;
  model.ownership.owner = kHolder.address;
  model.attachment = {Attachment::State::here, "uid", ""};
  model.record->proof.attachment_uid = "uid";
  Decision last;
  REQUIRE(run(model, Wish(Healed{}), &last));
  REQUIRE(failure(last) == errc::unproven);
  const std::string& text = std::get<Refusal>(last).error.text;
  CHECK(has(text, "not served until that client is gone") == lives);
  CHECK(has(text, "corbd fail image-1 --yes-really") == !lives);
  CHECK(has(text, "rbd lock rm") == !lives);
}

TEST_CASE("the error of an image in use names the holder, its node, the node's state, and the remedy") {
  Holder holder = on(State::not_ready, true);
  holder.node.since = "2026-11-23T03:00:00Z";
  holder.node.attached_since = "2026-11-22T03:00:00Z";
  const std::string text = refusal(held_by({holder}));
  for (const char* part :
       {"client.7 at 10.0.0.7:0/1 on node node-7", "not ready since 2026-11-23T03:00:00Z",
        "attached there since 2026-11-22T03:00:00Z", "has it open and locked", "out-of-service", "corbd take image-1"})
    CHECK(has(text, part));
  CHECK(has(refusal(held_by({on(State::ready)})), "end its pods there"));
  CHECK(has(refusal(without_flag(held_by({on(State::out_of_service)}))), "--fence-out-of-service"));
  CHECK(has(refusal(lockless(held_by({on(State::out_of_service)}))), "no exclusive-lock feature"));
  CHECK(has(refusal(held_by({kHolder})), "of no known node"));
}

TEST_CASE("the owner of a lock is evicted again if it still has the lock after the first eviction") {
  Model model = left_its_lock();
  int evicted = 0;
  for (int i = 0; i < 40 && evicted < 2; ++i) {
    const Decision next = model.decide(Wish(staged_wish()));
    REQUIRE(std::holds_alternative<Step>(next));
    const Step& step = std::get<Step>(next);
    REQUIRE_FALSE(std::holds_alternative<step::Lock>(step));
    const auto before = model.ownership;
    model.apply(step, Wish(staged_wish()));
    if (!std::holds_alternative<step::Evict>(step)) continue;
    model.ownership = before;
    ++evicted;
  }
  CHECK(evicted == 2);
}

TEST_CASE("the error of an image in use says how long the volume has waited") {
  Model model = held_by({kHolder});
  model.seen.in_use_for = std::chrono::seconds(42);
  CHECK(has(refusal(model), "waited for 42 s"));
}

TEST_CASE("a client that opens the image during another client's eviction is found before the image is taken over") {
  Model model = held_by({fenced()});
  Decision last = Done{};
  bool came = false;
  for (int i = 0; i < 40 && !std::holds_alternative<Refusal>(last); ++i) {
    last = model.decide(Wish(staged_wish()));
    const auto* step = std::get_if<Step>(&last);
    if (step == nullptr) break;
    REQUIRE_FALSE(std::holds_alternative<step::Lock>(*step));
    model.apply(*step, Wish(staged_wish()));
    if (!std::holds_alternative<step::Evict>(*step) || std::exchange(came, true)) continue;
    Holder newcomer = on(State::ready);
    newcomer.address = "10.0.0.8:0/1";
    model.holders = {newcomer};
    model.ownership.foreign_watchers.push_back(newcomer.address);
  }
  REQUIRE(std::holds_alternative<Refusal>(last));
  CHECK(std::get<Refusal>(last).error.code == errc::in_use);
  CHECK(has(std::get<Refusal>(last).error.text, "10.0.0.8:0/1"));
}

TEST_CASE("an eviction leaves out a holder that no longer has the image open") {
  Holder left = fenced();
  left.address = "10.0.0.8:0/1";
  left.locks = false;
  Model model = held_by({fenced(), left});
  model.ownership.foreign_watchers = {kHolder.address};
  for (int i = 0; i < 40; ++i) {
    const Decision next = model.decide(Wish(staged_wish()));
    REQUIRE(std::holds_alternative<Step>(next));
    const Step& step = std::get<Step>(next);
    if (const auto* evict = std::get_if<step::Evict>(&step)) {
      REQUIRE(evict->holders.size() == 1);
      CHECK(evict->holders.front().address == kHolder.address);
      return;
    }
    model.apply(step, Wish(staged_wish()));
  }
  FAIL("nobody was cut off");
}

TEST_CASE("another client of this node is not evicted, even if the node is said to be out of service") {
  Model model = held_by({on(State::out_of_service)});
  model.seen.client = "10.0.0.7:0/9";
  CHECK(has(refusal(model), "10.0.0.7:0/1"));
}

TEST_CASE("a fenced node opens no image, and a volume is lost there only if it is attached elsewhere") {
  const auto fenced_node = [](Attachment::State state) {
    Model model = staged_model();
    model.seen.link = Observation::Link::none;
    model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
    model.seen.facts.node_fenced = Error{errc::node_fenced, "fenced"};
    model.attachment = {state, "uid", ""};
    model.record->proof.attachment_uid = "uid";
    return model;
  };
  using At = Attachment::State;
  const Wish heal = Healed{};
  check({
      {"attached here", fenced_node(At::here), heal, {kAttachment}, errc::node_fenced},
      {"attached elsewhere", fenced_node(At::away), heal, {kAttachment}, errc::lost},
      {"nobody knows", fenced_node(At::unknown), heal, {kAttachment}, errc::node_fenced},
      {"of the kernel's client, fresh",
       but(fresh(), [](Model& of) { of.seen.facts.node_fenced = Error{errc::node_fenced, "fenced"}; }),
       [] {
         Staged wish = staged_wish();
         wish.mounter = Mounter::krbd;
         return Wish(wish);
       }(),
       {step::Look{Fact::resolved}, step::WriteRecord{}},
       errc::node_fenced},
  });
}
