import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { ClockSkew } from '../src/model/cells/cellRuns';
import { ClockOffset } from '../src/model/clock';
import { RunTimes } from '../src/views/cards/runTimes';
import { trans } from './fakes';

const NOW = Date.now() / 1000;

function times(skew: number, hasPrometheus = false): { shown: unknown[]; times: RunTimes } {
  const clockSkew = new ClockSkew();
  clockSkew.observeServer(NOW, NOW);
  clockSkew.kernel = new ClockOffset();
  clockSkew.kernel.observe(NOW + skew, NOW);
  const shown: unknown[] = [];
  const commands = {
    execute: (id: string, args: unknown): Promise<void> => {
      shown.push([id, args]);
      return Promise.resolve();
    }
  };
  return { shown, times: new RunTimes(trans, { clockSkew }, commands, hasPrometheus) };
}

test('the dashboard shows the time of a run with a margin, by the server’s clock', () => {
  for (const [skew, from, to] of [
    [0, 90, 210],
    [3600, -3510, -3390]
  ] as const) {
    const made = times(skew);
    made.times.show({ started: 100, duration: 100 });
    const [[id, { state }]] = made.shown as [[string, { state: { zoom: { from: number; to: number } } }]];
    assert.equal(id, 'gpuwidget:open-dashboard');
    assert.ok(Math.abs(state.zoom.from - from) < 0.1);
    assert.ok(Math.abs(state.zoom.to - to) < 0.1);
  }
});

test('a time that the server no longer stores, and an unknown one, are not shown', () => {
  const { times: made } = times(0);
  assert.equal(made.problem({ started: NOW - 60, duration: 50 }), null);
  assert.match(made.problem({ started: NOW - 4000, duration: 50 }) ?? '', /only the last hour/);
  assert.equal(times(0, true).times.problem({ started: NOW - 4000, duration: 50 }), null);
  assert.match(made.problem({ started: null, duration: 50 }) ?? '', /start time/);
});
