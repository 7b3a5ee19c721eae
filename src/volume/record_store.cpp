#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"
#include "corbd/volume/record_store.hpp"

namespace corbd::volume {
namespace {

constexpr std::size_t kMaxRecordBytes = 1 << 20;

constexpr std::size_t kMaxKeyBytes = 4096;
constexpr const char* kNext = ".next";

/// Returns the part of that user's `.next` before the key. It includes the replaced key's digest, because 0.1.0 does
/// not know `.next`, and may have written a newer key since.
std::string next_head(const std::string& path, const std::string& user) {
  auto content = read_file(path, kMaxKeyBytes);
  const Secret replaced(content ? std::move(*content) : "");
  return user + "\n" + sha256_hex(replaced.reveal()) + "\n";
}

/// Somebody may have removed the folder since the start.
result<> write_in_folder(const std::string& path, std::string_view bytes) {
  auto made = make_folder(std::filesystem::path(path).parent_path(), 0700);
  return made ? write_durably(path, bytes, 0600) : made;
}

result<> write_next(const std::string& path, const std::string& user, const Secret& key) {
  const Secret all(next_head(path, user) + std::string(key.reveal()));
  return write_in_folder(path + kNext, all.reveal());
}

/// Returns the key in `.next` beside `path`, if it is that user's and replaces the one in `path`.
std::optional<Secret> read_next(const std::string& path, const std::string& user) {
  auto content = read_file(path + kNext, kMaxKeyBytes);
  if (!content) return std::nullopt;
  const Secret all(std::move(*content));
  const std::string head = next_head(path, user);
  if (!all.reveal().starts_with(head)) return std::nullopt;
  return Secret(std::string(all.reveal().substr(head.size())));
}

result<> write_key(const std::string& path, const Secret& key) {
  auto written = write_in_folder(path, key.reveal());
  return written ? remove_durably(path + kNext) : written;
}

/// Keeps a file that a helper holds, because it shows that helper. A later start removes it.
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
  task<result<std::vector<Record>>> peek(Until until) override {
    auto job = [records = records_] { return peek_at_all(records); };
    co_return co_await pool_.run(job, until, "reading the records");
  }
  task<result<>> save(Record record) override {
    auto path = record_path(record.volume_id);
    auto job = [path = std::move(path), record = std::move(record)]() mutable -> result<> {
      auto there = check_replaceable(path);
      if (!there) return there.error();
      if (!there->empty()) record.user = std::move(*there);
      return write_in_folder(path, encode(record));
    };
    co_return co_await pool_.run(job, {}, "writing a record");
  }
  task<result<>> save_with_key(Record record, Secret key) override {
    auto job = [path = record_path(record.volume_id), bytes = encode(record), keys = key_path(record.volume_id),
                user = record.user, key = std::move(key)]() -> result<> {
      const auto there = check_replaceable(path);
      if (!there) return there.error();
      const bool renamed = !there->empty() && *there != user;
      if (renamed)
        if (auto kept = write_next(keys, user, key); !kept) return kept;
      if (!renamed)
        if (auto saved = write_key(keys, key); !saved) return saved;
      if (auto saved = write_in_folder(path, bytes); !saved || !renamed) return saved;
      return write_key(keys, key);
    };
    co_return co_await pool_.run(job, {}, "writing a record and its key");
  }
  task<result<>> drop(std::string volume_id) override {
    auto job = [path = record_path(volume_id), busy = busy_file(volume_id)] {
      auto removed = remove_durably(path);
      if (removed) remove_busy_file(busy);
      return removed;
    };
    co_return co_await pool_.run(job, {}, "removing a record");
  }
  task<result<Secret>> load_key(const Record& record) override {
    auto job = [path = key_path(record.volume_id), user = record.user]() -> result<Secret> {
      if (auto next = read_next(path, user)) return std::move(*next);
      auto content = read_file(path, kMaxKeyBytes);
      if (!content) return content.error();
      if (content->empty()) return Error{errc::state_corrupt, path + " is empty"};
      return Secret(std::move(*content));
    };
    co_return co_await pool_.run(job, {}, "reading a key file");
  }
  task<result<>> drop_key(std::string volume_id) override {
    auto job = [path = key_path(volume_id)] {
      auto removed = remove_durably(path);
      return removed ? remove_durably(path + kNext) : removed;
    };
    co_return co_await pool_.run(job, {}, "removing a key file");
  }
  std::string busy_file(const std::string& volume_id) const override {
    return records_ + "/" + sha256_hex(volume_id) + ".busy";
  }

