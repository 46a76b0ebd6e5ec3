import { SplitPanel, type Widget } from '@lumino/widgets';

/** With a smaller share of the height it could hardly be read. */
const LEAST = 0.3;
const SHARE = 0.5;

/** Have `widget` seen below what it was added to: Notebook 7 gives what is there no height of its own. */
export function giveRoom(widget: Widget): void {
  for (let child = widget; child.parent !== null; child = child.parent) {
    const split = child.parent;
    if (!(split instanceof SplitPanel) || split.orientation !== 'vertical') {
      continue;
    }
    const place = split.widgets.indexOf(child);
    const sizes = split.relativeSizes();
    const share = sizes[place] ?? 0;
    if (share < LEAST) {
      const others = (1 - SHARE) / (1 - share);
      split.setRelativeSizes(sizes.map((size, at) => (at === place ? SHARE : size * others)));
    }
    return;
  }
}
