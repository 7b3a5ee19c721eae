// Finds volumes by what their records name, without a walk over all volumes of the node.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "corbd/plan/record.hpp"

namespace corbd::volume {

using plan::Record;

class RecordIndex {
 public:
  /// Volumes with a record of the image, in their order.
  std::set<std::string> of_image(const image::Key& key) const;
  /// Volumes with a record that has one of the paths, or stages at it or within it, in their order.
  std::set<std::string> at(const std::vector<std::string>& paths) const;

 private:
  friend class HeldRecord;
  void add(const std::string& id, const Record& record);
  void remove(const std::string& id, const Record& record);
  // A volume's record and its record under way may name the same.
  std::multiset<std::pair<image::Key, std::string>> by_image_;
  std::multiset<std::pair<std::string, std::string>> by_path_;
};

/// A record in memory. Each change reaches the index: nothing else may change what that has.
class HeldRecord {
 public:
  HeldRecord(RecordIndex& index, const std::string& volume_id) : index_(index), id_(volume_id) {}
  ~HeldRecord() { reset(); }
  HeldRecord(const HeldRecord&) = delete;
  HeldRecord& operator=(const HeldRecord&) = delete;
  HeldRecord& operator=(Record record) {
    reset();
    held_ = std::move(record);
    index_.add(id_, *held_);
    return *this;
  }
  void reset() {
    if (held_) index_.remove(id_, *held_);
    held_.reset();
  }
  operator const std::optional<Record>&() const { return held_; }  // NOLINT(google-explicit-constructor)
  explicit operator bool() const { return held_.has_value(); }
  bool has_value() const { return held_.has_value(); }
  const Record& operator*() const { return *held_; }
  const Record* operator->() const { return &*held_; }

 private:
  RecordIndex& index_;
  const std::string& id_;
  std::optional<Record> held_;
};

}  // namespace corbd::volume
