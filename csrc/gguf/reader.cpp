// Opening: one file, or all the parts of a split.
#include "gguf/reader.h"
#include "gguf/header.h"
#include "gguf/mapping.h"
#include <cstdio>

namespace lucebox::gguf {
namespace {

constexpr int64_t kMostParts = 65535;

class MappedFile final : public File {
public:
    explicit MappedFile(const std::string& path) {
        header_ = add_part(path);
        add_tensors(header_, 0);
        const int64_t count = find_integer("split.count", 0, kMostParts).value_or(1);
        const int64_t number = find_integer("split.no", 0, kMostParts).value_or(0);
        if (number != 0)
            fail("split.no", find("split.no")->offset,
                 join("is ", number, ": this is part ", number + 1, " of ", count, "; open the first part (...-00001-of-...)"));
        if (count > 1) add_split(count);
    }

    const std::string& path() const override { return parts_[0]->path(); }
    std::vector<std::string> parts() const override {
        std::vector<std::string> out;
        for (const auto& part : parts_) out.push_back(part->path());
        return out;
    }
    uint32_t version() const override { return header_.version; }
    uint64_t alignment() const override { return header_.alignment; }
    uint64_t bytes() const override {
        uint64_t sum = 0;
        for (const auto& part : parts_) sum += part->bytes();
        return sum;
    }
    const std::vector<std::string>& keys() const override { return header_.keys; }
    const Value* find(std::string_view key) const override {
        const auto found = header_.values.find(key);
        return found == header_.values.end() ? nullptr : &found->second;
    }
    const std::vector<Tensor>& tensors() const override { return tensors_; }
    const Tensor* tensor(std::string_view name) const override {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : &tensors_[found->second];
    }
    void check_unchanged() const override {
        for (const auto& part : parts_) part->check_unchanged();
    }

private:
    Header add_part(const std::string& path) {
        parts_.push_back(std::make_unique<Mapping>(path));
        return parse_header(path, parts_.back()->data(), parts_.back()->bytes());
    }

    void add_tensors(Header& header, int part) {
        for (Tensor& tensor : header.tensors) {
            tensor.part = part;
            if (const Tensor* other = this->tensor(tensor.name)) fail(tensor, join("is in part ", other->part + 1, " and again in part ", part + 1));
            by_name_.emplace(tensor.name, tensors_.size());
            tensors_.push_back(std::move(tensor));
        }
        header.tensors.clear();
    }

    void add_split(int64_t count) {
        char ending[40];
        std::snprintf(ending, sizeof ending, "-%05d-of-%05d.gguf", 1, static_cast<int>(count));
        const std::string first = path();
        if (!first.ends_with(ending))
            fail("split.count", find("split.count")->offset, join("is ", count, ", so the name of the file should end in ", ending));
        const std::string prefix = first.substr(0, first.size() - std::string_view(ending).size());
        for (int part = 1; part < count; part++) {
            std::snprintf(ending, sizeof ending, "-%05d-of-%05d.gguf", part + 1, static_cast<int>(count));
            Header header = add_part(prefix + ending);
            check_key(header, "split.no", part);
            check_key(header, "split.count", count);
            add_tensors(header, part);
        }
        const int64_t total = integer("split.tensors.count", 0, INT32_MAX);
        if (total != static_cast<int64_t>(tensors_.size()))
            fail("split.tensors.count", find("split.tensors.count")->offset,
                 join("is ", total, ", and the ", count, " parts hold ", tensors_.size(), " tensors"));
    }

    // A key of a part that is not the first: an integer of the wanted value.
    void check_key(const Header& header, const char* key, int64_t wanted) const {
        const std::string& path = parts_.back()->path();
        const auto found = header.values.find(key);
        if (found == header.values.end()) fail_at(path, key, 0, join("is not in the file; the split's first part wants ", wanted));
        const auto* u = std::get_if<uint64_t>(&found->second.value);
        const auto* i = std::get_if<int64_t>(&found->second.value);
        if (!u && !i) fail_at(path, key, found->second.offset, join("is of type ", value_type_name(found->second.type), "; an integer is wanted"));
        const int64_t value = i ? *i : static_cast<int64_t>(*u);
        if (value != wanted) fail_at(path, key, found->second.offset, join("is ", value, "; the split's first part wants ", wanted));
    }

    std::vector<std::unique_ptr<Mapping>> parts_;
    Header header_;  // of the first part; its tensors move to tensors_
    std::vector<Tensor> tensors_;
    std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace

std::shared_ptr<const File> File::open(const std::string& path) { return std::make_shared<MappedFile>(path); }

}  // namespace lucebox::gguf
