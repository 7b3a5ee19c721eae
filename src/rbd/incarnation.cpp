#include "incarnation.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "address.hpp"
#include "corbd/core/fields_json.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/text.hpp"
#include "corbd/rbd/clusters.hpp"

namespace corbd::fields {

using rbd::Incarnation;

template <>
struct Written<Incarnation::State> {
  static bool to(Incarnation::State state) { return state == Incarnation::State::fenced; }
  static result<Incarnation::State> from(bool fenced) {
    return fenced ? Incarnation::State::fenced : Incarnation::State::dead;
  }
};

}  // namespace corbd::fields

namespace corbd::rbd {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFile = 65536;
constexpr std::size_t kSpareBytes = 4096;
constexpr int kSpares = 16;
constexpr std::string_view kSuffix = ".json";
constexpr std::size_t kManyFiles = 64;
constexpr std::size_t kMostAddresses = 512;  ///< keeps a file below kMaxFile

Error corrupt(std::string why) { return {errc::state_corrupt, std::move(why)}; }

// A file that cannot be read now (other than one with wrong content) must stop the start, or its incarnation would go
// unfenced.
result<> load_one(LoadedIncarnations& into, const std::string& dir, const std::string& name, std::int64_t now,
                  const std::string& boot_id) {
  const std::string path = dir + "/" + name;
  auto text = read_file(path, kMaxFile);
  // The agent that serves beside this one removed it.
  if (!text && text.error().code == errc::not_found) return {};
  if (!text && text.error().code != errc::state_corrupt) return text.error();
  auto parsed = text ? parse_incarnation(*text) : result<Incarnation>(text.error());
  if (!parsed && parsed.error().code == errc::state_newer) return with_context(path, parsed.error());
  if (parsed && parsed->uuid + std::string(kSuffix) != name) parsed = corrupt("the name does not match the content");
  if (!parsed) {
    const std::string aside = path + ".corrupt-" + std::to_string(now);
    std::error_code failed;
    fs::rename(path, aside, failed);
    if (failed) return Error{errc::state_write, "renaming " + path + ": " + failed.message()};
    // Log this at once: if another file cannot be read, nobody learns the rest of this result.
    log::error("incarnation.corrupt", {{"set_aside_as", aside},
                                       {"hint",
                                        "that client stays unfenced, and a lock that it left counts as another "
                                        "client's: blocklist its address by hand if you know it"}});
    into.set_aside.push_back(aside);
    return {};
  }
  const bool ended = parsed->state == Incarnation::State::fenced && parsed->fenced_at + kBlocklistTime.count() < now;
  if (ended && parsed->boot_id != boot_id) {
    static_cast<void>(forget_incarnation(dir, parsed->uuid));  // if it fails, the next start does it
    return {};
  }
  into.all.push_back(std::move(*parsed));
  return {};
}

bool can_merge(const Incarnation& one) {
  return one.state == Incarnation::State::fenced && one.addresses.size() <= kMostAddresses / 2;
}

/// Makes one file that replaces theirs.
Incarnation merged(const std::vector<Incarnation>& alike) {
  Incarnation all = alike.front();
  all.uuid = make_uuid();
  for (const auto& one : alike) {
    all.addresses.insert(all.addresses.end(), one.addresses.begin(), one.addresses.end());
    all.fenced_at = std::max(all.fenced_at, one.fenced_at);
  }
  std::ranges::sort(all.addresses);
  const auto repeated = std::ranges::unique(all.addresses);
  all.addresses.erase(repeated.begin(), repeated.end());
  return all;
}

void replace_by_one(const std::string& dir, std::vector<Incarnation>& all, const std::vector<Incarnation>& alike) {
  if (alike.size() < 2) return;
  const Incarnation one = merged(alike);
  if (!save_incarnation(dir, one, false)) return;
  for (const auto& old : alike) {
    std::error_code ignored;  // a file that stays repeats the new one
    fs::remove(incarnation_file(dir, old.uuid), ignored);
    std::erase_if(all, [&](const Incarnation& known) { return known.uuid == old.uuid; });
  }
  all.push_back(one);
}

std::string spare_file(const std::string& dir, int number) { return dir + "/spare-" + std::to_string(number); }

/// Writes into the file's own blocks, then renames it. A death in between leaves a spare that is not usable. Spaces may
/// follow the JSON text.
result<> take_spare(const std::string& spare, const std::string& path, const std::string& text) {
  std::string content = text;
  content.resize(kSpareBytes, ' ');
  return overwrite_durably(spare, path, content);
}

}  // namespace

