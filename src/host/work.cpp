// The helper's side: a request's name and arguments become one call of ops.
#include <algorithm>
#include <array>
#include <boost/json/value.hpp>
#include <string>

#include "corbd/host/helpers.hpp"
#include "ops.hpp"
#include "requests.hpp"

namespace corbd::host {
namespace {

namespace json = boost::json;

std::string text(const json::object& request, std::string_view key) { return std::string(request.at(key).as_string()); }

result<json::object> done(const result<>& outcome) {
  if (!outcome) return outcome.error();
  return json::object();
}

result<json::object> do_probe(const json::object& request) {
  const auto found = ops::probe(text(request, "device"));
  if (!found) return found.error();
  return probe_to_json(*found);
}

result<json::object> do_mkfs(const json::object& request) {
  const MkfsFor made_for{request.at("zeroes").as_bool(), request.at("files_encrypted").as_bool()};
  const auto made = ops::mkfs(text(request, "device"), text(request, "fstype"), text(request, "options"), made_for);
  if (!made) return made.error();
  return json::object{{"beyond_oldest", *made}};
}

result<json::object> do_fsck(const json::object& request) {
  return done(ops::fsck(text(request, "device"), text(request, "fstype"), text(request, "options")));
}

result<json::object> do_kernel_needs(const json::object& request) {
  const auto needs = ops::kernel_needs(text(request, "device"));
  if (!needs) return needs.error();
  return kernel_needs_to_json(*needs);
}

result<json::object> do_kernel_needs_of_new(const json::object& request) {
  const auto needs = ops::kernel_needs_of_new(text(request, "fstype"), text(request, "options"));
  if (!needs) return needs.error();
  return kernel_needs_to_json(*needs);
}

result<json::object> do_mount(const json::object& request) {
  return done(
      ops::mount(text(request, "device"), text(request, "fstype"), text(request, "target"), text(request, "flags")));
}

result<json::object> do_bind(const json::object& request) {
  return done(ops::bind(text(request, "source"), text(request, "target"), request.at("device_node").as_bool(),
                        text(request, "flags")));
}

result<json::object> do_unmount(const json::object& request) {
  return done(ops::unmount(text(request, "target"), request.at("sync").as_bool()));
}

result<json::object> do_extent(const json::object& request) {
  const auto found = ops::extent(text(request, "device"), text(request, "fstype"), text(request, "target"));
  if (!found) return found.error();
  return extent_to_json(*found);
}

result<json::object> do_grow(const json::object& request) {
  return done(ops::grow(text(request, "device"), text(request, "fstype"), text(request, "target")));
}

result<json::object> do_trim(const json::object& request) {
  const auto trimmed = ops::trim(text(request, "target"));
  if (!trimmed) return trimmed.error();
  return json::object{{"bytes", *trimmed}};
}

result<json::object> do_usage(const json::object& request) {
  const auto found = ops::usage(text(request, "target"));
  if (!found) return found.error();
  return usage_to_json(*found);
}

result<json::object> do_check_unused(const json::object& request) {
  return done(ops::check_unused(text(request, "device")));
}

result<json::object> do_tune(const json::object& request) {
  const std::string name = text(request, "name");
  if (name.empty() || name.find('/') != std::string::npos || name.front() == '.')
    return Error{errc::invalid_argument, "\"" + name + "\" is not the name of a device"};
  const NumberUse use{request.at("read_only").as_bool(), request.at("flush").as_bool()};
  return done(ops::tune("/sys/block/" + name, "/dev/" + name, use));
}

result<json::object> do_limit_io(const json::object& request) {
  return done(ops::limit_io("/sys/fs/cgroup", text(request, "pod_uid"), text(request, "line")));
}

int slot(const json::object& request) { return request.at("slot").to_number<int>(); }

result<json::object> do_luks_look(const json::object& request) {
  const auto found = ops::luks_look(text(request, "device"));
  if (!found) return found.error();
  return luks_header_to_json(*found);
}

result<json::object> do_luks_format(const json::object& request) {
  LuksFormat how;
  how.cipher = text(request, "cipher");
  how.key_bits = request.at("key_bits").to_number<std::uint32_t>();
  how.integrity = text(request, "integrity");
  how.sector_bytes = request.at("sector_bytes").to_number<std::uint32_t>();
  how.mapping = text(request, "mapping");
  return done(ops::luks_format(text(request, "device"), secret_from_json(request, "passphrase"), 0, how));
}

result<json::object> do_luks_open(const json::object& request) {
  return done(ops::luks_open(text(request, "device"), text(request, "mapping"), secret_from_json(request, "passphrase"),
                             request.at("read_only").as_bool()));
}

result<json::object> do_luks_resize(const json::object& request) {
  return done(ops::luks_resize(text(request, "mapping")));
}

result<json::object> do_luks_close(const json::object& request) {
  return done(ops::luks_close(text(request, "mapping")));
}

result<json::object> do_luks_opens(const json::object& request) {
  const auto opens = ops::luks_opens(text(request, "device"), slot(request), secret_from_json(request, "passphrase"));
  if (!opens) return opens.error();
  return json::object{{"opens", *opens}};
}

result<json::object> do_luks_add_key(const json::object& request) {
  return done(ops::luks_add_key(text(request, "device"), slot(request), secret_from_json(request, "known"),
                                secret_from_json(request, "added"), 0));
}

result<json::object> do_luks_remove_key(const json::object& request) {
  return done(ops::luks_remove_key(text(request, "device"), slot(request)));
}

FscryptSecret fscrypt_secret(const json::object& request) {
  return {secret_from_json(request, "secret"), request.at("passphrase").as_bool()};
}

result<json::object> do_fscrypt_look(const json::object& request) {
  const auto found = ops::fscrypt_look(text(request, "target"));
  if (!found) return found.error();
  return folder_to_json(*found);
}

result<json::object> do_fscrypt_make(const json::object& request) {
  return done(ops::fscrypt_make(text(request, "target"), fscrypt_secret(request)));
}

result<json::object> do_fscrypt_unlock(const json::object& request) {
  return done(ops::fscrypt_unlock(text(request, "target"), fscrypt_secret(request)));
}

result<json::object> do_fscrypt_lock(const json::object& request) {
  return done(ops::fscrypt_lock(text(request, "target")));
}

std::uint32_t index(const json::object& request) { return request.at("index").to_number<std::uint32_t>(); }

result<json::object> do_daemons(const json::object& request) {
  const auto found = ops::daemons("", index(request), text(request, "backend"));
  if (!found) return found.error();
  return json::object{{"serving", json::array(found->begin(), found->end())},
                      {"uncached", ops::uncached_process("", *found)}};
}

result<json::object> do_dismiss(const json::object& request) {
  return done(ops::dismiss(index(request), text(request, "backend")));
}

struct Operation {
  std::string_view name;
  result<json::object> (*perform)(const json::object&);
};
constexpr std::array kHelperOperations{
    Operation{"probe", do_probe},
    Operation{"mkfs", do_mkfs},
    Operation{"fsck", do_fsck},
    Operation{"kernel_needs", do_kernel_needs},
    Operation{"kernel_needs_of_new", do_kernel_needs_of_new},
    Operation{"mount", do_mount},
    Operation{"bind", do_bind},
    Operation{"unmount", do_unmount},
    Operation{"limit_io", do_limit_io},
    Operation{"tune", do_tune},
    Operation{"check_unused", do_check_unused},
    Operation{"daemons", do_daemons},
    Operation{"dismiss", do_dismiss},
    Operation{"grow", do_grow},
    Operation{"extent", do_extent},
    Operation{"usage", do_usage},
    Operation{"trim", do_trim},
    Operation{"luks_look", do_luks_look},
    Operation{"luks_format", do_luks_format},
    Operation{"luks_open", do_luks_open},
    Operation{"luks_resize", do_luks_resize},
    Operation{"luks_close", do_luks_close},
    Operation{"luks_opens", do_luks_opens},
    Operation{"luks_add_key", do_luks_add_key},
    Operation{"luks_remove_key", do_luks_remove_key},
    Operation{"fscrypt_look", do_fscrypt_look},
    Operation{"fscrypt_make", do_fscrypt_make},
    Operation{"fscrypt_unlock", do_fscrypt_unlock},
    Operation{"fscrypt_lock", do_fscrypt_lock},
};

}  // namespace

result<json::object> work(const json::object& request) {
  const std::string wanted = text(request, "op");
  const auto* operation = std::find_if(kHelperOperations.begin(), kHelperOperations.end(),
                                       [&](const Operation& o) { return o.name == wanted; });
  if (operation == kHelperOperations.end())
    return Error{errc::unimplemented, "the helper knows no operation " + wanted};
  return operation->perform(request);
}

}  // namespace corbd::host
