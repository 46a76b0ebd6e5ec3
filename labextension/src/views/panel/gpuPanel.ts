import { SidePanel } from '@jupyterlab/ui-components';
import { Panel, type PanelLayout, Widget } from '@lumino/widgets';

import { DeviceSection } from './deviceSection';
import type { PanelContext } from './panelContext';
import { sections } from './sections';
import type { IPanelState } from '../../model/panelState';
import type { IGpuPanel, SectionOptions } from '../../tokens';
import { element, setAttribute } from '../../ui/dom';
import { gpuIcon } from '../../ui/icon';

/**
 * The layouts, each with the largest width that it is for: the width of the panel without its scrollbar, in
 * multiples of the font size, so that a large font has the layout of a narrow panel. A tiny panel and a slim one,
 * such as the narrowest panel with a scrollbar, have all rules of a narrow one. In a stacked layout, names and
 * dropdowns are above the controls and figures that belong to them.
 */
const LAYOUTS: readonly (readonly [width: number, name: string])[] = [
  [17, 'stacked narrow tiny'],
  [18.4, 'stacked narrow slim'],
  [21.5, 'stacked narrow'],
  [30, 'stacked']
];

/** A section with its place in the panel. */
interface PlacedSection extends SectionOptions {
  readonly section: Widget;
}

/** The panel in the sidebar. It opens the stream and queries the kernel only while it is visible. */
export class GpuPanel extends SidePanel implements IGpuPanel {
  readonly panelState: IPanelState;
  private readonly device: DeviceSection;
  private readonly sections: PlacedSection[] = [];
  private readonly sizes = new ResizeObserver(() => {
    this.updateLayout();
  });

  constructor(private readonly context: PanelContext) {
    // The content is a plain panel, which scrolls as one part: JupyterLab's accordion gives each section a separate
    // height and scrollbar, so an expanded section would squeeze the others.
    super({ content: new Panel() });
    const { trans, monitor, settings, panelState } = context;
    this.panelState = panelState;
    this.id = 'jp-gpuwidget-panel';
    this.addClass('jp-gpuwidget-panel');
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPUs');
    this.node.tabIndex = -1;
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPUs'));
    this.content.addClass('jp-gpuwidget-panel-scroll');
    // The whole panel is the region.
    this.content.node.removeAttribute('role');
    this.content.node.removeAttribute('aria-label');
    const heading = element('h2', '', trans.__('GPUs'));
    this.header.addWidget(new Widget({ node: heading }));
    this.header.addWidget(this.toolbar); // By default, it is in a separate row below the header.
    this.toolbar.node.setAttribute('aria-label', trans.__('Buttons of the GPU panel'));
    this.device = new DeviceSection(context);
    for (const [section, options] of sections(context, this.device)) {
      this.addSection(section, options);
    }
    this.sizes.observe(this.content.node);
    this.sizes.observe(heading); // Its size changes with the font.
    monitor.changed.connect(this.update, this);
    settings.changed.connect(this.updateVisibility, this);
    document.addEventListener('visibilitychange', this.updateVisibility);
  }

  addSection(section: Widget, { rank, below = false }: SectionOptions): void {
    this.sections.push({ section, rank, below });
    this.sections.sort((one, other) => one.rank - other.rank);
    const beside = this.sections.filter(each => each.below === below).map(each => each.section);
    if (below) {
      const layout = this.layout as PanelLayout;
      layout.insertWidget(layout.widgets.indexOf(this.content) + 1 + beside.indexOf(section), section);
    } else {
      this.insertWidget(beside.indexOf(section), section);
    }
  }

  focusDevice(): void {
    this.device.focus(this.node);
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    document.removeEventListener('visibilitychange', this.updateVisibility);
    this.sizes.disconnect();
    super.dispose(); // This stops the work by detaching the widget, and disconnects all signals.
  }

  protected override onAfterShow(): void {
    this.updateVisibility();
  }

  protected override onAfterAttach(): void {
    this.updateVisibility();
  }

  protected override onAfterHide(): void {
    this.updateVisibility();
  }

  protected override onBeforeDetach(): void {
    this.context.monitor.setPanelVisible(false);
    this.context.cells.setVisible(this, false);
  }

  protected override onActivateRequest(): void {
    // A command may already have focused another part of the panel.
    if (!this.node.contains(document.activeElement)) {
      this.focusDevice();
    }
  }

  protected override onUpdateRequest(): void {
    setAttribute(this.node, 'data-link', this.context.monitor.data.kind);
  }

  /** Choose the layout for the panel's width. */
  private updateLayout(): void {
    const { clientWidth: width } = this.content.node;
    const size = width / parseFloat(getComputedStyle(this.node).fontSize);
    if (width > 0) {
      // An attribute is set instead of using a CSS container query, which would double the cost of each
      // layout.
      setAttribute(this.node, 'data-size', LAYOUTS.find(([limit]) => size < limit)?.[1] ?? '');
    }
  }

  private readonly updateVisibility = (): void => {
    const { monitor, cells, settings } = this.context;
    const visible = this.isVisible && document.visibilityState === 'visible';
    monitor.setPanelVisible(visible);
    // Outputs are read and clocks are compared only if a section that needs them is shown.
    const { show } = settings.current;
    cells.setVisible(this, visible && (show.cells || show.bands));
    this.update();
    for (const { section } of this.sections) {
      section.update();
    }
  };
}
