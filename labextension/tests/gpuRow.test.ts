import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { badgeTitle } from '../src/panel/gpuRow';
import { trans } from './fakes';

test('the tooltip of a GPU’s torch name explains its frame', () => {
  assert.deepEqual(
    [true, false].map(context => badgeTitle(trans, context).split('\n')),
    [
      [
        'PyTorch’s name for this GPU in this notebook',
        'Solid frame: this notebook has a CUDA context on this GPU'
      ],
      [
        'PyTorch’s name for this GPU in this notebook',
        'Dashed frame: no CUDA context of this notebook on this GPU is known yet. The first operation on the GPU creates it'
      ]
    ]
  );
});
