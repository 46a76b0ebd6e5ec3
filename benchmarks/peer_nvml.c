/* The tests' stand-in for libnvidia-ml.so.1, plus the NVML calls that only jupyterlab-nvdashboard makes.
 *
 * A scenario may also set `gpu.N.pcie_tx` and `gpu.N.pcie_rx` in KiB/s, and `gpu.N.nvlink`, the total KiB in
 * each direction of each link.
 */
#define nvmlDeviceGetFieldValues fields_of_the_standin
#include "../tests/nvml_standin/nvml.c"
#undef nvmlDeviceGetFieldValues

enum { PCIE_US = 21000, LINKS = 18, LINK_MBPS = 26562, NVLINK_4 = 6 };

/* NVML counts PCIe traffic for 20 ms before it returns. On an H200, the call takes 21 ms. */
result nvmlDeviceGetPcieThroughput(device *of, unsigned direction, unsigned *out) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    const char *latency;
    int slow;
    LOCKED(latency = find("latency"); slow = latency && !strcmp(latency, "h200"));
    if (slow) usleep(PCIE_US);
    LOCKED(*out = (unsigned)number(of, direction ? "pcie_rx" : "pcie_tx", 0));
    return SUCCESS;
}

NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, of, unsigned, "pcie_generation", 5, 1)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, of, unsigned, "pcie_width", 16, 1)

result nvmlDeviceGetNvLinkVersion(device *of, unsigned link, unsigned *out) {
    BEGIN(of);
    if (link >= LINKS) return INVALID_ARGUMENT;
    *out = NVLINK_4;
    return SUCCESS;
}

/* Fields 84 to 89 and 132 to 137 are the speeds of the NVLinks 0 to 11. Fields 138 and 139 are the KiB that
 * link number `scope` has sent and received. */
result nvmlDeviceGetFieldValues(device *of, int count, field_value *values) {
    result outcome = fields_of_the_standin(of, count, values);
    if (outcome) return outcome;
    unsigned long long carried;
    LOCKED(carried = (unsigned long long)number(of, "nvlink", 0));
    for (field_value *each = values; each < values + count; each++) {
        int speed = (each->id >= 84 && each->id <= 89) || (each->id >= 132 && each->id <= 137);
        int data = (each->id == 138 || each->id == 139) && each->scope < LINKS;
        if (!speed && !data) continue;
        each->outcome = SUCCESS;
        each->type = 3; /* unsigned long long */
        each->value.ull = speed ? LINK_MBPS : carried;
    }
    return SUCCESS;
}
