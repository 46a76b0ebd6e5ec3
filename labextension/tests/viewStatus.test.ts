import './fakes_dom';

import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { Widget } from '@lumino/widgets';

import { ActiveKernel } from '../src/model/kernel/activeKernel';
import { StatusItem } from '../src/views/status/statusItem';
import { StatusModel } from '../src/views/status/statusModel';
import type { Sample } from '../src/wire/wire';
import { Signal } from '@lumino/signaling';
import { FakeClock, reading, sample, trans } from './fakes';
import { find, textOf, updated } from './fakes_dom';

/** The item in the status bar, with the server's newest sample, which a test sets. */
class Shown {
  readonly newest = {
    changed: new Signal<object, void>({}),
    sample: null as Sample | null,
    wanted: false,
    setWanted: (wanted: boolean) => {
      this.newest.wanted = wanted;
    },
    dispose: () => {
      this.newest.wanted = false;
    }
  };
  readonly clock = new FakeClock();
  readonly model = new StatusModel(trans, new ActiveKernel(this.clock), this.newest as never, this.clock);
  kind: 'meter' | 'sentence' = 'meter';
  opened = 0;
  readonly item = new StatusItem(
    trans,
    this.model,
    () => this.kind,
    () => this.opened++
  );
  readonly button = find<HTMLButtonElement>(this.item.node, 'button');

  constructor() {
    document.body.replaceChildren();
    Widget.attach(this.item, document.body);
    this.model.setWanted(true, true);
  }

  async show(newest: Sample | null): Promise<void> {
    this.newest.sample = newest;
    this.newest.changed.emit();
    await updated();
  }

  part(name: string): HTMLElement {
    return find(this.item.node, `.jp-gpuwidget-status-${name}`);
  }
}

test('before there is a value, the item shows nothing', async () => {
  const shown = new Shown();
  await updated();
  assert.deepEqual([shown.button.hidden, shown.newest.wanted], [true, true]);
});

test('the meter has utilization and memory, and its name for screen readers is the sentence', async () => {
  const shown = new Shown();
  await shown.show(sample(1000, [reading(0), reading(1)]));
  assert.equal(textOf(shown.part('meter')).replace(/\u2007/g, ''), '50 % | 70 of 280 GiB');
  assert.deepEqual(
    [shown.part('meter').getAttribute('aria-hidden'), shown.part('text').hidden],
    ['true', true]
  );
  assert.equal(
    shown.button.getAttribute('aria-label')?.replace(/\u2007/g, ''),
    '2 GPUs: memory 70 of 280 GiB · mean util 50 %. Show the GPU panel'
  );
  shown.button.click();
  assert.equal(shown.opened, 1);
});

test('the sentence replaces the meter if the settings say so', async () => {
  const shown = new Shown();
  shown.kind = 'sentence';
  await shown.show(sample(1000));
  assert.equal(textOf(shown.button).replace(/\u2007/g, ''), 'GPU memory 35 of 140 GiB · util 50 %');
});

test('a gap interrupts the sparkline, and an unknown value is n/a', async () => {
  const shown = new Shown();
  for (const [time, utilization] of [
    [1000, 10],
    [1005, 20],
    [1010, null],
    [1015, 40],
    [1045, 50],
    [1050, 60]
  ] as const) {
    await shown.show(sample(time, [reading(0, { utilization })]));
  }
  const path = find<SVGPathElement>(shown.item.node, 'path');
  assert.equal(path.getAttribute('d'), 'M65 90L70 80M80 60M110 50L115 40');
  await shown.show(sample(1055, [reading(0, { utilization: null, memory_used: null })]));
  assert.equal(textOf(shown.part('utilization')), 'n/a');
  assert.match(textOf(shown.part('meter')), /n\/a of 140 GiB|n\/a/);
});

test('a lost GPU is no GPU with 0: its memory is left out and it is counted as lost', async () => {
  const shown = new Shown();
  const gone = reading(1, { lost_since: 990, utilization: null, memory_used: null });
  await shown.show(sample(1000, [reading(0), gone]));
  assert.equal(textOf(shown.part('meter')).replace(/\u2007/g, ''), '50 % | ≥ 35 GiB, 1 lost');
  assert.match(shown.button.title, /\nGPU 1 H200: lost$/);
});

test('an item that is switched off or disposed of needs no samples and has no timer', async () => {
  const shown = new Shown();
  await shown.show(sample(1000));
  shown.model.setWanted(false, true);
  await updated();
  assert.deepEqual([shown.button.hidden, shown.newest.wanted], [true, false]);
  shown.model.setWanted(true, true);
  shown.item.dispose();
  assert.deepEqual([shown.newest.wanted, shown.clock.running, shown.item.isAttached], [false, 0, false]);
});
