// What operators are given: views of tensors, the means to compute in parallel, and the way to say what is wrong.
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace llm {

// An input is not as the operator's contract says; the text names what is out of range.
class InvalidInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using Shape = std::vector<int64_t>;

enum class Element { kFloat, kFloat16, kUint8, kInt32, kOther };

// A tensor that somebody else owns; `data` is null where an optional input was left out.
struct Tensor {
  Element element = Element::kOther;
  Shape shape;
  void* data = nullptr;

  bool present() const { return data != nullptr; }
  int64_t size() const {
    int64_t product = 1;
    for (int64_t extent : shape) product *= extent;
    return product;
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

// Runs pieces of work, in any order and at once if there are threads.
class Parallel {
 public:
  virtual ~Parallel() = default;

  template <class Work>  // void(size_t piece)
  void run(size_t pieces, Work work) {
    if (pieces == 1) return work(0);
    if (pieces) start(pieces, [](void* user, size_t piece) { (*static_cast<Work*>(user))(piece); }, &work);
  }

 private:
  virtual void start(size_t pieces, void (*work)(void*, size_t), void* user) = 0;
};

std::string text_of(const Shape& shape);

// Raises InvalidInput with `text` unless `holds`.
template <class... Parts>
void require(bool holds, const Parts&... parts);

// Raises InvalidInput unless the tensor is there with this type and rank (any rank of at least 1 if `rank` is 0).
void require_tensor(const Tensor& tensor, const char* name, Element element, size_t rank);

// Raises InvalidInput unless the tensor has exactly this shape.
void require_shape(const Tensor& tensor, const char* name, const Shape& wanted);

namespace internal {
inline std::string as_text(int64_t value) { return std::to_string(value); }
inline std::string as_text(const char* value) { return value; }
inline std::string as_text(const std::string& value) { return value; }
inline std::string as_text(const Shape& value) { return text_of(value); }
}  // namespace internal

template <class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) throw InvalidInput((internal::as_text(parts) + ...));
}

}  // namespace llm
