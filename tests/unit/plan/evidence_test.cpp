// Every way to serve looks at every kind of evidence of another client (docs/proof-of-ownership.md#evidence).
#include "evidence.hpp"

#include <fstream>
#include <sstream>

#include "model.hpp"
#include "support/places.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

namespace {

const std::string kSelf = "10.0.0.1:0/9", kHere = "10.0.0.1:0/4", kThere = "10.0.0.2:0/5";

bool serves(const Step& step) {
  return std::holds_alternative<step::StartSession>(step) || std::holds_alternative<step::MapKrbd>(step);
}

/// Whether the volume is served at last, or why not.
result<> ends(Model model, const Wish& wish) {
  for (int steps = 0; steps < 60; ++steps) {
    const Decision next = model.decide(wish);
    if (const auto* refused = std::get_if<Refusal>(&next)) return refused->error;
    const auto* step = std::get_if<Step>(&next);
    if (step == nullptr) return Error{errc::unavailable, "it waits"};
    if (serves(*step)) return {};
    model.apply(*step, wish);
  }
  return Error{errc::internal, "no end"};
}

enum class Locked { nobody, us, dead_here, dead_there };
enum class Told { same, again, away, unknown, never };

/// One device of a volume, and everything that anybody could have left at its image.
struct Way {
  Locked lock{};
  bool watch = false;
  int mark = 0;  ///< 1: of this node, 2: of another
  bool stamp = false, dirty = false;
  Told told{};
  bool overridden = false, exclusive = true, handed_over = false, adopting = false;

  Model model() const {
    Model model = staged_model();
    model.seen.link = Observation::Link::none;
    model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
    model.exclusive_lock = exclusive;
    model.record->proof.attachment_uid = "uid-1";
    if (adopting) model.record->adopting.emplace();
    if (adopting) model.seen.devices.front().io_timeout_ms = 30000;
    if (!adopting) model.record->proof.modified = 1;
    auto& who = model.ownership;
    who.self = kSelf;
    who.modified = stamp ? 2 : 1;
    who.lock = lock == Locked::nobody ? Lock::none : lock == Locked::us ? Lock::our_dead : Lock::other;
    who.owner = lock == Locked::nobody ? "" : lock == Locked::dead_there ? kThere + "1" : kHere;
    if (watch) who.foreign_watchers.push_back(kThere + "2");
    if (mark != 0) who.writer = mark == 1 ? kHere + "3" : kThere + "3";
    who.writer_signed = true;
    who.handed_over = model.seen.link_inherited = handed_over;
    if (dirty) model.features.bits = image::kDirtyCache;
    for (const auto& address : {who.owner, who.writer, kThere + "2"})
      if (!address.empty()) model.holders.push_back(Holder{.address = address, .watches = address == kThere + "2"});
    using State = Attachment::State;
    model.attachment = {told == Told::away      ? State::away
                        : told == Told::unknown ? State::unknown
                        : told == Told::never   ? State::none
                                                : State::here,
                        told == Told::same ? "uid-1" : "uid-2", ""};
    return model;
  }

