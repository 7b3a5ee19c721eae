#include "luks_device.hpp"

#include <cerrno>

#include "failure.hpp"

namespace corbd::host::ops {
namespace {

/// The library's messages go into the error, not to a standard stream.
void keep_message(int level, const char* message, void* into) {
  if (level != CRYPT_LOG_ERROR) return;
  auto& text = *static_cast<std::string*>(into);
  text += (text.empty() ? "" : " ") + std::string(message);
  while (!text.empty() && text.back() == '\n') text.pop_back();
}

}  // namespace

Error LuksDevice::failed(const std::string& doing, int code) const {
  if (code == -EPERM)
    return {errc::unauthenticated, doing + ": no key slot opens with this passphrase; nothing was changed"};
  Error error = failure(doing, -code);
  if (!messages.empty()) error.text += " (" + messages + ")";
  // The library lacks something that the header asks for: no repeat helps.
  if (code == -ETXTBSY)
    error = {errc::failed_precondition,
             error.text +
                 ": the header asks for what this agent's libcryptsetup does not do, and "
                 "`cryptsetup luksDump` names it: undo it with the cryptsetup that wrote it"};
  return error;
}

result<> begin(LuksDevice& on, const std::string& device) {
  static_cast<void>(crypt_metadata_locking(nullptr, 0));
  crypt_device* made = nullptr;
  const int r = crypt_init(&made, device.c_str());
  if (r < 0) return failure("opening " + device, -r);
  on.context.reset(made);
  crypt_set_log_callback(made, &keep_message, &on.messages);
  return {};
}

result<> load(LuksDevice& on, const std::string& device) {
  if (auto begun = begin(on, device); !begun) return begun;
  const int r = crypt_load(on.context.get(), CRYPT_LUKS, nullptr);
  if (r < 0) return on.failed("reading the LUKS header of " + device, r);
  return {};
}

result<bool> find_mapping(LuksDevice& on, const std::string& mapping) {
  crypt_device* found = nullptr;
  const int r = crypt_init_by_name(&found, mapping.c_str());
  if (r == -ENODEV) return false;
  if (r < 0) return failure("looking at the mapping " + mapping, -r);
  on.context.reset(found);
  crypt_set_log_callback(found, &keep_message, &on.messages);
  return true;
}

}  // namespace corbd::host::ops
