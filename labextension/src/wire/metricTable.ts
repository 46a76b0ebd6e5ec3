// GENERATED from gpuwidget/model/metrics.py by `python -m tools.metrics`: change that, never this file.

import type { TranslationBundle } from '@jupyterlab/translation';

/** The metrics with a chart in display order: their section, and whether the hardware counters have them. */
export const METRIC_TABLE = [
  { name: 'utilization', kind: 'percent', section: 'use', counter: false },
  { name: 'graphics', kind: 'percent', section: 'use', counter: true },
  { name: 'sm', kind: 'percent', section: 'use', counter: true },
  { name: 'sm_occupancy', kind: 'percent', section: 'use', counter: true },
  { name: 'tensor', kind: 'percent', section: 'use', counter: true },
  { name: 'fp64', kind: 'percent', section: 'use', counter: true },
  { name: 'fp32', kind: 'percent', section: 'use', counter: true },
  { name: 'fp16', kind: 'percent', section: 'use', counter: true },
  { name: 'memory_used', kind: 'memory', section: 'memory', counter: false },
  { name: 'power_w', kind: 'power', section: 'power', counter: false },
  { name: 'temperature_c', kind: 'temperature', section: 'power', counter: false },
  { name: 'memory_temperature_c', kind: 'temperature', section: 'power', counter: false },
  { name: 'sm_clock_mhz', kind: 'clock', section: 'power', counter: false },
  { name: 'memory_utilization', kind: 'percent', section: 'traffic', counter: false },
  { name: 'dram', kind: 'percent', section: 'traffic', counter: true },
  { name: 'pcie_tx', kind: 'rate', section: 'traffic', counter: true },
  { name: 'pcie_rx', kind: 'rate', section: 'traffic', counter: true },
  { name: 'nvlink_tx', kind: 'rate', section: 'traffic', counter: true },
  { name: 'nvlink_rx', kind: 'rate', section: 'traffic', counter: true },
  { name: 'memory_clock_mhz', kind: 'clock', section: 'rest', counter: false },
  { name: 'fan_speed', kind: 'percent', section: 'rest', counter: false },
  { name: 'encoder_utilization', kind: 'percent', section: 'rest', counter: false },
  { name: 'decoder_utilization', kind: 'percent', section: 'rest', counter: false }
] as const;

/** The metrics that a GPU's card in the panel lists. */
export const PANEL_METRICS = [
  { name: 'power_w', kind: 'power' },
  { name: 'temperature_c', kind: 'temperature' },
  { name: 'sm_clock_mhz', kind: 'clock' }
] as const;

/** The JSON key of a metric. */
export type MetricName = (typeof METRIC_TABLE)[number]['name'];

/** The kind of quantity, which determines the unit and the axis. */
export type MetricKind = (typeof METRIC_TABLE)[number]['kind'];

/** A section of the dashboard. */
export type MetricSection = (typeof METRIC_TABLE)[number]['section'];

/** Return a metric's label, and a sentence about it. */
export function metricTexts(trans: TranslationBundle, name: MetricName): readonly [string, string] {
  switch (name) {
    case 'utilization':
      return [trans.__('GPU utilization'), trans.__('Time in which kernels ran, as the driver reports it')];
    case 'graphics':
      return [trans.__('Graphics/compute engine active'), trans.__('Time in which any engine was active')];
    case 'sm':
      return [trans.__('SM active'), trans.__('Share of the multiprocessors (SMs) that had work')];
    case 'sm_occupancy':
      return [trans.__('SM occupancy'), trans.__('Resident warps, as a share of the maximum')];
    case 'tensor':
      return [trans.__('Tensor cores'), trans.__('Use of the tensor-core pipes')];
    case 'fp64':
      return [trans.__('FP64'), trans.__('Use of the double-precision pipes')];
    case 'fp32':
      return [trans.__('FP32'), trans.__('Use of the single-precision pipes')];
    case 'fp16':
      return [trans.__('FP16'), trans.__('Use of the half-precision pipes')];
    case 'memory_used':
      return [trans.__('Memory'), trans.__('Memory in use, without the part that the driver reserves')];
    case 'power_w':
      return [trans.__('Power'), trans.__('Current power draw')];
    case 'temperature_c':
      return [trans.__('Temperature'), trans.__('Temperature of the core')];
    case 'memory_temperature_c':
      return [trans.__('Memory temperature'), trans.__('Temperature of the memory')];
    case 'sm_clock_mhz':
      return [trans.__('SM clock'), trans.__('Clock of the streaming multiprocessors (SMs)')];
    case 'memory_utilization':
      return [trans.__('Memory utilization'), trans.__('Time in which device memory was read or written')];
    case 'dram':
      return [trans.__('Memory bandwidth'), trans.__('Use of the memory bandwidth')];
    case 'pcie_tx':
      return [trans.__('PCIe sent'), trans.__('Sent by the GPU over PCIe')];
    case 'pcie_rx':
      return [trans.__('PCIe received'), trans.__('Received by the GPU over PCIe')];
    case 'nvlink_tx':
      return [trans.__('NVLink sent'), trans.__('Sent by the GPU over all NVLinks')];
    case 'nvlink_rx':
      return [trans.__('NVLink received'), trans.__('Received by the GPU over all NVLinks')];
    case 'memory_clock_mhz':
      return [trans.__('Memory clock'), trans.__('Clock of the memory')];
    case 'fan_speed':
      return [trans.__('Fan speed'), trans.__('Fan speed that the driver requests, not measured')];
    case 'encoder_utilization':
      return [trans.__('Video encoder'), trans.__('Time in which the video encoder was working')];
    case 'decoder_utilization':
      return [trans.__('Video decoder'), trans.__('Time in which the video decoder was working')];
  }
}
