#include "corbd/manager/claims.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "claim_json.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"

namespace corbd::manager {
namespace {

constexpr std::size_t kMaxClaimBytes = 256 << 10;

class ClaimFiles final : public Claims {
 public:
  ClaimFiles(BlockingPool& files, std::string folder) : files_(files), folder_(std::move(folder)) {}

  task<result<Loaded>> load() override {
    auto job = [folder = folder_] { return load_all(folder); };
    co_return co_await files_.run(job, {}, "reading the claims");
  }
  task<result<>> save(Claim claim) override {
    auto job = [folder = folder_, path = path_of(claim.target), bytes = encode(claim)]() -> result<> {
      if (auto made = make_folder(folder, 0700); !made) return made;
      return write_durably(path, bytes, 0600);
    };
    co_return co_await files_.run(job, {}, "writing a claim");
  }
  task<result<>> drop(std::string target) override {
    auto job = [path = path_of(target)] { return remove_durably(path); };
    co_return co_await files_.run(job, {}, "removing a claim");
  }

 private:
  std::string path_of(const std::string& target) const { return folder_ + "/" + sha256_hex(target) + ".json"; }

  static result<Loaded> load_all(const std::string& folder) {
    if (auto made = make_folder(folder, 0700); !made) return made.error();
    Loaded loaded;
    std::error_code failed;
    // A .tmp file may be another process's, which is writing it now.
    for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
         entry.increment(failed))
      if (entry->path().extension() == ".json")
        if (auto read = load_one(entry->path(), loaded); !read) return read.error();
    if (failed) return Error{errc::unavailable, "listing " + folder + ": " + failed.message()};
    std::ranges::sort(loaded.claims, {}, &Claim::target);
    return loaded;
  }

  static result<> load_one(const std::string& path, Loaded& loaded) {
    const auto bytes = read_file(path, kMaxClaimBytes);
    if (!bytes && bytes.error().code == errc::not_found) return {};  // another process has just removed it
    if (!bytes && bytes.error().code != errc::state_corrupt) return bytes.error();
    auto claim = bytes ? decode(*bytes) : result<Claim>(bytes.error());
    if (claim && std::filesystem::path(path).stem() != sha256_hex(claim->target)) {
      log::warning("claim.misnamed",
                   {{"file", path}, {"target", claim->target}, {"effect", "it counts for nothing: remove the copy"}});
      return {};
    }
    if (claim) {
      loaded.claims.push_back(std::move(*claim));
      return {};
    }
    if (claim.error().code == errc::state_newer)
      return Error{errc::state_newer, path + " was written by a newer version (" + claim.error().text +
                                          "): use that version, or unmount with it first"};
    if (claim.error().code != errc::state_corrupt) return with_context(path, claim.error());
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::string aside =
        path + ".corrupt-" + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count());
    std::error_code ignored;
    std::filesystem::rename(path, aside, ignored);
    log::error("claim.corrupt", {{"file", aside},
                                 {"error", claim.error().text},
                                 {"effect", "its mount is not known any more; /proc/self/mountinfo may show it"}});
    loaded.set_aside.push_back(aside + " (" + claim.error().text + ")");
    return {};
  }

  BlockingPool& files_;
  const std::string folder_;
};

}  // namespace

std::unique_ptr<Claims> make_claims(BlockingPool& files, std::string folder) {
  return std::make_unique<ClaimFiles>(files, std::move(folder));
}

}  // namespace corbd::manager
