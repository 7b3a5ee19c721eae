#include "host_volume.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <tuple>

#include "corbd/core/display.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"
#include "corbd/host/host.hpp"
#include "corbd/host/values.hpp"
#include "corbd/mounting/spec.hpp"
#include "version.hpp"
#include "work.hpp"

namespace corbd::mounting {
namespace {

namespace json = boost::json;

// Nomad kills the plugin after 60 s.
constexpr int kWithin = 50;
constexpr std::size_t kLargestRules = 64 << 10;
/// Mount options against hostile images: their author chooses files and modes, and tasks on the host may run them.
/// Options that the volume asks for come later, and override these.
constexpr const char* kProtection = "nosuid,nodev";

Error refused_parameter(std::string_view key, const std::string& why) {
  return {errc::invalid_argument, "the volume's parameter " + printable(std::string(key)) + why};
}

/// Strips the number: there may be several attributes, but Nomad's parameters have each key once: attribute.1,
/// attribute.2.
std::string_view key_of_parameter(std::string_view key) {
  constexpr std::string_view attribute = "attribute.";
  const auto number = key.substr(std::min(attribute.size(), key.size()));
  const bool numbered = key.starts_with(attribute) && !number.empty() &&
                        std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
  return numbered ? attribute.substr(0, attribute.size() - 1) : key;
}

bool has(const std::vector<std::string>& allowed, std::string_view one) {
  return std::ranges::find(allowed, one) != allowed.end();
}

Error not_allowed(std::string_view key, const std::string& value, const char* rule) {
  return {errc::permission_denied,
          std::string(key) + " '" + printable(value) +
              "' is not allowed on this client: its rules for host volumes do not list it among the " + rule};
}

/// Returns mount options that undo kProtection. Quotes must not hide one, because mounting removes them.
std::vector<std::string> options_that_gain_rights(std::string text) {
  std::erase(text, '"');
  std::vector<std::string> names;
  for (const auto option : pieces(text, ','))
    if (option == "suid" || option == "dev") names.emplace_back(option);
  return names;
}

result<> check_allowed(const MountSpec& spec, const HostVolumeRules& rules) {
  if (!has(rules.users, spec.user)) return not_allowed("user", spec.user, "users");
  const auto pool = pool_of(spec);
  if (!pool) return pool.error();
  const bool any_pool = has(rules.pools, "*");
  if (pool->empty() && !any_pool) return not_allowed("image", spec.image, "pools, where only * allows an ID");
  if (!any_pool && !has(rules.pools, *pool)) return not_allowed("pool", *pool, "pools");
  if (!spec.cluster.empty() && !has(rules.clusters, spec.cluster))
    return not_allowed("cluster", spec.cluster, "clusters");
  if (!spec.kms.empty() && !has(rules.kms, spec.kms)) return not_allowed("encrypted", spec.kms, "kms");
  const MountSpec plain;
  for (const auto& [key, file, before] :
       {std::tuple("conf", spec.conf, plain.conf), std::tuple("keyring", spec.keyring, plain.keyring),
        std::tuple("passphrase-file", spec.passphrase_file, plain.passphrase_file)})
    if (file != before && !has(rules.files, file)) return not_allowed(key, file, "files");
  for (const auto& attribute : spec.attributes) {
    const std::string name = attribute.substr(0, attribute.find('='));
    if (!has(rules.attributes, name)) return not_allowed("attribute", name, "attributes");
  }
  return {};
}

std::optional<Error> check_options(const MountSpec& spec, const HostVolumeRules& rules) {
  if (const auto allowed = host::check_mount_options(spec.options); !allowed) return allowed.error();
  for (const auto& option : options_that_gain_rights(spec.options))
    if (!has(rules.options, option)) return not_allowed("option", option, "options");
  return std::nullopt;
}

result<MountSpec> spec_of_parameters(const std::string& text, const std::string& dir) {
  boost::system::error_code failed;
  const auto parsed = json::parse(text, failed);
  const auto* parameters = failed ? nullptr : parsed.if_object();
  if (parameters == nullptr || !parameters->contains("image"))
    return Error{errc::invalid_argument,
                 "the volume has no image: give it `parameters { image = \"rbd/db\" }` in its specification"};
  MountSpec spec;
  spec.user.clear();
  for (const auto& [key, value] : *parameters) {
    const auto* word = value.if_string();
    const bool one_line = word != nullptr && std::ranges::none_of(*word, [](unsigned char c) { return c < ' '; });
    if (!one_line) return refused_parameter(key, " is not a text of one line");
    const std::string_view known = key_of_parameter(key);
    if (known == "dir") return refused_parameter(key, " is Nomad's to choose: leave it out");
    if (const auto wrong = assign(spec, known, std::string(*word)); !wrong.empty())
      return Error{errc::invalid_argument, "the volume's parameters: " + wrong};
  }
  if (spec.user.empty())
    return Error{errc::invalid_argument,
                 "the volume names no Ceph user: give it `user = \"nomad\"` among its parameters"};
  spec.dir = dir;
  return spec;
}

/// Returns the volume's own folder, which no other volume and nobody else has.
result<std::string> folder_of(const std::function<std::string(const char* name)>& variable) {
  const std::string folder = variable("DHV_VOLUMES_DIR"), id = variable("DHV_VOLUME_ID");
  if (!folder.starts_with('/') || id.empty() || id.find('/') != std::string::npos || id.front() == '.')
    return Error{errc::invalid_argument,
                 "DHV_VOLUMES_DIR and DHV_VOLUME_ID do not name a folder: only Nomad calls this command"};
  return folder + "/" + id;
}

/// An error: it is unknown.
task<result<bool>> is_mounted(Mounter& mounter, MountSpec spec, Until until) {
  auto mount = mount_of(spec);
  if (!mount) co_return mount.error();
  auto target = co_await mounter.manager().name_of(mount->target, until);
  if (!target && target.error().code == errc::not_found) co_return false;
  if (!target) co_return target.error();
  mount->target = std::move(*target);
  const auto claims = co_await mounter.manager().claims();
  if (!claims) co_return claims.error();
  if (std::ranges::none_of(*claims, [&](const auto& claim) { return same_volume(claim, *mount); })) co_return false;
  co_return co_await mounter.manager().has_mount(mount->target, until);
}

task<result<std::uint64_t>> create(Mounter& mounter, HostVolume volume, Until until) {
  if (volume.refused_anew) {
    const auto stays = co_await is_mounted(mounter, volume.spec, until);
    if (!stays) co_return with_context(volume.refused_anew->text, stays.error());
    if (!*stays) co_return *volume.refused_anew;
    complain(volume.refused_anew->text + "; the volume is mounted, and stays so until it is unmounted");
  }
  // A volume mounted before the rules or this program changed keeps its options, so that its tasks do not fail.
  const auto mounted = co_await mount_one(mounter, volume.spec, until, Keeps::type_and_options);
  if (!mounted) co_return mounted.error();
  complain(*mounted);
  if (volume.spec.read_only) co_return std::uint64_t{0};
  // It grows with its image when Nomad asks again, and reports its size.
  const auto size = co_await mounter.manager().expand(volume.spec.dir, until);
  if (!size) co_return size.error();
  if (*size != 0 && *size < volume.min_bytes)
    co_return Error{errc::failed_precondition, volume.spec.image + " has " + size_text(*size) +
                                                   ", less than capacity_min: grow it with `rbd resize`"};
  co_return *size;
}

task<result<bool>> is_claimed_by(Mounter& mounter, std::string dir) {
  const auto claims = co_await mounter.manager().claims();
  if (!claims) co_return claims.error();
  co_return std::ranges::any_of(*claims,
                                [&dir](const auto& claim) { return claim.user == dir || claim.target == dir; });
}

/// Refuses to delete elsewhere. `nomad volume register` takes any path, and a later delete names it: perhaps a mount of
/// this host's administrator, or of another volume.
task<result<>> leave_elsewhere(Mounter& mounter, std::string dir, std::string real) {
  auto claimed = co_await is_claimed_by(mounter, dir);
  if (claimed && !*claimed) claimed = co_await is_claimed_by(mounter, real);
  if (!claimed) co_return claimed.error();
  if (*claimed)
    co_return Error{errc::permission_denied, dir +
                                                 " is mounted, and is not the volume's own folder: if the client's "
                                                 "folder for host volumes was changed, `corbd unmount " +
                                                 dir + "` first"};
  co_return result<>();
}

/// Resolves links. A path that can be no target stays as it is.
task<result<std::string>> real_path(Mounter& mounter, std::string dir, Until until) {
  auto real = co_await mounter.manager().resolve(dir, until);
  const bool unknown = !real && (real.error().code == errc::unavailable || real.error().code == errc::timed_out);
  if (!real && !unknown) co_return dir;
  co_return real;
}

/// Deletes the volume. Nomad also deletes what a create could not make.
task<result<>> remove(Mounter& mounter, HostVolume volume, Until until) {
  if (!volume.elsewhere.empty()) {
    auto real = co_await real_path(mounter, volume.elsewhere, until);
    if (!real) co_return real.error();
    const auto own = co_await real_path(mounter, volume.spec.dir, until);
    if (!own) co_return own.error();
    if (*real != *own) co_return co_await leave_elsewhere(mounter, volume.elsewhere, std::move(*real));
  }
  const auto unmounted = co_await unmount_one(mounter, volume.spec.dir, until);
  if (unmounted) co_return result<>();
  if (unmounted.error().code != errc::not_found) co_return unmounted.error();
  const auto claimed = co_await is_claimed_by(mounter, volume.spec.dir);
  if (!claimed) co_return claimed.error();
  if (*claimed) co_return unmounted.error();
  co_return result<>();
}

result<HostVolumeRules> read_rules(const std::string& path) {
  const auto text = read_file(path, kLargestRules);
  if (!text && text.error().code == errc::not_found)
    return Error{errc::permission_denied,
                 "this client allows nothing to Nomad's users: write `users = ...` and "
                 "`pools = ...` into " +
                     path + " (docs/standalone.md)"};
  auto rules = text ? parse_host_volume_rules(*text) : result<HostVolumeRules>(text.error());
  if (!rules) return with_context(path, rules.error());
  return rules;
}

int refused(const Error& error) {
  complain(error.text);
  return 1;
}

struct RuleList {
  std::string_view key;
  std::vector<std::string> HostVolumeRules::* list;
};
constexpr RuleList kRuleLists[] = {
    {"users", &HostVolumeRules::users},       {"pools", &HostVolumeRules::pools},
    {"clusters", &HostVolumeRules::clusters}, {"kms", &HostVolumeRules::kms},
    {"files", &HostVolumeRules::files},       {"attributes", &HostVolumeRules::attributes},
    {"options", &HostVolumeRules::options}};

}  // namespace

result<HostVolumeRules> parse_host_volume_rules(std::string_view text) {
  HostVolumeRules rules;
  const auto read = read_settings(text, [&rules](std::string_view key, std::string_view value) -> std::string {
    const auto list = std::ranges::find(kRuleLists, key, &RuleList::key);
    if (list == std::end(kRuleLists))
      return "it is not users, pools, clusters, kms, files, attributes or options = ONE, ANOTHER";
    for (const auto one : pieces(value, ','))
      if (!trimmed(one).empty()) (rules.*list->list).emplace_back(trimmed(one));
    return "";
  });
  if (!read) return read.error();
  return rules;
}

result<HostVolume> host_volume_of(const std::string& operation, const result<HostVolumeRules>& rules,
                                  const std::function<std::string(const char* name)>& variable) {
  const auto dir = folder_of(variable);
  if (!dir) return dir.error();
  HostVolume volume;
  volume.spec.dir = *dir;
  if (operation == "delete") {
    const std::string created = variable("DHV_CREATED_PATH");
    if (!created.empty() && host::plain_path(created) != host::plain_path(*dir)) volume.elsewhere = created;
    return volume;
  }
  auto spec = spec_of_parameters(variable("DHV_PARAMETERS"), *dir);
  if (!spec) return spec.error();
  if (!rules) return rules.error();
  if (auto allowed = check_allowed(*spec, *rules); !allowed) return allowed.error();
  volume.spec = std::move(*spec);
  volume.refused_anew = check_options(volume.spec, *rules);
  if (volume.refused_anew) volume.spec.options.clear();
  if (!volume.spec.block)
    volume.spec.options = kProtection + (volume.spec.options.empty() ? "" : "," + volume.spec.options);
  const std::string least = variable("DHV_CAPACITY_MIN_BYTES");
  std::from_chars(least.data(), least.data() + least.size(), volume.min_bytes);
  return volume;
}

int serve_host_volume(const Options& ask) {
  if (ask.operation == "fingerprint") {
    std::cout << json::serialize(json::object{{"version", CORBD_VERSION}}) << std::endl;
    return 0;
  }
  const auto volume = host_volume_of(ask.operation, read_rules(ask.rules), [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  });
  if (!volume) return refused(volume.error());
  Mounter mounter(ask);
  const Until until = mounter.within(kWithin);
  // Nomad restores its volumes when it starts, perhaps before the agent does.
  if (const auto ready = mounter.run(mounter.manager().wait_ready(until)); !ready) return refused(ready.error());
  if (ask.operation == "delete") {
    const auto removed = mounter.run(remove(mounter, *volume, until));
    return removed ? 0 : refused(removed.error());
  }
  const auto bytes = mounter.run(create(mounter, *volume, until));
  if (!bytes) return refused(bytes.error());
  std::cout << json::serialize(json::object{{"path", volume->spec.dir}, {"bytes", *bytes}}) << std::endl;
  return 0;
}

}  // namespace corbd::mounting
