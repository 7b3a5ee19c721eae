#include "writer_mark.hpp"

#include <array>
#include <cerrno>

#include "failure.hpp"
#include "header.hpp"

namespace corbd::rbd {
namespace {

const std::string kName = "corbd/writer";

struct Mark {
  std::string text;           ///< empty: there is none
  std::uint64_t version = 0;  ///< of the header that has it
};

/// Not by librbd: its answer has no version.
result<Mark> read_mark(OpenImage& opened) {
  const std::string request = encode_text(kName);
  std::array<char, 512> reply{};
  const int r = opened.connection.note(rados_exec(opened.pool.io.get(), opened.header().c_str(), "rbd", "metadata_get",
                                                  request.data(), request.size(), reply.data(), reply.size()));
  if (r == -ENOENT) return Mark();
  if (r < 0) return failure("reading metadata " + kName + " of image " + opened.text(), r);
  // A length of four bytes, then the text.
  constexpr std::size_t kLength = 4;
  if (static_cast<std::size_t>(r) < kLength) return Mark();
  return Mark{std::string(reply.data() + kLength, static_cast<std::size_t>(r) - kLength),
              rados_get_last_version(opened.pool.io.get())};
}

/// The header has another version than the caller saw.
bool has_changed(int r) { return r == -ERANGE || r == -EOVERFLOW; }

}  // namespace

std::string new_mark(const OpenImage& opened) {
  static std::atomic<std::uint64_t> marks{0};
  return opened.key.image_id + " " + opened.connection.addresses.front() + " " + std::to_string(++marks);
}

std::string writer_in(const std::string& mark, const std::string& image_id) {
  if (!mark.starts_with(image_id + " ")) return {};
  const auto begin = image_id.size() + 1;
  return mark.substr(begin, mark.find(' ', begin) - begin);
}

result<std::string> read_writer(OpenImage& opened) {
  const auto mark = read_mark(opened);
  if (!mark) return mark.error();
  return writer_in(mark->text, opened.key.image_id);
}

result<> write_mark(OpenImage& opened, const std::string& mark, std::uint64_t seen) {
  const int r = change_metadata(opened, kName, mark, seen);
  if (has_changed(r))
    return Error{errc::in_use, "marking image " + opened.text() + ": another client changed its header meanwhile"};
  if (r < 0) return failure("writing metadata " + kName + " of image " + opened.text(), r);
  return {};
}

result<> remove_mark(OpenImage& opened) {
  constexpr int kTries = 8;
  for (int tries = 1;; ++tries) {
    const auto mark = read_mark(opened);
    if (!mark) return mark.error();
    if (mark->text != opened.mark) return {};
    const int r = change_metadata(opened, kName, std::nullopt, mark->version);
    if (r >= 0) return {};
    if (!has_changed(r) || tries == kTries)
      return failure("removing metadata " + kName + " of image " + opened.text(), r);
  }
}

}  // namespace corbd::rbd