result<std::vector<image::BlocklistEntry>> entries_to_cut_off(const Incarnation& one) {
  std::vector<image::BlocklistEntry> entries;
  for (const auto& address : one.addresses) {
    auto entry = image::entry_of_client(address);
    if (!entry) return entry.error();
    entries.push_back(std::move(*entry));
  }
  return entries;
}

std::int64_t seconds_since_1970(const Clock& clock) {
  return std::chrono::duration_cast<std::chrono::seconds>(clock.wall().time_since_epoch()).count();
}

std::string make_uuid() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("getrandom failed");
  return hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string to_json(const Incarnation& incarnation) { return fields::to_file(incarnation, kIncarnationVersion); }

result<Incarnation> parse_incarnation(std::string_view text) {
  auto object = fields::parse_file(text, "incarnation", kIncarnationVersion);
  if (!object) return object.error();
  auto read = fields::from_json<Incarnation>(*object, "incarnation");
  if (!read) {
    // A client that can still be named counts as dead, and is fenced again. Set aside, it would stay unfenced.
    for (const char* of_the_fence : {"fenced", "fenced_at", "boot_id", "ended"}) object->erase(of_the_fence);
    read = fields::from_json<Incarnation>(*object, "incarnation");
  }
  if (!read) return read.error();
  if (read->uuid.empty() || read->fsid.empty() || read->cluster_id.empty() || read->addresses.empty())
    return corrupt("it has no uuid, fsid, cluster or addresses");
  for (auto& address : read->addresses) {
    const auto parsed = parse_addresses(address);
    if (parsed.size() != 1) return corrupt("not a client address: " + address);
    address = parsed.front();
  }
  // Without the time nobody knows how long the fence lasts, and a client that was not fenced has none.
  if (!object->contains("fenced_at")) read->state = Incarnation::State::dead;
  if (read->state != Incarnation::State::fenced) {
    read->fenced_at = 0;
    read->ended = false;
  }
  return read;
}

std::string incarnation_file(const std::string& dir, const std::string& uuid) {
  return dir + "/" + uuid + std::string(kSuffix);
}

result<> save_incarnation(const std::string& dir, const Incarnation& incarnation, bool spares) {
  const std::string text = to_json(incarnation);
  auto written = write_durably(incarnation_file(dir, incarnation.uuid), text, 0600);
  // If this is not written, the next start fences the client once more.
  if (written || !spares || incarnation.state == Incarnation::State::fenced || text.size() > kSpareBytes)
    return written;
  for (int number = 0; number < kSpares; ++number)
    if (take_spare(spare_file(dir, number), incarnation_file(dir, incarnation.uuid), text)) return {};
  return written;
}

void keep_spares(const std::string& dir) {
  for (int number = 0; number < kSpares; ++number) {
    std::error_code failed;
    if (fs::file_size(spare_file(dir, number), failed) == kSpareBytes && !failed) continue;
    if (!write_durably(spare_file(dir, number), std::string(kSpareBytes, ' '), 0600)) return;
  }
}

result<> forget_incarnation(const std::string& dir, const std::string& uuid) {
  return remove_durably(incarnation_file(dir, uuid));
}

result<LoadedIncarnations> load_incarnations(const std::string& dir, std::int64_t now, const std::string& boot_id) {
  if (auto made = make_folder(dir, 0700); !made) return made.error();
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(dir, failed), end; !failed && entry != end; entry.increment(failed))
    if (std::string name = entry->path().filename(); name.ends_with(kSuffix)) names.push_back(std::move(name));
  if (failed) return Error{errc::unavailable, "reading the folder " + dir + ": " + failed.message()};
  std::sort(names.begin(), names.end());
  LoadedIncarnations loaded;
  for (const auto& name : names)
    if (auto done = load_one(loaded, dir, name, now, boot_id); !done) return done.error();
  return loaded;
}

