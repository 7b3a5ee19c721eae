#include "support/newstyle.hpp"

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <utility>

namespace corbd::test {
namespace {

constexpr std::uint64_t kInit = 0x4e42444d41474943;    // "NBDMAGIC"
constexpr std::uint64_t kOption = 0x49484156454F5054;  // "IHAVEOPT"
constexpr std::uint64_t kOptionReply = 0x3e889045565a9;
constexpr std::uint16_t kFixedNewstyle = 1, kNoZeroes = 2;
constexpr std::uint16_t kHasFlags = 1, kReadOnly = 2, kFlush = 4, kFua = 8, kTrim = 32, kWriteZeroes = 64;
enum Option : std::uint32_t { export_name = 1, abort_it = 2, list = 3, info = 6, go = 7 };
constexpr std::uint32_t kAck = 1, kServer = 2, kInfo = 3, kUnsupported = (1u << 31) + 1;

std::string big_endian(std::uint64_t value, int bytes) {
  std::string out;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift & 0xff));
  return out;
}

class Talk {
 public:
  explicit Talk(int socket) : socket_(socket) {}
  template <class Number>
  Talk& put(Number value) {
    return text(big_endian(value, static_cast<int>(sizeof value)));
  }
  Talk& text(std::string_view value) {
    out_.append(value);
    return *this;
  }
  bool send() {
    const std::string now = std::exchange(out_, {});
    return ::send(socket_, now.data(), now.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(now.size());
  }
  template <class Number>
  bool get(Number& value) {
    std::string raw(sizeof value, 0);
    if (!get(raw)) return false;
    value = 0;
    for (const char byte : raw)
      value = static_cast<Number>(std::uint64_t{value} << 8 | static_cast<unsigned char>(byte));
    return true;
  }
  bool get(std::string& whole) {
    return whole.empty() ||
           ::recv(socket_, whole.data(), whole.size(), MSG_WAITALL) == static_cast<ssize_t>(whole.size());
  }
  Talk& reply(std::uint32_t option, std::uint32_t kind, std::string_view data = {}) {
    return put(kOptionReply).put(option).put(kind).put(static_cast<std::uint32_t>(data.size())).text(data);
  }

 private:
  int socket_;
  std::string out_;
};

}  // namespace

bool newstyle_handshake(int socket, std::uint64_t size, bool read_only) {
  const auto flags =
      static_cast<std::uint16_t>(kHasFlags | kFlush | kFua | kTrim | kWriteZeroes | (read_only ? kReadOnly : 0));
  Talk talk(socket);
  std::uint32_t client_flags = 0;
  talk.put(kInit).put(kOption).put(static_cast<std::uint16_t>(kFixedNewstyle | kNoZeroes));
  if (!talk.send() || !talk.get(client_flags)) return false;
  for (;;) {
    std::uint64_t magic = 0;
    std::uint32_t option = 0, length = 0;
    if (!talk.get(magic) || magic != kOption || !talk.get(option) || !talk.get(length) || length > 65536) return false;
    std::string data(length, 0);
    if (!talk.get(data)) return false;
    switch (option) {
      case export_name:
        talk.put(size).put(flags);
        if ((client_flags & kNoZeroes) == 0) talk.text(std::string(124, 0));
        return talk.send();
      case abort_it:
        talk.reply(option, kAck).send();
        return false;
      case list:
        talk.reply(option, kServer, std::string(4, 0)).reply(option, kAck);
        break;
      case info:
      case go:
        talk.reply(option, kInfo, big_endian(0, 2) + big_endian(size, 8) + big_endian(flags, 2)).reply(option, kAck);
        break;
      default:
        talk.reply(option, kUnsupported);
    }
    if (!talk.send()) return false;
    if (option == go) return true;
  }
}

}  // namespace corbd::test
