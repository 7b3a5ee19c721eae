// Stores the records of volumes and their Ceph keys.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/plan/record.hpp"

namespace corbd::volume {

using namespace plan;

struct Loaded {
  std::vector<Record> records;
  std::vector<std::string> set_aside;  ///< corrupt files, renamed to <name>.corrupt-<time>
  std::vector<std::string> newer;      ///< written by a newer version of the agent, and left as they are
};

/// Calls for one volume come one after another.
class RecordStore {
 public:
  virtual ~RecordStore() = default;
  virtual task<result<Loaded>> load() = 0;
  /// Reads the records beside the agent that writes them, or in that agent. It changes nothing, and fails if load()
  /// would.
  virtual task<result<std::vector<Record>>> peek(Until until) = 0;
  /// Writes durably: tmp, fsync, rename, fsync of the folder. state_newer: a newer version wrote the record, which
  /// stays. An existing record keeps its user, whose key lies beside it.
  virtual task<result<>> save(Record record) = 0;
  /// Also drops the volume's busy file, unless a helper holds it.
  virtual task<result<>> drop(std::string volume_id) = 0;
  /// Saves the record with the Ceph key of the user that it names. The key is on tmpfs, so that a reboot removes it. A
  /// death in between leaves the user and the key of before, or these.
  virtual task<result<>> save_with_key(Record record, Secret key) = 0;
  /// Loads the key of the record's user.
  virtual task<result<Secret>> load_key(const Record& record) = 0;
  virtual task<result<>> drop_key(std::string volume_id) = 0;
  /// Returns the file whose lock a helper holds while it works on the volume.
  virtual std::string busy_file(const std::string& volume_id) const = 0;
};

/// Uses files below state_dir/volumes and runtime_dir/keys, named by the sha256 of the volume ID. A key file contains
/// only the key. While record and key change to another user, the new key lies beside it (`.next`, with its user and
/// the digest of the key that it replaces).
std::unique_ptr<RecordStore> make_record_store(BlockingPool& pool, std::string state_dir, std::string runtime_dir);

}  // namespace corbd::volume
