// Step that finds a new volume's image.
#pragma once

#include "step_tools.hpp"

namespace corbd::volume {

class ImageFinder : StepTools {
 public:
  using StepTools::StepTools;
  task<result<>> resolve(Volume& volume, const Staged& wish);

 private:
  task<result<>> check_encryption(const Volume& volume, const Staged& wish, image::Resolved& found) const;
  task<result<image::Resolved>> find_image(const Staged& wish);
  task<result<image::Resolved>> find_by_name(const Staged& wish);
  task<result<image::Resolved>> locate(const Staged& wish);
  task<result<image::Resolved>> locate_at(const Staged& wish, image::Place place);
};

}  // namespace corbd::volume
