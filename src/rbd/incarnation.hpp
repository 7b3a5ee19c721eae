// Incarnations: one per rados_t, identified by its client addresses. Its file tells the next start whom to blocklist.
// The file of a fenced incarnation stays, so that after another crash we still know a lock that names it as ours.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/clock.hpp"
#include "corbd/core/fields.hpp"
#include "corbd/core/result.hpp"
#include "corbd/image/blocklist.hpp"

namespace corbd::rbd {

/// Duration of a blocklisting, and of our memory of a fenced incarnation.
inline constexpr std::chrono::seconds kBlocklistTime = image::kLongestAway;

struct Incarnation {
  enum class State {
    live,
    yields,  ///< a living predecessor's: ended for each image that it does not watch
    dead,
    fenced  ///< blocklisted, or ended with nothing under way: none of its requests can arrive any more
  } state = State::dead;
  std::string uuid;  ///< name of the file
  std::string fsid, cluster_id;
  std::vector<std::string> addresses;  ///< bare addresses
  std::int64_t fenced_at = 0;          ///< seconds since 1970
  std::string boot_id = {};            ///< boot in which it was fenced
  bool ended = false;                  ///< fenced without an entry in the blocklist, because it ended cleanly
  bool handed_over = false;            ///< ended cleanly after it had handed its images to this process
  /// Images (image::Key::text()) that it has left to this process's next client, with their lock or mark.
  std::set<std::string> left = {};
  /// Images that it has open, once for each handle. A handle counts until its last operation has ended and it is
  /// closed.
  std::multiset<std::string> open = {};
  static constexpr bool has_unsaved_members = true;  ///< handed_over, left and open are of this process
  /// Whether it has left that image, and nothing of it can arrive there any more.
  bool has_left(const std::string& image) const { return left.contains(image) && !open.contains(image); }
  /// Whether it is alive, and may have that image open.
  bool has(const std::string& image) const { return state == State::live && !has_left(image); }
  static constexpr std::tuple fields{fields::required("uuid", &Incarnation::uuid),
                                     fields::required("fsid", &Incarnation::fsid),
                                     fields::required("cluster_id", &Incarnation::cluster_id),
                                     fields::required("addresses", &Incarnation::addresses),
                                     fields::added("fenced", &Incarnation::state),
                                     fields::added("fenced_at", &Incarnation::fenced_at),
                                     fields::added("boot_id", &Incarnation::boot_id),
                                     fields::rare("ended", &Incarnation::ended)};
};

/// Returns the entries that cut it off. invalid_argument: one of its addresses is no client's.
result<std::vector<image::BlocklistEntry>> entries_to_cut_off(const Incarnation& one);

/// Returns the time that `fenced_at` and load_incarnations() use.
std::int64_t seconds_since_1970(const Clock& clock);
std::string make_uuid();
std::string to_json(const Incarnation& incarnation);
/// `live` never comes from a file, because its reader is another process. state_corrupt with the reason; state_newer
/// for a later version.
result<Incarnation> parse_incarnation(std::string_view json);

std::string incarnation_file(const std::string& dir, const std::string& uuid);
/// Writes durably. On a full disk an incarnation that is not fenced takes one of the spare files. That spare is made
/// again when there is room.
/// `spares`: whether it may. Two processes may not use them at once.
result<> save_incarnation(const std::string& dir, const Incarnation& incarnation, bool spares = true);
result<> forget_incarnation(const std::string& dir, const std::string& uuid);

struct LoadedIncarnations {
  std::vector<Incarnation> all;
  std::vector<std::string> set_aside;  ///< new names of files that could not be understood
};
/// Creates the folder if necessary. `now` is in seconds since 1970. Removes fenced incarnations whose blocklisting has
/// ended, but none that was fenced in this boot: the clock may have been set, and a device of this boot may need the
/// incarnation for its proof.
result<LoadedIncarnations> load_incarnations(const std::string& dir, std::int64_t now, const std::string& boot_id);
/// Replaces many fenced incarnations that differ only in their addresses by one file. An agent that dies again and
/// again in one boot leaves a file each time, which must stay. No other process may write there meanwhile.
void merge_fenced(const std::string& dir, std::vector<Incarnation>& all);
/// Makes spare files that own their blocks already, so that a full disk does not keep devices from their servers. Each
/// start needs one, and so does each further connection. It makes as many as there is room for.
void keep_spares(const std::string& dir);

/// All incarnations that this process knows. Control thread; touches no file.
class Incarnations {
 public:
  void add(Incarnation incarnation) { all_.push_back(std::move(incarnation)); }
  void remove(const std::string& uuid);
  void set_state(const std::string& uuid, Incarnation::State state, std::int64_t fenced_at = 0);
  /// Notes that a client has opened that image, or has closed it. `left`: for this process's next client.
  void note_opened(const std::string& uuid, const std::string& image);
  void note_closed(const std::string& uuid, const std::string& image, bool left);
  /// Notes that a client takes that image.
  void note_taken(const std::string& uuid, const std::string& image);
  /// A client has ended cleanly: `ended` takes its place. What it has left stays left.
  void replace(const std::string& uuid, Incarnation ended);
  /// Takes the content of the files. It changes nothing of this process's own clients. Without `ended`, incarnations
  /// that the files do not call fenced are the clients of a living agent, and yield.
  void take_over(const std::vector<Incarnation>& files, bool ended);
  /// Makes blocklisted incarnations dead again, because nobody knows whether their entries last.
  void doubt_entries();
  const std::vector<Incarnation>& all() const { return all_; }
  /// Returns the incarnations of the cluster that are dead and not fenced.
  std::vector<Incarnation> unfenced(const std::string& fsid) const;
  /// Returns blocklisted incarnations of the list's cluster that lack an entry now.
  std::vector<Incarnation> unlisted(const image::Blocklist& now) const;
  /// Returns null if the address belongs to no known incarnation.
  const Incarnation* find(const std::string& fsid, const std::string& address) const;

 private:
  std::vector<Incarnation> all_;
};

}  // namespace corbd::rbd
