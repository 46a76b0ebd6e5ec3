import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import './lab_stubs';
import type { IRenderMime } from '@jupyterlab/rendermime';

import { cardRenderer } from '../src/views/cards/cardRenderer';
import type { CellReport } from '../src/model/cells/report';
import { report } from './fakes_cells';

const MIME = 'application/vnd.gpuwidget.report+json';

async function show(
  value: unknown,
  addButtons: (node: HTMLElement, report: CellReport | null) => void
): Promise<string | null> {
  const renderer = cardRenderer(addButtons).createRenderer({} as IRenderMime.IRendererOptions);
  const model = { data: { 'text/html': 'the card', [MIME]: value } };
  await renderer.renderModel(model as unknown as IRenderMime.IMimeModel);
  return renderer.node.textContent;
}

test('a card is rendered as HTML where the output is trusted, and gets its buttons', async () => {
  const { safe, mimeTypes } = cardRenderer(() => undefined);
  assert.equal(safe, false); // JupyterLab renders an output that is not trusted only with a safe renderer.
  assert.deepEqual(mimeTypes, [MIME, 'application/vnd.gpuwidget.card+json']);
  const seen: (number | null | undefined)[] = [];
  const shown = await show(report(3), (node, parsed) => {
    seen.push(parsed?.executionCount);
    node.textContent += ' with buttons';
  });
  assert.equal(shown, 'the card with buttons');
  assert.deepEqual(seen, [3]);
});

test('a broken report, or an error while the buttons are added, never hides the card', async t => {
  t.mock.method(console, 'warn', () => undefined);
  for (const value of [undefined, null, 7, { schema: 99 }]) {
    assert.equal(
      await show(value, (_, parsed) => {
        assert.equal(parsed, null);
      }),
      'the card'
    );
  }
  assert.equal(
    await show(report(3), () => {
      throw new Error('no buttons');
    }),
    'the card'
  );
});
