// An HTTP filter of Envoy that keeps keys and projects within their limits of requests a second and requests in flight.
// It stands behind the filters that verify who calls, and believes the headers that they set.
//
// Configuration: lines of `name requests_per_second burst concurrent_requests shadow`, where a name is
// `projects/{project}` or `projects/{project}/keys/{key}`.

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "admission.h"
#include "filter.h"
#include "refusal.h"

namespace inferplane {
namespace {

using abi::Bytes;

constexpr std::string_view kDetails = "inferplane_limits";

enum Counter : size_t { kAdmitted, kRefusedRate, kRefusedConcurrency, kShadowRate, kShadowConcurrency, kCounters };
constexpr std::array<std::string_view, kCounters> kCounterNames{
    "inferplane_limits_admitted", "inferplane_limits_refused_requests_per_second",
    "inferplane_limits_refused_concurrent_requests", "inferplane_limits_shadow_requests_per_second",
    "inferplane_limits_shadow_concurrent_requests"};

// Meters outlive configurations: there is one set for the process. And there is one table: Envoy keeps a configuration
// as long as some request began under it, and tables may be large.
Meters& meters() {
  static Meters all;
  return all;
}

std::shared_ptr<const LimitTable>& newest_table() {
  static std::shared_ptr<const LimitTable> newest;
  return newest;
}

std::shared_ptr<const LimitTable> table() { return std::atomic_load(&newest_table()); }

int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::string_view header(void* envoy, std::string_view name) {
  Bytes value{};
  if (!envoy_dynamic_module_callback_http_get_header(envoy, abi::kRequestHeader, bytes_of(name), &value, 0, nullptr)) {
    return {};
  }
  return {value.data, value.size};
}

using Counters = std::array<size_t, kCounters>;

class LimitFilter : public Filter {
 public:
  explicit LimitFilter(const Counters& counters) : counters_(counters) {}

  abi::HeadersStatus request_headers(void* envoy, bool) override {
    const std::shared_ptr<const LimitTable> limits = table();
    if (limits->empty()) return abi::kHeadersContinue;
    std::string name = "projects/";
    name += header(envoy, "x-inferplane-project");
    const Subject* project = limits->find(name);
    name += "/keys/";
    name += header(envoy, "x-inferplane-key");
    const Subject* key = limits->find(name);
    if (project == nullptr && key == nullptr) return abi::kHeadersContinue;
    const Verdict verdict = admission_.admit(key, project, now_ns());
    count(envoy, verdict);
    if (verdict == Verdict::kAdmitted) return abi::kHeadersContinue;
    refuse(envoy, verdict);
    return abi::kHeadersStop;
  }

  void response_headers(void* envoy) override {
    if (refused_) return;  // its answer has them
    for (const auto& [key, value] : rate_headers()) {
      envoy_dynamic_module_callback_http_set_header(envoy, abi::kResponseHeader, bytes_of(key), bytes_of(value));
    }
  }

  // Who has read the whole answer may ask again at once, and Envoy ends requests after it has written their answers.
  void response_ends() override { admission_.leave(); }

 private:
  using Headers = std::vector<std::pair<std::string_view, std::string>>;

  Headers rate_headers() const {
    if (admission_.burst() == 0) return {};
    return {{"x-ratelimit-limit-requests", std::to_string(admission_.burst())},
            {"x-ratelimit-remaining-requests", std::to_string(admission_.rate().remaining)},
            {"x-ratelimit-reset-requests", duration(admission_.rate().full_ns)}};
  }

  void refuse(void* envoy, Verdict verdict) {
    refused_ = true;
    const Refusal refusal = refusal_of(verdict, admission_);
    Headers headers = rate_headers();
    headers.emplace_back("retry-after", refusal.retry_after);
    constexpr std::string_view kGrpc = "application/grpc";
    if (header(envoy, "content-type").substr(0, kGrpc.size()) == kGrpc) {
      headers.emplace_back("grpc-status-details-bin", refusal.details);
    }
    std::vector<abi::Header> given;
    for (const auto& [key, value] : headers) given.push_back({bytes_of(key), bytes_of(value)});
    constexpr uint32_t kTooManyRequests = 429;
    envoy_dynamic_module_callback_http_send_response(envoy, kTooManyRequests, given.data(), given.size(),
                                                     bytes_of(refusal.text), bytes_of(kDetails));
  }

  void count(void* envoy, Verdict verdict) const {
    const auto increment = [&](Counter counter) {
      envoy_dynamic_module_callback_http_filter_increment_counter(envoy, counters_[counter], nullptr, 0, 1);
    };
    if (verdict == Verdict::kAdmitted) increment(kAdmitted);
    if (verdict == Verdict::kRate) increment(kRefusedRate);
    if (verdict == Verdict::kConcurrency) increment(kRefusedConcurrency);
    if (admission_.shadow() == Verdict::kRate) increment(kShadowRate);
    if (admission_.shadow() == Verdict::kConcurrency) increment(kShadowConcurrency);
  }

  const Counters& counters_;
  Admission admission_;
  bool refused_ = false;
};

class LimitConfig : public FilterConfig {
 public:
  explicit LimitConfig(const Counters& counters) : counters_(counters) {}
  std::unique_ptr<Filter> make() const override { return std::make_unique<LimitFilter>(counters_); }

 private:
  const Counters counters_;
};

}  // namespace

std::unique_ptr<FilterConfig> limit_config(void* envoy, std::string_view text) {
  std::shared_ptr<const LimitTable> limits = LimitTable::read(text, &meters());
  if (limits == nullptr) return nullptr;
  Counters counters{};
  for (size_t i = 0; i < kCounters; ++i) {
    envoy_dynamic_module_callback_http_filter_config_define_counter(envoy, bytes_of(kCounterNames[i]), nullptr, 0,
                                                                    &counters[i]);
  }
  std::atomic_store(&newest_table(), std::move(limits));
  meters().forget_unused();
  return std::make_unique<LimitConfig>(counters);
}

}  // namespace inferplane
