import { dashOf, hueOf } from './colours';

const SVG = 'http://www.w3.org/2000/svg';

/** A piece of the line that a GPU has in the charts: its colour and its dashes. */
export function swatch(place: number): SVGElement {
  const node = document.createElementNS(SVG, 'svg');
  node.setAttribute('class', 'jp-gpuwidget-swatch');
  node.setAttribute('viewBox', '0 0 14 4');
  node.setAttribute('aria-hidden', 'true');
  const line = document.createElementNS(SVG, 'path');
  line.setAttribute('d', 'M0 2H14');
  line.style.stroke = `var(--jp-gpuwidget-gpu-${String(hueOf(place))})`;
  line.style.strokeDasharray = dashOf(place).join(' ');
  node.append(line);
  return node;
}
