import { Signal } from '@lumino/signaling';

import type { CellModel, CellModels, Output, Outputs, OutputsChange } from '../src/model/cells/reportReader';
import { REPORT_MIME } from '../src/model/cells/report';
import { GIB } from './fakes';

type Json = Record<string, unknown>;

export function span(start: number | null, end: number | null, peak: number | null): Json {
  return { start, end, peak };
}

/** Return a report's data about a GPU on which torch's memory grew from 1 to 3 GiB. */
export function reportedGpu(index: number, changes: Json = {}): Json {
  return {
    uuid: `GPU-${String(index)}`,
    index,
    mig_index: null,
    torch_device: `cuda:${String(index)}`,
    shown: true,
    device_memory: span(20 * GIB, 22 * GIB, 30 * GIB),
    process_memory: span(2 * GIB, 4 * GIB, 6 * GIB),
    torch: {
      allocated: span(GIB, 3 * GIB, 5 * GIB),
      reserved: span(2 * GIB, 5 * GIB, 5 * GIB),
      ooms: 0
    },
    energy_j: 100,
    children: [],
    missing: {},
    ...changes
  };
}

/** Return a report as the kernel writes it, for a cell with the execution count `count`. */
export function report(count: number | null, changes: Json = {}, cell: Json = {}): Json {
  return {
    schema: 1,
    source: { kind: 'nvml', reason: null, recording: null },
    cell: {
      execution_count: count,
      label: null,
      started: 1000 + (count ?? 0),
      duration_s: 0.5,
      gpu_tail_s: null,
      status: 'ok',
      ...cell
    },
    gpus: [reportedGpu(0)],
    ...changes
  };
}

/** An output that counts how often its JSON has been read. */
export class FakeOutput implements Output {
  reads = 0;

  constructor(
    readonly type: string,
    private readonly data: Json | null = null
  ) {}

  static report(value: unknown): FakeOutput {
    return new FakeOutput('display_data', { 'text/plain': 'card', [REPORT_MIME]: value });
  }

  toJSON(): object {
    this.reads++;
    return this.data === null ? { output_type: this.type } : { output_type: this.type, data: this.data };
  }
}

/** The outputs of a cell, which a test can change. */
export class FakeOutputs implements Outputs {
  readonly changed = new Signal<unknown, OutputsChange>(this);

  constructor(private held: Output[] = []) {}

  get length(): number {
    return this.held.length;
  }

  get(place: number): Output {
    const output = this.held[place];
    if (output === undefined) {
      throw new Error(`There is no output ${String(place)}.`);
    }
    return output;
  }

  add(output: Output): void {
    this.held.push(output);
    this.changed.emit({ oldValues: [], newValues: [output] });
  }

  clear(): void {
    const oldValues = this.held;
    this.held = [];
    this.changed.emit({ oldValues, newValues: [] });
  }
}

/** The cells of a notebook, which a test can change. */
export class FakeCells implements CellModels {
  readonly changed = new Signal<unknown, unknown>(this);

  constructor(readonly models: CellModel[]) {}

  [Symbol.iterator](): Iterator<CellModel> {
    return this.models[Symbol.iterator]();
  }

  /** Replace or reorder the cells. */
  replace(...models: CellModel[]): void {
    this.models.splice(0, this.models.length, ...models);
    this.changed.emit(null);
  }
}

/** Return a trusted code cell with these outputs. */
export function codeCell(
  id: string,
  ...outputs: Output[]
): CellModel & { trusted: boolean; outputs: FakeOutputs } {
  return {
    id,
    sharedModel: { getSource: () => `# ${id}` },
    trusted: true,
    outputs: new FakeOutputs(outputs)
  };
}
