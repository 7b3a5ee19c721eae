// The values that the tests of the planner begin with, and how they run it.
#include "model.hpp"

namespace corbd::test {

device::Seen device_seen(std::uint32_t index, device::Kind kind) {
  device::Seen seen;
  seen.kind = kind;
  seen.index = index;
  if (traits(kind).identified) seen.backend = kId;
  seen.dev_major = 43;
  seen.dev_minor = index * 32;
  seen.io_timeout_ms = 30000;
  return seen;
}

device::UpperDevice mapping() { return {"dm-0", mapping_name(kId), 1 << 29, 253, 0}; }
device::UpperDevice inner_mapping() { return {"dm-1", mapping_name(kId) + "_dif", 1 << 29, 253, 1}; }

host::Mount mount_of(const device::Seen& device, const std::string& target) {
  host::Mount mount;
  mount.dev_major = device.dev_major;
  mount.dev_minor = device.dev_minor;
  mount.target = target;
  mount.fstype = "ext4";
  return mount;
}

Staged staged_wish() {
  Staged wish;
  wish.path = kPath;
  wish.capability.fstype = "ext4";
  wish.source.pool = "pool";
  wish.source.image = "image";
  return wish;
}

Record some_record(Phase phase) {
  Record record;
  record.volume_id = kId;
  record.names.node = kPolicy.node;
  record.source = staged_wish().source;
  record.device.boot_id = "boot";
  record.device.exclusive_lock = true;
  if (phase != Phase::unstaging) record.stagings.push_back({kPath, staged_wish().capability, phase == Phase::staged});
  return record;
}

Model fresh() {
  Model model;
  model.seen.boot_id = "boot";
  model.seen.key_known = true;
  return model;
}

Model staged_model() {
  Model model = fresh();
  model.record = some_record(Phase::staged);
  model.record->device.index = 3;
  model.seen.devices.push_back(device_seen(3));
  model.seen.devices.front().io_timeout_ms = 1000;
  model.seen.link = Observation::Link::serving;
  model.seen.connected = model.seen.image_open = model.seen.lock_held = model.seen.exclusive_lock = true;
  model.seen.mounts.push_back(mount_of(model.seen.devices.front(), kPath + "/" + kId));
  model.image_has_filesystem = model.image_has_data = true;
  return model;
}

std::vector<Step> sequence(std::initializer_list<std::vector<Step>> parts) {
  std::vector<Step> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Step outline(Step step) {
  if (auto* write = std::get_if<step::WriteRecord>(&step)) *write = {};
  if (auto* write = std::get_if<step::WriteStash>(&step)) write->stash = {};
  if (auto* write = std::get_if<step::WriteNote>(&step)) write->note = {};
  if (auto* evict = std::get_if<step::Evict>(&step)) evict->holders = {};
  return step;
}

std::optional<std::vector<Step>> run(Model& model, const Wish& wish, Decision* last) {
  std::vector<Step> steps;
  for (int i = 0; i <= 40; ++i) {
    const Decision decision = model.decide(wish);
    if (last != nullptr) *last = decision;
    const auto* step = std::get_if<Step>(&decision);
    if (step == nullptr) return steps;
    steps.push_back(outline(*step));
    model.apply(*step, wish);
  }
  return std::nullopt;
}

errc failure(const Decision& decision) {
  const auto* failed = std::get_if<Refusal>(&decision);
  return failed == nullptr ? errc::ok : failed->error.code;
}

namespace {

/// Shown if a row fails.
std::string text(const std::vector<Step>& steps) {
  std::string all;
  for (const auto& step : steps) {
    all += "\n  " + std::string(name(step));
    if (const auto* look = std::get_if<step::Look>(&step)) all += " " + std::to_string(static_cast<int>(look->fact));
  }
  return all;
}

}  // namespace

void check(const std::vector<Row>& rows) {
  for (const auto& row : rows) {
    Model model = row.model;
    Decision last;
    const auto steps = run(model, row.wish, &last);
    INFO(row.name);
    REQUIRE(steps);
    INFO("steps:" << text(*steps));
    CHECK(*steps == row.steps);
    CHECK(failure(last) == row.ends);
    CHECK(std::holds_alternative<Wait>(last) == row.waits);
  }
}

}  // namespace corbd::test
