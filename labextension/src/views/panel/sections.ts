import { CellsSection } from './cellsSection';
import type { DeviceSection } from './deviceSection';
import { GpuSection } from './gpuSection';
import { HintSection } from './hintSection';
import { MessageSection } from './messageSection';
import type { PanelContext } from './panelContext';
import {
  jobSection,
  LegendSection,
  reasonSection,
  recordingSection,
  ServerNoticeSection,
  useSection
} from './serverSections';
import { SwitchesSection } from './switchesSection';
import type { SectionOptions } from '../../tokens';
import type { PanelSection } from '../../ui/panelSection';

/** Return the panel's own sections, each with its place. Other plugins add sections to `IGpuPanel`. */
export function sections(
  context: PanelContext,
  device: DeviceSection
): readonly (readonly [PanelSection, SectionOptions])[] {
  const hints = new HintSection(context);
  const message = new MessageSection(context);
  return [
    [device, { rank: 100 }],
    [new SwitchesSection(context), { rank: 200 }],
    [recordingSection(context), { rank: 300 }],
    [reasonSection(context), { rank: 400 }],
    [jobSection(context), { rank: 500 }],
    [new ServerNoticeSection(context, false), { rank: 600 }],
    [new LegendSection(context), { rank: 700 }],
    [new GpuSection(context, device, hints, message), { rank: 800 }],
    [useSection(context), { rank: 900 }],
    [new CellsSection(context), { rank: 1000 }],
    // Below everything that scrolls, so that nothing moves when one of these appears.
    [hints, { rank: 100, below: true }],
    [new ServerNoticeSection(context, true), { rank: 200, below: true }],
    [message, { rank: 300, below: true }]
  ];
}
