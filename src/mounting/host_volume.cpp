#include "host_volume.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cstdlib>
#include <iostream>

#include "corbd/core/display.hpp"
#include "corbd/core/text.hpp"
#include "version.hpp"
#include "work.hpp"

namespace corbd::mounting {
namespace {

namespace json = boost::json;

// Nomad kills the plugin after 60 s.
constexpr int kWithin = 50;

result<MountSpec> spec_of_parameters(const std::string& text, const std::string& dir) {
  boost::system::error_code failed;
  const auto parsed = json::parse(text, failed);
  const auto* parameters = failed ? nullptr : parsed.if_object();
  if (parameters == nullptr || !parameters->contains("image"))
    return Error{errc::invalid_argument,
                 "the volume has no image: give it `parameters { image = \"rbd/db\" }` in its specification"};
  std::string file = "dir = " + dir + "\n";
  for (const auto& [key, value] : *parameters) {
    const auto* word = value.if_string();
    const bool one_line = word != nullptr && word->find('\n') == json::string::npos;
    if (!one_line || key == "dir")
      return Error{errc::invalid_argument,
                   "the volume's parameter " + printable(std::string(key)) +
                       (key == "dir" ? " is Nomad's to choose: leave it out" : " is not a text of one line")};
    file += std::string(key.substr(0, key.find('.'))) + " = " + std::string(*word) + "\n";
  }
  auto spec = parse_mount_file(file);
  if (!spec) return with_context("the volume's parameters, a line for each and one for its folder", spec.error());
  return spec;
}

result<std::string> folder_of(const std::function<std::string(const char* name)>& variable) {
  if (auto created = variable("DHV_CREATED_PATH"); !created.empty()) return created;
  const std::string folder = variable("DHV_VOLUMES_DIR"), id = variable("DHV_VOLUME_ID");
  if (!folder.starts_with('/') || id.empty() || id.find('/') != std::string::npos || id.front() == '.')
    return Error{errc::invalid_argument,
                 "DHV_VOLUMES_DIR and DHV_VOLUME_ID do not name a folder: only Nomad calls this command"};
  return folder + "/" + id;
}

task<result<std::uint64_t>> create(Mounter& mounter, HostVolume volume, Until until) {
  const auto mounted = co_await mount_one(mounter, volume.spec, until);
  if (!mounted) co_return mounted.error();
  complain(*mounted);
  if (volume.spec.read_only) co_return std::uint64_t{0};
  // It grows with its image when Nomad asks again, and says its size.
  const auto size = co_await mounter.manager().expand(volume.spec.dir, until);
  if (!size) co_return size.error();
  if (*size != 0 && *size < volume.min_bytes)
    co_return Error{errc::failed_precondition, volume.spec.image + " has " + size_text(*size) +
                                                   ", less than capacity_min: grow it with `rbd resize`"};
  co_return *size;
}

/// Nomad also deletes what a create could not make.
task<result<>> remove(Mounter& mounter, std::string dir, Until until) {
  const auto unmounted = co_await unmount_one(mounter, dir, until);
  if (!unmounted && unmounted.error().code != errc::not_found) co_return unmounted.error();
  co_return result<>();
}

int refused(const Error& error) {
  complain(error.text);
  return 1;
}

}  // namespace

result<HostVolume> host_volume_of(const std::string& operation,
                                  const std::function<std::string(const char* name)>& variable) {
  const auto dir = folder_of(variable);
  if (!dir) return dir.error();
  HostVolume volume;
  volume.spec.dir = *dir;
  if (operation == "delete") return volume;
  auto spec = spec_of_parameters(variable("DHV_PARAMETERS"), *dir);
  if (!spec) return spec.error();
  volume.spec = std::move(*spec);
  const std::string least = variable("DHV_CAPACITY_MIN_BYTES");
  std::from_chars(least.data(), least.data() + least.size(), volume.min_bytes);
  return volume;
}

int serve_host_volume(const Options& ask) {
  if (ask.operation == "fingerprint") {
    std::cout << json::serialize(json::object{{"version", CORBD_VERSION}}) << std::endl;
    return 0;
  }
  const auto volume = host_volume_of(ask.operation, [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  });
  if (!volume) return refused(volume.error());
  Mounter mounter(ask);
  const Until until = mounter.within(kWithin);
  // Nomad restores its volumes when it starts, perhaps before the agent does.
  if (const auto ready = mounter.run(mounter.manager().wait_ready(until)); !ready) return refused(ready.error());
  if (ask.operation == "delete") {
    const auto removed = mounter.run(remove(mounter, volume->spec.dir, until));
    return removed ? 0 : refused(removed.error());
  }
  const auto bytes = mounter.run(create(mounter, *volume, until));
  if (!bytes) return refused(bytes.error());
  std::cout << json::serialize(json::object{{"path", volume->spec.dir}, {"bytes", *bytes}}) << std::endl;
  return 0;
}

}  // namespace corbd::mounting
