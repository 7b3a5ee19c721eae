// Makes the bundle: text files in a temporary folder, packed by tar. Text that others wrote goes through
// redacted_json() or redacted_text(). The folder of keys is not even listed.
#include <gnu/libc-version.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include <grpcpp/grpcpp.h>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/version.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "corbd/core/file.hpp"
#include "corbd/core/sysfs.hpp"
#include "corbd/rbd/version.hpp"
#include "inputs.hpp"

extern char** environ;

namespace corbd::doctor {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::size_t kMaxPacked = 16 << 20;

/// Attributes of a device. They come from sysfs, so that nothing waits for the device itself.
constexpr const char* kAttributes[] = {"size",
                                       "ro",
                                       "pid",
                                       "backend",
                                       "inflight",
                                       "stat",
                                       "queue/io_timeout",
                                       "queue/scheduler",
                                       "queue/max_sectors_kb",
                                       "queue/nr_requests",
                                       "queue/logical_block_size"};

void put(const fs::path& file, std::string_view text) {
  std::error_code ignored;
  fs::create_directories(file.parent_path(), ignored);
  std::ofstream(file) << text;
}

/// A file that is not JSON is left out, because its content is unknown.
std::string json_file(const std::string& path) {
  const auto text = read_file(path, kMaxPacked);
  if (!text) return text.error().text + "\n";
  boost::system::error_code failed;
  const auto parsed = json::parse(*text, failed);
  if (failed)
    return path + " is not JSON, so it is left out: " + std::to_string(text->size()) + " bytes, " + failed.message() +
           "\n";
  return json::serialize(redacted_json(parsed)) + "\n";
}

void put_records(const fs::path& into, const std::string& state_dir) {
  for (const auto& name : sysfs::names_in(state_dir + "/volumes"))
    if (name.find(".json") != std::string::npos)
      put(into / "records" / name, json_file(state_dir + "/volumes/" + name));
}

void put_sysfs(const fs::path& into) {
  std::string text;
  const auto add = [&](const fs::path& attribute) {
    if (const auto value = sysfs::attribute(attribute)) text += attribute.string() + ": " + *value + "\n";
  };
  const fs::path parameters = "/sys/module/nbd/parameters", devices = "/sys/block";
  for (const auto& name : sysfs::names_in(parameters)) add(parameters / name);
  for (const auto& name : sysfs::names_in(devices))
    if (name.starts_with("nbd"))
      for (const char* attribute : kAttributes) add(devices / name / attribute);
  put(into / "sysfs.txt", redacted_text(text));
}

std::string versions(const std::string& version) {
  utsname system{};
  ::uname(&system);
  return "corbd " + version + "\nkernel " + system.release + " " + system.version + " " + system.machine + "\nglibc " +
         ::gnu_get_libc_version() + "\n" + rbd::library_versions() + "\ngRPC " + grpc::Version() +
         "\nBoost " BOOST_LIB_VERSION "\n";
}

result<> pack(const fs::path& folder, const std::string& file) {
  const std::string parent = folder.parent_path(), name = folder.filename();
  // tar takes a name before a colon for another host.
  std::string arguments[] = {"tar", "--force-local", "-czf", file, "-C", parent, name};
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  if (const int failed = ::posix_spawnp(&child, "tar", nullptr, nullptr, argv.data(), environ); failed != 0)
    return Error{errc::unavailable, std::string("starting tar: ") + std::strerror(failed)};
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return Error{errc::unavailable, "tar failed to write " + file + ": its own message says why"};
  return {};
}

}  // namespace

result<> write_bundle(const Options& options, const std::string& version, const std::vector<Finding>& findings) {
  std::string folder = (fs::temp_directory_path() / "corbd-bundle-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr)
    return Error{errc::state_write, std::string("making a temporary folder: ") + std::strerror(errno)};
  const fs::path into = fs::path(folder) / "corbd-bundle";
  put(into / "doctor.json", json::serialize(redacted_json(json::value(report(findings)))) + "\n");
  put(into / "versions.txt", versions(version));
  if (const auto mounts = read_file("/proc/self/mountinfo", kMaxPacked))
    put(into / "mountinfo.txt", redacted_text(*mounts));
  put(into / "config.json", json_file(options.config_dir + "/config.json"));
  put_sysfs(into);
  put_records(into, options.state_dir);
  // Volume names and addresses are private.
  const auto old = ::umask(0077);
  auto packed = pack(into, options.bundle);
  ::umask(old);
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return packed;
}

}  // namespace corbd::doctor
