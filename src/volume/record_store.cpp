#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "corbd/volume/record_store.hpp"

namespace corbd::volume {
namespace {

constexpr std::size_t kMaxRecordBytes = 1 << 20;

/// Keeps a file that a helper holds, because it tells of that helper. A later start removes it.
void remove_busy_file(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && still_names(path, fd.get())) ::unlink(path.c_str());
}

class Files final : public RecordStore {
 public:
  Files(BlockingPool& pool, std::string state_dir, std::string runtime_dir)
      : pool_(pool), records_(std::move(state_dir) + "/volumes"), keys_(std::move(runtime_dir) + "/keys") {}

  task<result<Loaded>> load() override {
    auto job = [records = records_, keys = keys_] { return load_all(records, keys); };
    co_return co_await pool_.run(job, {}, "reading the records");
  }
  task<result<std::vector<Record>>> peek() override {
    auto job = [records = records_] { return peek_at_all(records); };
    co_return co_await pool_.run(job, {}, "reading the records");
  }
  task<result<>> save(Record record) override {
    auto job = [path = record_path(record.volume_id), bytes = encode(record)]() -> result<> {
      const auto there = read(path);
      const errc found = there ? errc::ok : there.error().code;
      if (found == errc::state_newer)
        return Error{errc::state_newer,
                     path + " was written by a newer version of the agent (" + there.error().text +
                         "): start that version again, or remove the file if nothing uses the volume"};
      // It may be a newer version's.
      if (found != errc::ok && found != errc::not_found && found != errc::state_corrupt)
        return Error{errc::state_write, there.error().text};
      return write_durably(path, bytes, 0600);
    };
    co_return co_await pool_.run(job, {}, "writing a record");
  }
  task<result<>> drop(std::string volume_id) override {
    auto job = [path = record_path(volume_id), busy = busy_file(volume_id)] {
      auto removed = remove_durably(path);
      if (removed) remove_busy_file(busy);
      return removed;
    };
    co_return co_await pool_.run(job, {}, "removing a record");
  }
  task<result<>> save_key(std::string volume_id, Secret key) override {
    auto job = [path = key_path(volume_id), key = std::move(key)] { return write_durably(path, key.reveal(), 0600); };
    co_return co_await pool_.run(job, {}, "writing a key file");
  }
  task<result<Secret>> load_key(std::string volume_id) override {
    auto job = [path = key_path(volume_id)]() -> result<Secret> {
      auto content = read_file(path, 4096);
      if (!content) return content.error();
      return Secret(std::move(*content));
    };
    co_return co_await pool_.run(job, {}, "reading a key file");
  }
  task<result<>> drop_key(std::string volume_id) override { return remove(key_path(volume_id)); }
  std::string busy_file(const std::string& volume_id) const override {
    return records_ + "/" + sha256_hex(volume_id) + ".busy";
  }

 private:
  std::string record_path(const std::string& volume_id) const {
    return records_ + "/" + sha256_hex(volume_id) + ".json";
  }
  std::string key_path(const std::string& volume_id) const { return keys_ + "/" + sha256_hex(volume_id); }

  task<result<>> remove(std::string path) {
    auto job = [path = std::move(path)] { return remove_durably(path); };
    co_return co_await pool_.run(job, {}, "removing a key file");
  }

  static result<Loaded> load_all(const std::string& records, const std::string& keys) {
    if (auto made = make_folder(records, 0700); !made) return made.error();
    if (auto made = make_folder(keys, 0700); !made) return made.error();
    Loaded loaded;
    std::error_code failed, ignored;
    for (const auto& entry : std::filesystem::directory_iterator(records, failed)) {
      if (entry.path().extension() == ".tmp") std::filesystem::remove(entry.path(), ignored);
      if (entry.path().extension() == ".busy" &&
          !std::filesystem::exists(std::filesystem::path(entry.path()).replace_extension(".json"), ignored))
        remove_busy_file(entry.path());
      if (entry.path().extension() == ".json")
        if (auto read = load_one(entry.path(), loaded); !read) return read.error();
    }
    if (failed) return Error{errc::unavailable, "listing " + records + ": " + failed.message()};
    return loaded;
  }

  static result<std::vector<Record>> peek_at_all(const std::string& records) {
    std::vector<Record> all;
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(records, failed))
      if (entry.path().extension() == ".json")
        if (auto record = read(entry.path())) all.push_back(std::move(*record));
    if (failed) return Error{errc::unavailable, "listing " + records + ": " + failed.message()};
    return all;
  }

  static result<Record> read(const std::string& path) {
    auto bytes = read_file(path, kMaxRecordBytes);
    if (!bytes) return bytes.error();
    return decode(*bytes);
  }

  /// Sets aside only what is proven corrupt. A record that cannot be read now may be the only thing that knows of a
  /// device in use.
  static result<> load_one(const std::string& path, Loaded& loaded) {
    auto record = read(path);
    if (record) {
      loaded.records.push_back(std::move(*record));
      return {};
    }
    const Error& why = record.error();
    if (why.code == errc::state_newer) {
      loaded.newer.push_back(path);
      return {};
    }
    if (why.code != errc::state_corrupt)
      return Error{why.code, "cannot read a volume's record: " + why.text +
                                 ": nothing is served before every record is read; start the agent again when the "
                                 "file can be read"};
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::string aside =
        path + ".corrupt-" + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count());
    std::error_code ignored;
    std::filesystem::rename(path, aside, ignored);
    loaded.set_aside.push_back(aside + " (" + why.text + ")");
    return {};
  }

  BlockingPool& pool_;
  std::string records_, keys_;
};

}  // namespace

std::unique_ptr<RecordStore> make_record_store(BlockingPool& pool, std::string state_dir, std::string runtime_dir) {
  return std::make_unique<Files>(pool, std::move(state_dir), std::move(runtime_dir));
}

}  // namespace corbd::volume
