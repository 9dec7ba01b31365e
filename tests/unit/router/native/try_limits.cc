// Plays what it reads from standard input against the limits of the edge's module; for the test beside it. A line is:
//   table NAME RATE BURST CONCURRENT SHADOW;...   these limits from now on, separated by semicolons; `-`: none
//   admit ID KEY PROJECT NOW                      a request (names of its subjects, nanoseconds)
//   end ID                                        it has ended
//   running NAME                                  requests in flight
//   storm THREADS REQUESTS NAME                   as many requests from as many threads at one moment: how many got in
//   meters                                        how many there are
// With the answer of each on a line of its own.

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "../../../../services/router/native/refusal.h"

using inferplane::Admission;
using inferplane::LimitTable;
using inferplane::Meters;
using inferplane::Verdict;

namespace {

Meters meters;
std::shared_ptr<const LimitTable> table;
std::map<std::string, std::unique_ptr<Admission>> requests;

void read_table(std::string text) {
  std::replace(text.begin(), text.end(), ';', '\n');
  std::shared_ptr<const LimitTable> made = LimitTable::read(text == "-" ? "" : text, &meters);
  std::puts(made == nullptr ? "refused" : "taken");
  if (made != nullptr) table = std::move(made);
  meters.forget_unused();
}

void admit(const std::string& id, const std::string& key, const std::string& project, int64_t now) {
  auto admission = std::make_unique<Admission>();
  const Verdict verdict = admission->admit(table->find(key), table->find(project), now);
  if (verdict == Verdict::kAdmitted) {
    const char* shadow = admission->shadow() == Verdict::kRate          ? " over-rate"
                         : admission->shadow() == Verdict::kConcurrency ? " over-concurrency"
                                                                        : "";
    if (admission->burst() != 0) {
      std::printf("admitted%s %lld/%lld %s\n", shadow, static_cast<long long>(admission->rate().remaining),
                  static_cast<long long>(admission->burst()),
                  inferplane::duration(admission->rate().full_ns).c_str());
    } else {
      std::printf("admitted%s\n", shadow);
    }
    requests[id] = std::move(admission);
    return;
  }
  const inferplane::Refusal refusal = inferplane::refusal_of(verdict, *admission);
  std::printf("refused %s|%s|%s\n", refusal.text.c_str(), refusal.retry_after.c_str(), refusal.details.c_str());
}

void storm(size_t threads, size_t count, const std::string& name) {
  std::atomic<size_t> admitted{0};
  std::vector<std::thread> running;
  for (size_t i = 0; i < threads; ++i) {
    running.emplace_back([&] {
      for (size_t k = 0; k < count; ++k) {
        Admission admission;
        if (admission.admit(table->find(name), nullptr, 1000000000000) == Verdict::kAdmitted) ++admitted;
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  std::printf("%zu\n", admitted.load());
}

}  // namespace

int main() {
  std::string line, word;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    words >> word;
    if (word == "table") {
      read_table(line.substr(6));
    } else if (word == "admit") {
      std::string id, key, project;
      int64_t now = 0;
      words >> id >> key >> project >> now;
      admit(id, key, project, now);
    } else if (word == "end") {
      words >> word;
      requests.erase(word);
      std::puts("ended");
    } else if (word == "running") {
      words >> word;
      const auto* subject = table->find(word);
      std::printf("%lld\n", subject == nullptr ? -1LL : static_cast<long long>(subject->meter->running()));
    } else if (word == "storm") {
      size_t threads = 0, count = 0;
      words >> threads >> count >> word;
      storm(threads, count, word);
    } else {
      std::printf("%zu\n", meters.size());
    }
  }
  return 0;
}
