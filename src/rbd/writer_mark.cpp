#include "writer_mark.hpp"

#include <openssl/crypto.h>
#include <openssl/hmac.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>

#include "async.hpp"
#include "corbd/core/base64.hpp"
#include "corbd/image/blocklist.hpp"
#include "failure.hpp"
#include "header.hpp"

namespace corbd::rbd {
namespace {

const std::string kName = "corbd/writer";
// cls_rbd stores the metadata under this key, unencoded.
const std::string kOmapKey = "metadata_" + kName;

std::string signature_of(std::string_view mark, const Secret& key) {
  // No other text that the key may sign begins like this.
  const std::string text = kName + " " + std::string(mark);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  if (HMAC(EVP_sha256(), key.reveal().data(), static_cast<int>(key.reveal().size()), bytes, text.size(), digest.data(),
           &length) == nullptr)
    return {};
  return to_base64({reinterpret_cast<const char*>(digest.data()), length});
}

}  // namespace

std::string new_mark(const ImageHandle& opened) {
  static std::atomic<std::uint64_t> marks{0};
  const std::string mark =
      opened.key.image_id + " " + opened.connection.addresses.front() + " " + std::to_string(++marks);
  return signed_mark(mark, opened.connection.group->access.key);
}

std::string signed_mark(const std::string& mark, const Secret& key) { return mark + " " + signature_of(mark, key); }

bool is_signed(std::string_view mark, const Secret& key) {
  const auto end = mark.rfind(' ');
  if (end == mark.npos) return false;
  const std::string right = signature_of(mark.substr(0, end), key);
  const std::string_view has = mark.substr(end + 1);
  return !right.empty() && has.size() == right.size() && CRYPTO_memcmp(has.data(), right.data(), right.size()) == 0;
}

std::string writer_in(const std::string& mark, const std::string& image_id) {
  if (!mark.starts_with(image_id + " ")) return {};
  const auto begin = image_id.size() + 1;
  std::string address = mark.substr(begin, mark.find(' ', begin) - begin);
  return image::entry_of_client(address) ? address : std::string();
}

result<Mark> read_mark(const ImageHandle& opened) {
  const std::string request = encode_text(kName);
  std::array<char, 512> reply{};
  const int r =
      opened.connection.observe_result(rados_exec(opened.pool.io.get(), opened.header().c_str(), "rbd", "metadata_get",
                                                  request.data(), request.size(), reply.data(), reply.size()));
  // ERANGE: longer than any of ours.
  if (r == -ENOENT || r == -ERANGE) return Mark();
  if (r < 0) return failure("reading metadata " + kName + " of image " + opened.text(), r);
  // The value is a length of four bytes, then the text.
  constexpr std::size_t kLength = 4;
  if (static_cast<std::size_t>(r) < kLength) return Mark();
  const std::string text(reply.data() + kLength, static_cast<std::size_t>(r) - kLength);
  return Mark{writer_in(text, opened.key.image_id), is_signed(text, opened.connection.group->access.key),
              rados_get_last_version(opened.pool.io.get())};
}

result<> write_mark(const ImageHandle& opened, const std::string& mark, std::uint64_t seen) {
  const std::string doing = "marking image " + opened.text();
  // Ceph takes no version 0.
  if (seen == 0) return Error{errc::internal, doing + ": its users have not been read yet"};
  const int r = change_metadata(opened, kName, mark, seen);
  if (r == -ERANGE || r == -EOVERFLOW)
    return Error{errc::in_use, doing + ": another client changed its header meanwhile"};
  if (r < 0) return failure(doing, r);
  return {};
}

task<result<>> remove_mark(executor control, Clock& clock, const ImageHandle& opened, const std::string& mark) {
  const std::string request = encode_text(kName);
  const std::unique_ptr<void, void (*)(rados_write_op_t)> operation(rados_create_write_op(), &rados_release_write_op);
  int compared = 0;
  rados_write_op_omap_cmp(operation.get(), kOmapKey.c_str(), LIBRADOS_CMPXATTR_OP_EQ, mark.data(), mark.size(),
                          &compared);
  rados_write_op_exec(operation.get(), "rbd", "metadata_remove", request.data(), request.size(), nullptr);
  const auto submit = [&](rados_completion_t completion) {
    return rados_aio_write_op_operate(operation.get(), opened.pool.io.get(), completion, opened.header().c_str(),
                                      nullptr, 0);
  };
  const int r = opened.connection.observe_result(co_await completed<Librados>(control, clock, submit));
  // ECANCELED: another client's, or none. ENOENT: the image is gone.
  if (r >= 0 || r == -ECANCELED || r == -ENOENT) co_return result<>();
  co_return failure("removing metadata " + kName + " of image " + opened.text(), r);
}

task<result<>> persist(executor control, Clock& clock, std::function<task<result<>>()> remove,
                       std::function<bool()> pointless) {
  constexpr std::chrono::seconds kPause{2}, kLongest{60};
  const auto end = clock.now() + kLongest;
  for (;;) {
    auto removed = co_await remove();
    if (removed || pointless() || clock.now() >= end) co_return removed;
    co_await sleep_until(control, clock, clock.now() + kPause);
  }
}

}  // namespace corbd::rbd
