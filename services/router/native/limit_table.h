// Limits by the name of a key or project, and what is used of them. What is used outlives a change of the limits: tables
// come and go with each change of the policy, meters stay as long as a table or a request has them. Knows no Envoy.
#pragma once

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "meter.h"

namespace inferplane {

// A key or project that has limits.
struct Subject {
  std::string name;
  Limits limits;
  std::shared_ptr<Meter> meter;
};

// All meters of this process, for all tables.
class Meters {
 public:
  std::shared_ptr<Meter> of(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::weak_ptr<Meter>& kept = meters_[name];
    std::shared_ptr<Meter> meter = kept.lock();
    if (meter == nullptr) kept = meter = std::make_shared<Meter>();
    return meter;
  }

  void forget_unused() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto at = meters_.begin(); at != meters_.end();) {
      at = at->second.expired() ? meters_.erase(at) : std::next(at);
    }
  }

  size_t size() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return meters_.size();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<Meter>> meters_;
};

// One policy's limits; does not change.
class LimitTable {
 public:
  // Lines of `name requests_per_second burst concurrent_requests shadow`; null if one is something else.
  static std::unique_ptr<LimitTable> read(std::string_view text, Meters* meters) {
    auto table = std::make_unique<LimitTable>();
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      if (end > 0 && !table->add(std::string(text.substr(0, end)), meters)) return nullptr;
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return table;
  }

  bool empty() const { return subjects_.empty(); }

  // Null: it has none.
  const Subject* find(const std::string& name) const {
    const auto found = subjects_.find(name);
    return found == subjects_.end() ? nullptr : &found->second;
  }

 private:
  bool add(const std::string& line, Meters* meters) {
    const size_t space = line.find(' ');
    if (space == std::string::npos || space == 0) return false;
    Subject subject;
    subject.name = line.substr(0, space);
    const char* at = line.c_str() + space;
    char* end = nullptr;
    subject.limits.requests_per_second = std::strtod(at, &end);
    if (end == at || !std::isfinite(subject.limits.requests_per_second)) return false;
    int64_t numbers[3] = {0, 0, 0};
    for (int64_t& number : numbers) {
      at = end;
      number = std::strtoll(at, &end, 10);
      if (end == at || number < 0) return false;
    }
    if (*end != '\0') return false;
    subject.limits.burst = numbers[0];
    subject.limits.concurrent_requests = numbers[1];
    subject.limits.shadow = numbers[2] != 0;
    subject.meter = meters->of(subject.name);
    subjects_[subject.name] = std::move(subject);
    return true;
  }

  std::unordered_map<std::string, Subject> subjects_;
};

}  // namespace inferplane
