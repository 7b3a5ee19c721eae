#include "wire.hpp"

#include <cstring>

namespace corbd::keeper {
namespace {

constexpr std::size_t kMostText = 4096;

}  // namespace

result<> tell(int socket, const KeeperMessage& note, const std::string& backend, std::span<const int> descriptors) {
  if (backend.size() > kMostText) return Error{errc::invalid_argument, "an identifier is too long for the keeper"};
  std::string bytes(sizeof note, '\0');
  std::memcpy(bytes.data(), &note, sizeof note);
  auto told = send_message(socket, bytes + backend, descriptors, Waits::no);
  if (!told) return with_context("telling the keeper", told.error());
  return {};
}

result<Heard> hear(int socket, Waits waits) {
  auto got = receive_message(socket, sizeof(KeeperMessage) + kMostText, waits);
  if (!got) return with_context("between agent and keeper", got.error());
  Heard heard;
  heard.descriptors = std::move(got->descriptors);
  const bool whole = got->bytes.size() >= sizeof heard.note;
  if (whole) std::memcpy(&heard.note, got->bytes.data(), sizeof heard.note);
  const auto kind = heard.note.kind;
  const std::size_t wanted = kind == Kind::link ? 2 : kind == Kind::memory || kind == Kind::listener ? 1 : 0;
  if (!whole || heard.descriptors.size() != wanted)
    return Error{errc::internal, "a message between agent and keeper is truncated"};
  heard.backend = got->bytes.substr(sizeof heard.note);
  return heard;
}

}  // namespace corbd::keeper
