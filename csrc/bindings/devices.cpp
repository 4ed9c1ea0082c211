#include "bindings/bindings.h"
#include "hip/runtime/driver.h"
#include <pybind11/stl.h>

namespace py = pybind11;

namespace lucebox::bindings {

void init_devices(py::module_& m) {
    m.def("gpu_probes", [] {
        py::list found;
        for (hip::Vendor vendor : {hip::Vendor::kHip, hip::Vendor::kCuda}) {
            const hip::Probe probe = hip::probe(vendor);
            py::dict d;
            d["vendor"] = vendor == hip::Vendor::kHip ? "hip" : "cuda";
            d["library"] = probe.library, d["devices"] = probe.devices, d["problem"] = probe.problem;
            found.append(d);
        }
        return found;
    });
}

}  // namespace lucebox::bindings
