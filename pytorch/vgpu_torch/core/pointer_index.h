// Numbers objects in the order of their first appearance. This allocates nothing for the few tensors of a usual call;
// lists of parameters can have thousands.
#pragma once
#include <c10/util/SmallVector.h>
#include <optional>
#include <unordered_map>

namespace vgpu_torch {

class PointerIndex {
public:
  // The object's number, and whether it is new.
  std::pair<size_t, bool> add(const void *object) {
    if (const auto known = find(object))
      return {*known, false};
    const size_t number = objects_.size();
    objects_.push_back(object);
    if (objects_.size() == FEW + 1)
      for (size_t i = 0; i < number; i++)
        numbers_[objects_[i]] = i;
    if (objects_.size() > FEW)
      numbers_[object] = number;
    return {number, true};
  }

  std::optional<size_t> find(const void *object) const {
    if (objects_.size() > FEW) {
      const auto at = numbers_.find(object);
      return at == numbers_.end() ? std::nullopt : std::optional(at->second);
    }
    for (size_t i = 0; i < objects_.size(); i++)
      if (objects_[i] == object)
        return i;
    return std::nullopt;
  }

private:
  static constexpr size_t FEW = 12;
  c10::SmallVector<const void *, FEW> objects_;
  std::unordered_map<const void *, size_t> numbers_; // used when there are more
};

} // namespace vgpu_torch
