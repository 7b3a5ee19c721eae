// The node's files: records, keys, stashes, configuration, and mount points.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "corbd/cephcsi/affinity.hpp"
#include "corbd/cephcsi/stash.hpp"
#include "corbd/image/values.hpp"
#include "corbd/kms/kms.hpp"
#include "corbd/plan/record.hpp"
#include "support/loop.hpp"

namespace corbd::test {

class World;

class Disk {
 public:
  /// The disk with the state directory; the runtime folder is memory. A full one takes nothing new, but allows
  /// removals.
  enum class State { good, full, read_only } state = State::good;
  std::vector<plan::Record> records;
  std::set<std::string> torn_records, newer_records;  ///< volumes whose file is damaged, or of a newer version
  std::vector<std::string> set_aside;                 ///< volumes whose damaged file was found
  std::map<std::string, int> refused;  ///< writes of a volume's record in this life that failed, one after another
  std::set<std::string> outdated;      ///< volumes whose last record could not be written
  int spares = 16;                     ///< files made in advance, for the addresses of that many more clients
  std::map<std::string, Secret> keys;
  std::map<std::string, cephcsi::Stash> stashes;  ///< by staging path
  std::set<std::string> logs;                     ///< log files of rbd-nbd
  std::set<std::string> places;  ///< folders and files on which mounts were made: they outlive mounts, agents and boots
  std::set<std::string> filled_places;  ///< those with other content
  std::set<std::string> missing_paths;  ///< staging paths that do not exist

  // Configuration files.
  std::set<std::string> clusters{"lab"};  ///< names in config.json: all of the one cluster
  bool config_malformed = false;          ///< config.json
  std::set<std::string> strangers;        ///< names in config.json: of other clusters, which know no user of ours
  std::vector<image::Place> mapped;       ///< in cluster-mapping.json, for every volume
  cephcsi::ReadPolicy reads;              ///< as config.json wants them
  std::string reads_unknown;              ///< why they are not known yet
  bool silent = false;                    ///< a reader of the records gets no answer
  bool unreadable_record = false;         ///< a record's file cannot be read now
  bool unreadable_incarnation = false;    ///< the same for a file of this node's clients
  std::map<std::string, kms::Kind> kms{{"default", kms::Kind::shared},
                                       {"own", kms::Kind::wrapped},
                                       {"kept", kms::Kind::stored},
                                       {"plain", kms::Kind::stored}};
  std::set<std::string> takes_what_comes{"plain"};  ///< KMSs among them whose writes name no version

  // Used by the ports.
  task<result<std::optional<cephcsi::Stash>>> read_stash(World& by, std::string path);
  task<result<>> write_stash(World& by, std::string path, cephcsi::Stash stash);
  task<result<>> drop_stash(World& by, std::string path, std::string log);
  /// Whether it keeps refusing the record of that image's volume.
  bool break_record_refused(const std::string& image_id) const;
};

}  // namespace corbd::test
