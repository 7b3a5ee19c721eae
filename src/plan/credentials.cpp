#include "corbd/plan/credentials.hpp"

namespace corbd::plan {

void Credentials::loaded(Credential credential) {
  replace(std::move(credential));
  saved_ = true;
}

void Credentials::replace(Credential credential) {
  known_ = std::move(credential);
  saved_ = unproven_ = worked_ = swapped_ = false;
}

void Credentials::swap() {
  std::swap(known_, *offered_);
  swapped_ = !swapped_;
  saved_ = worked_ = false;
}

void Credentials::begin(const Wish& wish, bool has_record) {
  const auto* staged = std::get_if<Staged>(&wish);
  const auto* authorized = std::get_if<Authorized>(&wish);
  const Credential* brought =
      staged != nullptr ? &staged->credential : (authorized != nullptr ? &authorized->credential : nullptr);
  use_offered_ = brought != nullptr;
  tried_ = false;
  if (brought == nullptr) return;
  // The cluster may accept the key that served the volume again later. A stage's untried one must not replace that key.
  if (swapped_) swap();
  if (known_ == *brought) return offered_.reset();
  if (has_record && !known_.empty()) {
    offered_ = *brought;
    return;
  }
  replace(*brought);
  unproven_ = has_record;
  offered_.reset();
}

bool Credentials::take(const Credential& of_secret, errc refused) {
  if (known_.empty()) {
    replace(of_secret);
    return true;
  }
  // Rights belong to the user: another key of the same user has the same.
  const bool other = refused == errc::permission_denied ? of_secret.user != asks_with().user : of_secret != asks_with();
  if (!other) return false;
  tried_ = false;
  if (swapped_) swap();
  use_offered_ = of_secret != known_;
  if (use_offered_) offered_ = of_secret;
  return true;
}

void Credentials::worked() {
  worked_ = true;
  swapped_ = unproven_ = false;
  if (!use_offered_ || !offered_) return;
  known_ = std::move(*offered_);
  offered_.reset();
  saved_ = false;
}

void Credentials::refused() {
  if (offered_ && !use_offered_) swap();
}

void Credentials::record_dropped(const Wish& wish) {
  const auto* staged = std::get_if<Staged>(&wish);
  replace(staged != nullptr ? staged->credential : Credential());
  offered_.reset();
}

}  // namespace corbd::plan
