#include "tensor.h"

namespace llm {

namespace {

const char* name_of(Element element) {
  switch (element) {
    case Element::kFloat: return "float32";
    case Element::kFloat16: return "float16";
    case Element::kUint8: return "uint8";
    case Element::kInt32: return "int32";
    case Element::kOther: break;
  }
  return "another type";
}

}  // namespace

std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (size_t axis = 0; axis < shape.size(); axis++) text += (axis ? ", " : "") + std::to_string(shape[axis]);
  return text + "]";
}

void require_tensor(const Tensor& tensor, const char* name, Element element, size_t rank) {
  require(tensor.element == element, name, " is of ", name_of(tensor.element), ", not of ", name_of(element));
  require(rank ? tensor.shape.size() == rank : !tensor.shape.empty(), name, " has the shape ", tensor.shape, ", not ",
          rank ? std::to_string(rank) : "one or more", " dimensions");
}

void require_shape(const Tensor& tensor, const char* name, const Shape& wanted) {
  require(tensor.shape == wanted, name, " has the shape ", tensor.shape, ", not ", wanted);
}

}  // namespace llm
