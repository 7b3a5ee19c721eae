// Steps for the volume's record and its key file.
#pragma once

#include "step_tools.hpp"

namespace corbd::volume {

class RecordSteps : StepTools {
 public:
  using StepTools::StepTools;
  task<result<>> write(Volume& volume, const step::WriteRecord& step);
  task<result<>> drop(Volume& volume, const Wish& wish);
  /// Writes a user and key that the cluster accepted and that are not in the volume's files.
  task<> keep_credential(Volume& volume);
  /// Whether a record or a key is being written, or removed.
  bool writing() const { return writes_ > 0; }

 private:
  /// While this object lives, something is being written.
  class Write {
   public:
    explicit Write(std::size_t& all) : all_(all) { ++all_; }
    ~Write() { --all_; }
    Write(const Write&) = delete;
    Write& operator=(const Write&) = delete;

   private:
    std::size_t& all_;
  };
  task<result<>> save(Volume& volume, Record record);
  std::size_t writes_ = 0;  ///< writes under way
};

}  // namespace corbd::volume
