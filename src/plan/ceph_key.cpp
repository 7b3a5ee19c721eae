#include "corbd/plan/ceph_key.hpp"

#include <utility>

namespace corbd::plan {

void CephKey::loaded(Secret key) {
  known_ = std::move(key);
  saved_ = true;
}

void CephKey::begin(const Wish& wish, bool has_record) {
  const auto* staged = std::get_if<Staged>(&wish);
  use_offered_ = staged != nullptr;
  if (staged == nullptr) return;
  if (known_ == staged->key) return offered_.reset();
  if (has_record && !known_.empty()) {
    offered_ = staged->key;
    return;
  }
  known_ = staged->key;
  saved_ = false;
  offered_.reset();
}

void CephKey::worked() {
  if (!use_offered_ || !offered_) return;
  known_ = std::move(*offered_);
  offered_.reset();
  saved_ = false;
}

void CephKey::refused() {
  if (!offered_ || use_offered_) return;
  std::swap(known_, *offered_);
  saved_ = false;
}

void CephKey::record_dropped(const Wish& wish) {
  const auto* staged = std::get_if<Staged>(&wish);
  known_ = staged != nullptr ? staged->key : Secret();
  saved_ = false;
  offered_.reset();
}

}  // namespace corbd::plan
