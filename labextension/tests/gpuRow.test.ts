import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { badgeTitle } from '../src/views/panel/gpuRow';
import { memoryLevel } from '../src/model/format';
import { trans } from './fakes';

test('the tooltip of a GPU’s torch name explains its frame', () => {
  const texts = [
    [true, true],
    [true, false],
    [false, false]
  ].map(([context = false, isDefault = false]) => badgeTitle(trans, context, isDefault).split('\n'));
  const solid = 'Solid frame: this notebook has a CUDA context on this GPU';
  const click = 'Click to make this GPU the default device of this notebook';
  assert.deepEqual(texts, [
    ['Filled: the default device of this notebook', solid],
    [click, solid],
    [
      click,
      'Dashed frame: no CUDA context of this notebook on this GPU is known yet. The first operation on the GPU creates it'
    ]
  ]);
});

test('a GPU is nearly full from 90 % of its memory on, and full from 97 % on', () => {
  const levels = [0.899, 0.9, 0.969, 0.97].map(share => memoryLevel(share * 1000, 1000));
  assert.deepEqual(levels, ['', 'high', 'high', 'full']);
  assert.deepEqual([memoryLevel(null, 1000), memoryLevel(1000, null)], ['', '']);
});
