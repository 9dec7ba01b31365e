// One request before the limits of its key and its project: it is let in by both, or by neither and then it has taken
// nothing. Gives back what it holds when it goes, however that comes about. It holds meters and no table: a stream that
// lasts for days must not keep the limits of its first day in memory. Knows no Envoy.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "limit_table.h"

namespace inferplane {

enum class Verdict { kAdmitted, kRate, kConcurrency };

class Admission {
 public:
  Admission() = default;
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;
  ~Admission() { leave(); }

  // It is over. Repeating it is harmless.
  void leave() {
    for (auto& meter : held_) {
      if (meter != nullptr) meter->leave();
      meter = nullptr;
    }
  }

  // Subjects may be null: no limits. Called once.
  Verdict admit(const Subject* key, const Subject* project, int64_t now) {
    const std::array<const Subject*, 2> subjects{key, project};
    Verdict verdict = Verdict::kAdmitted;
    for (size_t i = 0; i < subjects.size() && verdict == Verdict::kAdmitted; ++i) {
      if (subjects[i] != nullptr) verdict = enter(*subjects[i], i);
    }
    for (size_t i = 0; i < subjects.size() && verdict == Verdict::kAdmitted; ++i) {
      if (subjects[i] != nullptr) verdict = take(*subjects[i], i, now);
    }
    if (verdict != Verdict::kAdmitted) {
      if (taken_[0]) key->meter->give_back(key->limits);
      leave();
    }
    return verdict;
  }

  // What would have been refused, were the limits not in shadow mode.
  Verdict shadow() const { return shadow_; }

  // Of the limits on requests over time, the one of which least is left: how many may come at once (0: there is no such
  // limit), and how it stands.
  int64_t burst() const { return burst_; }
  const Rate& rate() const { return rate_; }
  // The one that refused; as long as the table is there.
  const Subject* refused_by() const { return refused_by_; }

 private:
  Verdict enter(const Subject& subject, size_t place) {
    if (!subject.meter->enter(subject.limits.concurrent_requests)) {
      if (!subject.limits.shadow) return refuse(subject, Verdict::kConcurrency);
      shadow_ = Verdict::kConcurrency;
      subject.meter->enter_anyway();
    }
    held_[place] = subject.meter;
    return Verdict::kAdmitted;
  }

  Verdict take(const Subject& subject, size_t place, int64_t now) {
    if (subject.limits.requests_per_second <= 0) return Verdict::kAdmitted;
    const Rate rate = subject.meter->take(subject.limits, now);
    taken_[place] = rate.fits;
    if (!rate.fits && subject.limits.shadow) {
      shadow_ = Verdict::kRate;
      return Verdict::kAdmitted;
    }
    if (!subject.limits.shadow && (burst_ == 0 || !rate.fits || rate.remaining < rate_.remaining)) {
      burst_ = std::max<int64_t>(subject.limits.burst, 1);
      rate_ = rate;
    }
    return rate.fits ? Verdict::kAdmitted : refuse(subject, Verdict::kRate);
  }

  Verdict refuse(const Subject& subject, Verdict verdict) {
    refused_by_ = &subject;
    return verdict;
  }

  std::array<std::shared_ptr<Meter>, 2> held_;
  std::array<bool, 2> taken_{};
  int64_t burst_ = 0;
  const Subject* refused_by_ = nullptr;
  Rate rate_;
  Verdict shadow_ = Verdict::kAdmitted;
};

}  // namespace inferplane