  /// What the page says, without the planner's words.
  bool may_serve() const {
    const bool said = overridden && (told == Told::unknown || told == Told::never);
    if (dirty || watch || lock == Locked::dead_there) return false;
    if (lock == Locked::us) return mark != 2 || (adopting && told == Told::same);
    if (handed_over && !exclusive && lock == Locked::nobody && mark != 2 && !(stamp && !adopting)) return true;
    if (mark == 2 && !(adopting && told == Told::same)) return false;
    if (told == Told::same) return adopting || !stamp || overridden;
    // Another program's dead lock is inherited before anything is asked.
    if (adopting && lock == Locked::dead_here && mark != 2) return true;
    return said;
  }
};

template <class Each>
void each_way(const Each& each) {
  Way way;
  for (const auto lock : {Locked::nobody, Locked::us, Locked::dead_here, Locked::dead_there})
    for (const auto told : {Told::same, Told::again, Told::away, Told::unknown, Told::never})
      for (int mark = 0; mark < 3; ++mark)
        for (unsigned bits = 0; bits < 128; ++bits) {
          const auto bit = [&](unsigned which) { return (bits >> which & 1) != 0; };
          way = {lock, bit(0), mark, bit(1), bit(2), told, bit(3), bit(4), bit(5), bit(6)};
          // There is one mark: the predecessor's, or another's.
          if (!way.handed_over || mark == 0) each(way);
        }
}

std::string page() {
  std::ifstream file(tests_folder() + "/../docs/proof-of-ownership.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string cell(Meaning meaning) {
  if (meaning.means == Means::refuses) return "refused";
  return meaning.means == Means::taken ? "taken" : "–";
}

}  // namespace

TEST_CASE("a device is served on every ground that the page names, and on none against another client's evidence",
          "[failure:191][rule:2a]") {
  std::size_t served = 0;
  each_way([&](const Way& way) {
    const auto outcome = ends(way.model(), Healed{way.overridden});
    CAPTURE(static_cast<int>(way.lock), way.watch, way.mark, way.stamp, way.dirty, static_cast<int>(way.told),
            way.overridden, way.exclusive, way.handed_over, way.adopting);
    CAPTURE(outcome ? "" : outcome.error().text);
    if (outcome.has_value() != way.may_serve()) CHECK(outcome.has_value() == way.may_serve());
    served += outcome ? 1 : 0;
  });
  CHECK(served > 100);
}

TEST_CASE("a volume whose lock was taken late is served only if its attachment, asked anew, or an operator proves it") {
  int served = 0, refused = 0;
  each_way([&](const Way& way) {
    if (!way.exclusive || way.handed_over || way.adopting || way.mark != 0 || !way.may_serve()) return;
    Model model = way.model();
    model.late_lock = true;
    const auto outcome = ends(model, Healed{way.overridden});
    const bool said = way.overridden && way.told != Told::again && way.told != Told::away;
    CAPTURE(static_cast<int>(way.lock), way.stamp, static_cast<int>(way.told), way.overridden);
    CHECK(outcome.has_value() == ((way.told == Told::same && !way.stamp) || said));
    ++(outcome ? served : refused);
  });
  CHECK(served > 5);
  CHECK(refused > 5);
}

TEST_CASE("the image of a client that was cut off before it served is closed") {
  Model model = Way{.lock = Locked::us}.model();
  model.seen.image_open = model.seen.image_cut_off = model.seen.lock_held = true;
  const Decision next = model.decide(Wish(Healed{}));
  const auto* step = std::get_if<Step>(&next);
  REQUIRE(step != nullptr);
  CHECK(std::holds_alternative<step::CloseImage>(*step));
}

TEST_CASE("a first device is made only without a living client, and not below another client's cache",
          "[failure:195][failure:196]") {
  for (const bool by_kernel : {false, true})
    for (const bool dirty : {false, true})
      for (const bool watch : {false, true})
        for (const bool dead_lock : {false, true})
          for (const bool reads : {false, true})
            for (const bool shared : {false, true}) {
              if (reads && shared) continue;
              CAPTURE(by_kernel, dirty, watch, dead_lock, reads, shared);
              Model model = fresh();
              model.ownership.self = kSelf;
              model.attachment = {Attachment::State::here, "uid-1", ""};
              if (dirty) model.features.bits = image::kDirtyCache;
              if (watch) model.ownership.foreign_watchers.push_back(kThere);
              if (dead_lock) model.ownership.lock = Lock::other, model.ownership.owner = kThere + "1";
              model.holders = {Holder{.address = kThere, .watches = true}, Holder{.address = kThere + "1"}};
              Staged wish = staged_wish();
              if (by_kernel) wish.mounter = Mounter::krbd;
              wish.capability.read_only = reads;
              wish.capability.shared = wish.capability.block = shared;
              model.image_has_filesystem = model.image_has_data = true;
              CHECK(ends(model, Wish(wish)).has_value() == (!dirty && (!watch || reads || shared)));
            }
}

TEST_CASE("a living rbd-nbd with a dirty cache is asked to end first, and is served only if its cache was stored") {
  Model model = staged_model();
  model.seen.link = Observation::Link::none;
  model.seen.connected = model.seen.image_open = model.seen.lock_held = false;
  model.record->adopting.emplace();
  model.other_serves = true;
  model.ownership.self = kSelf;
  model.ownership.foreign_watchers = {kHere};
  model.features.bits = image::kDirtyCache;
  const bool stores = GENERATE(true, false);
  bool dismissed = false;
  Decision next;
  for (int steps = 0; steps < 60; ++steps) {
    next = model.decide(Wish(Adopted{}));
    const auto* step = std::get_if<Step>(&next);
    if (step == nullptr || serves(*step)) break;
    model.apply(*step, Wish(Adopted{}));
    if (!std::holds_alternative<step::Dismiss>(*step)) continue;
    dismissed = true;
    if (stores) model.features = {};
  }
  CHECK(dismissed);
  if (stores) REQUIRE(std::holds_alternative<Step>(next));
  if (!stores) CHECK(failure(next) == errc::unsafe_config);
}

TEST_CASE("the page's table of evidence is the planner's") {
  const std::array<std::string, kGrounds> names{
      "it only reads",
      "many nodes write it",
      "this process has held the lock all the time",
      "the device is new",
      "our client has the lock, or had it until we broke it",
      "the predecessor's mark",
      "rbd-nbd ended when it was asked to",
      "the VolumeAttachment",
      "the VolumeAttachment, after rbd-nbd",
      "the VolumeAttachment, and a dead client of this node left the lock",
      "an operator override",
  };
  const std::string text = page();
  for (std::size_t ground = 0; ground < kGrounds; ++ground) {
    std::string row = "| " + names.at(ground) + " |";
    for (const Trace trace : kTraces) row += " " + cell(meaning(static_cast<Ground>(ground), trace)) + " |";
    CAPTURE(row);
    CHECK(text.find(row + "\n") != std::string::npos);
  }
}

TEST_CASE("evidence that does not count has a reason, and a foreign cache always counts") {
  for (std::size_t ground = 0; ground < kGrounds; ++ground) {
    CHECK(meaning(static_cast<Ground>(ground), Trace::dirty_cache).means == Means::refuses);
    for (const Trace trace : kTraces) {
      const auto one = meaning(static_cast<Ground>(ground), trace);
      CHECK((one.means == Means::nothing) == !one.why.empty());
    }
  }
}
