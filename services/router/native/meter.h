// How much of its limits a key or a project has used: requests over time, and requests in flight. Knows no Envoy and no
// clock: `now` is an argument, in nanoseconds of any clock that only grows. May be used by any number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>

namespace inferplane {

struct Limits {
  double requests_per_second = 0;  // 0: no limit, also in what follows
  int64_t burst = 0;
  int64_t concurrent_requests = 0;
  bool shadow = false;  // count what would be refused, refuse nothing
};

// What a request was told by a limit on requests over time.
struct Rate {
  bool fits = true;
  int64_t remaining = 0;  // requests that could come now
  int64_t full_ns = 0;    // until as many could come as ever
  int64_t wait_ns = 0;    // until one more could come; 0: now
};

// A bucket that is filled as time goes by is one number: the moment when it will be full. Taking a request moves that
// moment by the time that one request takes to be filled in again (the generic cell rate algorithm, ITU-T I.371).
class Meter {
 public:
  // A request begins, or is refused (then nothing is taken). With a limit of none it always begins.
  bool enter(int64_t most) {
    if (running_.fetch_add(1, std::memory_order_relaxed) < most || most <= 0) return true;
    leave();
    return false;
  }

  // The same without a limit: it is counted.
  void enter_anyway() { running_.fetch_add(1, std::memory_order_relaxed); }

  void leave() { running_.fetch_sub(1, std::memory_order_relaxed); }

  int64_t running() const { return running_.load(std::memory_order_relaxed); }

  // One request, if it fits. Without a limit it does, and nothing is said of what remains.
  Rate take(const Limits& limits, int64_t now) {
    Rate rate;
    if (limits.requests_per_second <= 0) return rate;
    const int64_t step = step_of(limits), window = window_of(limits, step);
    int64_t full_at = full_at_.load(std::memory_order_relaxed);
    for (;;) {
      // Fuller than full is only what was taken under other limits: of those, one request is let in, and so on from there.
      const int64_t begin = full_at > now + window ? now + window - step : std::max(full_at, now);
      const int64_t end = begin + step;
      rate.fits = end - now <= window;
      rate.remaining = std::max<int64_t>(window - ((rate.fits ? end : begin) - now), 0) / step;
      rate.full_ns = (rate.fits ? end : begin) - now;
      rate.wait_ns = std::max<int64_t>(end - now - window, 0);
      if (!rate.fits || full_at_.compare_exchange_weak(full_at, end, std::memory_order_relaxed)) return rate;
    }
  }

  // A request that was taken and then refused elsewhere.
  void give_back(const Limits& limits) {
    if (limits.requests_per_second > 0) full_at_.fetch_sub(step_of(limits), std::memory_order_relaxed);
  }

 private:
  static constexpr double kLongest = 1e18;  // nanoseconds; sums of four stay within 64 bits

  static int64_t step_of(const Limits& limits) {
    return static_cast<int64_t>(std::clamp(std::round(1e9 / limits.requests_per_second), 1.0, kLongest));
  }

  static int64_t window_of(const Limits& limits, int64_t step) {
    const double window = static_cast<double>(step) * static_cast<double>(std::max<int64_t>(limits.burst, 1));
    return std::max(static_cast<int64_t>(std::min(window, kLongest)), step);
  }

  std::atomic<int64_t> full_at_{0};
  std::atomic<int64_t> running_{0};
};

}  // namespace inferplane
