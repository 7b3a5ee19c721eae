// Whether a client gets no answers where a new client of the same user gets them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "image_handle.hpp"

namespace corbd::rbd {

/// Reads where the data of an image are. librbd has it in memory. Pool thread.
result<Layout> read_layout(rbd_image_t image);

/// Returns the names of the objects that have these bytes, or of the first 64. No bytes: the object at that offset.
std::vector<std::string> data_objects(const Layout& layout, image::Range range);

/// Questions of one client: whether there are certain objects. Cancels what is not answered when it goes. Destroy it
/// before the client ends.
class Questions {
 public:
  Questions() = default;
  Questions(const Questions&) = delete;
  Questions& operator=(const Questions&) = delete;
  ~Questions();
  /// Cancels what is not answered, and waits for that. Pool thread.
  void cancel() const;
  /// Pool thread.
  void ask(const std::shared_ptr<OpenPool>& pool, const std::string& object);
  /// Whether each is answered by now. That there is no such object is an answer, too. Any thread.
  std::vector<bool> answers() const;

 private:
  struct One;
  std::vector<std::shared_ptr<One>> all_;
};

/// The parts of the names of an image's objects.
struct ImageObjects {
  image::Key key;
  std::uint64_t features = 0;
  Layout layout;
};

/// Asks about what a request on these bytes needs: the header, the object map and the data. Not about a parent's
/// objects, a journal's, and what a replica answers. Pool thread.
result<std::shared_ptr<Questions>> ask_about(const ImageObjects& of, rados_t by, image::Range range);

/// Compares the answers that two clients have got to the same questions.
enum class Compared {
  all_answered,  ///< the old client has all
  only_new,      ///< the new client has one that the old one lacks
  neither        ///< the old client lacks some, and so does the new one
};
Compared compare(const std::vector<bool>& answered, const std::vector<bool>& answered_anew);

/// Waits a few seconds for the first one's answers. Pool thread.
Compared compare(const Questions& asked, const Questions& asked_anew);

/// The first one's questions, and the result.
struct Comparison {
  std::shared_ptr<Questions> asked;
  Compared compared = Compared::neither;
};

}  // namespace corbd::rbd