 private:
  std::string record_path(const std::string& volume_id) const {
    return records_ + "/" + sha256_hex(volume_id) + ".json";
  }
  std::string key_path(const std::string& volume_id) const { return keys_ + "/" + sha256_hex(volume_id); }

  static result<Loaded> load_all(const std::string& records, const std::string& keys) {
    if (auto made = make_folder(records, 0700); !made) return made.error();
    if (auto made = make_folder(keys, 0700); !made) return made.error();
    const auto files = list(records);
    if (!files) return files.error();
    Loaded loaded;
    std::error_code ignored;
    for (const auto& path : *files) {
      if (path.extension() == ".tmp") std::filesystem::remove(path, ignored);
      if (path.extension() == ".busy" &&
          !std::filesystem::exists(std::filesystem::path(path).replace_extension(".json"), ignored))
        remove_busy_file(path);
      if (path.extension() == ".json")
        if (auto read = load_one(path, keys, loaded); !read) return read.error();
    }
    return loaded;
  }

  /// Fails if load_all() would: the caller means to load later, and must learn it before anything is handed over. Files
  /// that the serving agent removes meanwhile do not count.
  static result<std::vector<Record>> peek_at_all(const std::string& records) {
    const auto files = list(records);
    if (!files) return files.error();
    std::vector<Record> all;
    for (const auto& path : *files) {
      if (path.extension() != ".json") continue;
      auto record = read(path);
      if (record && !has_own_name(path, *record)) continue;
      if (record)
        all.push_back(std::move(*record));
      else if (!may_be_left_out(record.error()) && record.error().code != errc::not_found)
        return unreadable(record.error());
    }
    return all;
  }

  /// Whether the record may be written anew; the user that it names now, if it can be read and is that volume's.
  static result<std::string> check_replaceable(const std::string& path) {
    const auto there = read(path);
    if (there && !has_own_name(path, *there)) return std::string();
    const errc found = there ? errc::ok : there.error().code;
    if (found == errc::state_newer)
      return Error{errc::state_newer, path + " was written by a newer version of the agent (" + there.error().text +
                                          "): start that version again, or remove the file if nothing uses the volume"};
    // It may be a newer version's.
    if (found != errc::ok && found != errc::not_found && found != errc::state_corrupt)
      return Error{errc::state_write, there.error().text};
    return there ? there->user : std::string();
  }

  static result<std::vector<std::filesystem::path>> list(const std::string& folder) {
    std::vector<std::filesystem::path> found;
    std::error_code failed;
    for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
         entry.increment(failed))
      found.push_back(entry->path());
    if (failed) return Error{errc::unavailable, "listing " + folder + ": " + failed.message()};
    return found;
  }

  /// Whether the record may be left out: an agent serves the other volumes without it. Any other error may pass, and
  /// hides the only file that knows a device in use.
  static bool may_be_left_out(const Error& why) {
    return why.code == errc::state_newer || why.code == errc::state_corrupt;
  }

  static Error unreadable(const Error& why) {
    return {why.code, "cannot read a volume's record: " + why.text +
                          ": nothing is served before every record is read; start the agent again when the file can "
                          "be read"};
  }

  static result<Record> read(const std::string& path) {
    auto bytes = read_file(path, kMaxRecordBytes);
    if (!bytes) return bytes.error();
    auto record = decode(*bytes);
    if (!record && !may_be_left_out(record.error())) return with_context(path, record.error());
    return record;
  }

  /// Completes what save_with_key() had begun. An older version reads the key file alone.
  static void finish_key(const std::string& path, const std::string& user) {
    if (auto next = read_next(path, user))
      static_cast<void>(write_key(path, *next));
    else
      static_cast<void>(remove_durably(path + kNext));
  }

  /// Whether the file has the record's own name: somebody's copy beside a record has the same volume, and may be older.
  static bool has_own_name(const std::filesystem::path& path, const Record& record) {
    return path.stem() == sha256_hex(record.volume_id);
  }

  /// Sets aside only files that are proven corrupt.
  static result<> load_one(const std::string& path, const std::string& keys, Loaded& loaded) {
    auto record = read(path);
    if (record && !has_own_name(path, *record)) {
      log::warning(
          "record.misnamed",
          {{"file", path}, {"volume", record->volume_id}, {"effect", "it counts for nothing: remove the copy"}});
      return {};
    }
    if (record) {
      finish_key(keys + "/" + sha256_hex(record->volume_id), record->user);
      loaded.records.push_back(std::move(*record));
      return {};
    }
    const Error& why = record.error();
    if (!may_be_left_out(why)) return unreadable(why);
    if (why.code == errc::state_newer) {
      loaded.newer.push_back(path);
      return {};
    }
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
