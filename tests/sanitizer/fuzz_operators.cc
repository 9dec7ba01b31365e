// Random calls of the operators, good and bad, for a build with sanitizers: whatever the inputs say, an operator either
// refuses them or computes within their bounds. Every buffer is exactly as large as its shape says.
//
// fuzz_operators [calls [seed]]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "operators.h"
#include "variants.h"

namespace {

using llm::Element;
using llm::Inputs;
using llm::Shape;
using llm::Tensor;

class Threads final : public llm::Parallel {
 private:
  void start(size_t pieces, void (*work)(void*, size_t), void* user) override {
    std::thread other([=] {
      for (size_t piece = 0; piece < pieces; piece += 2) work(user, piece);
    });
    for (size_t piece = 1; piece < pieces; piece += 2) work(user, piece);
    other.join();
  }
};

// Tensors and the memory behind them.
class Call {
 public:
  explicit Call(std::mt19937& random) : random_(random) {}

  int64_t any(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }
  bool once_in(int64_t times) { return any(1, times) == 1; }
  int64_t one_of(std::initializer_list<int64_t> values) {
    return values.begin()[any(0, static_cast<int64_t>(values.size()) - 1)];
  }

  void* add(Element element, Shape shape) {
    if (once_in(150)) shape[static_cast<size_t>(any(0, static_cast<int64_t>(shape.size()) - 1))] += any(-1, 1);
    if (once_in(300)) shape.push_back(1);
    for (int64_t& extent : shape) extent = extent < 0 ? 0 : extent;
    if (once_in(300)) element = Element::kOther;
    Tensor tensor{element, shape, nullptr};
    const size_t width = element == Element::kUint8 ? 1 : element == Element::kFloat16 ? 2 : 4;
    // Never null: that would be an input that was left out.
    tensor.data = std::malloc(static_cast<size_t>(tensor.size()) * width + (tensor.size() ? 0 : 1));
    memory_.emplace_back(tensor.data, std::free);
    inputs.push_back(tensor);
    return tensor.data;
  }
  void add_floats(Shape shape) {
    auto* to = static_cast<float*>(add(Element::kFloat, shape));
    const int64_t count = inputs.back().element == Element::kFloat ? inputs.back().size() : 0;
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; i++) to[i] = normal(random_);
    constexpr float odd[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e-40f, 3e38f};
    if (count && once_in(4)) to[any(0, count - 1)] = odd[any(0, 3)];
  }
  void add_bytes(Element element, Shape shape) {
    auto* to = static_cast<uint8_t*>(add(element, shape));
    const int64_t width = element == Element::kFloat16 ? 2 : element == Element::kFloat ? 4 : 1;
    const int64_t count = inputs.back().element == element ? inputs.back().size() * width : 0;
    for (int64_t i = 0; i < count; i++) to[i] = static_cast<uint8_t>(random_());
  }
  void add_integers(const std::vector<int32_t>& values, Shape shape) {
    auto* to = static_cast<int32_t*>(add(Element::kInt32, shape));
    const auto count = static_cast<size_t>(inputs.back().size());
    for (size_t i = 0; i < count; i++) to[i] = i < values.size() ? values[i] : 0;
    if (count && once_in(20)) {
      constexpr int32_t odd[] = {-1, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min(), 17};
      to[any(0, static_cast<int64_t>(count) - 1)] = odd[any(0, 3)];
    }
  }
  void leave_out() { inputs.emplace_back(); }

  Inputs inputs;

 private:
  std::mt19937& random_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
};

// True if the operator took the inputs.
template <class Operator>
bool attempt(const Operator& operation, const Inputs& inputs) {
  Threads threads;
  try {
    const Shape shape = operation.shape(inputs);
    int64_t size = 1;
    for (int64_t extent : shape) size *= extent;
    std::vector<float> out(static_cast<size_t>(size));
    operation.compute(inputs, out.data(), threads);
    return true;
  } catch (const llm::InvalidInput&) {
    return false;
  }
}

