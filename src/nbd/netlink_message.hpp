// Builds and reads messages of the nbd family with libnl.
#pragma once

#include <linux/nbd-netlink.h>
#include <netlink/genl/genl.h>

#include <memory>
#include <optional>
#include <string>

#include "netlink.hpp"

namespace corbd::nbd {

/// A request that asks for an acknowledgement. A failed attribute makes the whole message bad.
class Netlink::Message {
 public:
  Message(int family, std::uint8_t command) : raw_(::nlmsg_alloc(), &::nlmsg_free) {
    good_ = raw_ &&
            ::genlmsg_put(raw(), NL_AUTO_PORT, NL_AUTO_SEQ, family, 0, NLM_F_ACK, command, NBD_GENL_VERSION) != nullptr;
  }
  nl_msg* raw() const { return raw_.get(); }
  bool good() const { return good_; }

  Message& u32(int attribute, std::uint32_t value) { return put(good_ && ::nla_put_u32(raw(), attribute, value) == 0); }
  Message& u64(int attribute, std::uint64_t value) { return put(good_ && ::nla_put_u64(raw(), attribute, value) == 0); }
  Message& text(int attribute, const std::string& value) {
    return put(good_ && ::nla_put_string(raw(), attribute, value.c_str()) == 0);
  }
  Message& socket(int fd) {
    nlattr* const all = good_ ? ::nla_nest_start(raw(), NBD_ATTR_SOCKETS) : nullptr;
    nlattr* const one = all != nullptr ? ::nla_nest_start(raw(), NBD_SOCK_ITEM) : nullptr;
    if (one == nullptr || ::nla_put_u32(raw(), NBD_SOCK_FD, static_cast<std::uint32_t>(fd)) != 0) return put(false);
    return put(::nla_nest_end(raw(), one) == 0 && ::nla_nest_end(raw(), all) == 0);
  }

 private:
  Message& put(bool fine) {
    good_ = good_ && fine;
    return *this;
  }
  std::unique_ptr<nl_msg, decltype(&::nlmsg_free)> raw_;
  bool good_ = false;
};

inline std::optional<std::uint32_t> index_of(nl_msg* message) {
  nlattr* attributes[NBD_ATTR_MAX + 1] = {};
  if (::genlmsg_parse(::nlmsg_hdr(message), 0, attributes, NBD_ATTR_MAX, nullptr) != 0 ||
      attributes[NBD_ATTR_INDEX] == nullptr)
    return std::nullopt;
  return ::nla_get_u32(attributes[NBD_ATTR_INDEX]);
}

}  // namespace corbd::nbd