void merge_fenced(const std::string& dir, std::vector<Incarnation>& all) {
  std::map<std::tuple<std::string, std::string, std::string, bool>, std::vector<Incarnation>> groups;
  for (const auto& one : all)
    if (can_merge(one)) groups[{one.fsid, one.cluster_id, one.boot_id, one.ended}].push_back(one);
  for (const auto& [key, alike] : groups) {
    if (alike.size() < kManyFiles) continue;
    std::vector<Incarnation> next;
    std::size_t addresses = 0;
    for (const auto& one : alike) {
      if (addresses + one.addresses.size() > kMostAddresses) {
        replace_by_one(dir, all, std::exchange(next, {}));
        addresses = 0;
      }
      addresses += one.addresses.size();
      next.push_back(one);
    }
    replace_by_one(dir, all, next);
  }
}

void Incarnations::remove(const std::string& uuid) {
  std::erase_if(all_, [&](const Incarnation& one) { return one.uuid == uuid; });
}

void Incarnations::note_opened(const std::string& uuid, const std::string& image) {
  for (auto& one : all_)
    if (one.uuid == uuid) one.open.insert(image);
}

void Incarnations::note_closed(const std::string& uuid, const std::string& image, bool left) {
  for (auto& one : all_) {
    if (one.uuid != uuid) continue;
    if (const auto place = one.open.find(image); place != one.open.end()) one.open.erase(place);
    if (left) one.left.insert(image);
  }
}

void Incarnations::note_taken(const std::string& uuid, const std::string& image) {
  for (auto& one : all_)
    if (one.uuid == uuid) one.left.erase(image);
}

void Incarnations::replace(const std::string& uuid, Incarnation ended) {
  for (const auto& one : all_)
    if (one.uuid == uuid) ended.left = one.left;
  remove(uuid);
  add(std::move(ended));
}

void Incarnations::set_state(const std::string& uuid, Incarnation::State state, std::int64_t fenced_at) {
  for (auto& one : all_)
    if (one.uuid == uuid) {
      one.state = state;
      one.fenced_at = fenced_at;
    }
}

void Incarnations::take_over(const std::vector<Incarnation>& files, bool ended) {
  using State = Incarnation::State;
  // Clients that yielded have the state of their files now.
  std::set<std::string> yielded;
  for (const auto& one : all_)
    if (one.state == State::yields) yielded.insert(one.uuid);
  std::erase_if(all_, [](const Incarnation& one) { return one.state == State::yields; });
  for (auto one : files) {
    one.handed_over = one.state == State::fenced && yielded.contains(one.uuid);
    if (std::ranges::any_of(all_, [&](const Incarnation& known) { return known.uuid == one.uuid; })) continue;
    if (!ended && one.state == State::dead) one.state = State::yields;
    add(std::move(one));
  }
}

void Incarnations::doubt_entries() {
  for (auto& one : all_)
    if (one.state == Incarnation::State::fenced && !one.ended) one.state = Incarnation::State::dead;
}

std::vector<Incarnation> Incarnations::unfenced(const std::string& fsid) const {
  std::vector<Incarnation> found;
  std::copy_if(all_.begin(), all_.end(), std::back_inserter(found),
               [&](const Incarnation& one) { return one.fsid == fsid && one.state == Incarnation::State::dead; });
  return found;
}

std::vector<Incarnation> Incarnations::unlisted(const image::Blocklist& now) const {
  const auto is_listed = [&](const image::BlocklistEntry& entry) {
    return std::ranges::any_of(now.entries, [&](const auto& there) { return there.same_target(entry); });
  };
  std::vector<Incarnation> found;
  for (const auto& one : all_) {
    if (one.fsid != now.fsid || one.state != Incarnation::State::fenced || one.ended) continue;
    const auto entries = entries_to_cut_off(one);
    if (entries && !std::ranges::all_of(*entries, is_listed)) found.push_back(one);
  }
  return found;
}

const Incarnation* Incarnations::find(const std::string& fsid, const std::string& address) const {
  const std::string bare = bare_address(address);
  for (const auto& one : all_)
    if (one.fsid == fsid && std::find(one.addresses.begin(), one.addresses.end(), bare) != one.addresses.end())
      return &one;
  return nullptr;
}

}  // namespace corbd::rbd