bool call_qlinear(Call& call) {
  const int64_t columns = call.any(1, 70), bits = call.one_of({4, 8}), blocks = call.any(1, 12);
  const int64_t panels = (columns + 15) / 16;
  call.add_floats({call.any(0, 40), blocks * 32});
  call.add_bytes(Element::kUint8, {panels, blocks, 64 * bits});
  call.add_bytes(Element::kFloat16, {panels, blocks, 32});
  if (call.once_in(2)) call.add_floats({columns});
  return attempt(llm::QLinear(columns, bits), call.inputs);
}

bool call_swiglu(Call& call) {
  call.add_floats({call.any(0, 40), call.any(0, 100) * 2});
  return attempt(llm::SwiGLU(call.once_in(2) ? llm::Activation::kSilu : llm::Activation::kGeluTanh), call.inputs);
}

bool call_attention(Call& call) {
  llm::PagedAttentionAttributes attributes;
  attributes.kv_num_heads = call.any(1, 3);
  attributes.num_heads = attributes.kv_num_heads * call.one_of({1, 2, 3, 7, 50});
  attributes.window = call.once_in(3) ? call.any(1, 200) : 0;
  attributes.softcap = call.once_in(3) ? 5.f : 0.f;
  attributes.layer = call.any(0, 1);
  const int64_t size = call.one_of({16, 32, 64, 80, 256}), layers = call.any(1, 2), pool = call.any(1, 40);
  const int64_t requests = call.any(0, 3), most = call.any(1, 20), positions = call.any(1, 330);
  std::vector<int32_t> starts{0}, past, blocks;
  for (int64_t i = 0; i < requests; i++) {
    const int64_t room = std::min(most * 16, positions) + (call.once_in(20) ? 1 : 0);
    const int64_t count = call.any(0, std::min<int64_t>(room, 60));
    starts.push_back(starts.back() + static_cast<int32_t>(count));
    past.push_back(static_cast<int32_t>(call.any(0, room - count)));
    for (int64_t b = 0; b < most; b++) blocks.push_back(static_cast<int32_t>(call.any(0, pool - 1)));
  }
  call.add_floats({starts.back(), (attributes.num_heads + 2 * attributes.kv_num_heads) * size});
  call.add_bytes(call.once_in(2) ? Element::kFloat : Element::kFloat16,
                 {layers, 2, pool, attributes.kv_num_heads, 16 * size});
  call.add_integers(starts, {requests + 1});
  call.add_integers(past, {requests});
  call.add_integers(blocks, {requests, most});
  const int64_t rotated = call.any(0, size / 2);
  call.add_floats({positions, rotated});
  call.add_floats({positions, rotated});
  if (call.once_in(2)) {
    call.once_in(2) ? call.leave_out() : call.add_floats({size});
    call.add_floats({size});
  }
  return attempt(llm::PagedAttention(attributes), call.inputs);
}

}  // namespace

int main(int count, char** arguments) {
  const int calls = count > 1 ? std::atoi(arguments[1]) : 1000;
  std::mt19937 random(count > 2 ? static_cast<unsigned>(std::atoi(arguments[2])) : 1u);
  for (const char* variant : {"avx512", "avx2", "portable"}) {
    if (!llm::select_kernels(variant)) {
      std::printf("%s: this CPU can't run it\n", variant);
      continue;
    }
    int taken[3] = {}, made[3] = {};
    for (int i = 0; i < calls; i++) {
      Call call(random);
      const int which = i % 3;
      made[which]++;
      taken[which] += which == 0 ? call_qlinear(call) : which == 1 ? call_swiglu(call) : call_attention(call);
    }
    std::printf("%s: QLinear took %d of %d calls, SwiGLU %d of %d, PagedAttention %d of %d\n", variant, taken[0],
                made[0], taken[1], made[1], taken[2], made[2]);
    for (int which = 0; which < 3; which++) {
      if (!taken[which] || taken[which] == made[which]) return 1;  // the calls say nothing if all are of one kind
    }
  }
}
