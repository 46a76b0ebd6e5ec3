import { Signal, type ISignal } from '@lumino/signaling';

/** In which units figures are read; what is sent and saved is in bytes and degrees Celsius in any case. */
export interface Units {
  /** GiB are 1024³ bytes, GB 1000³. */
  readonly memory: 'GiB' | 'GB';
  readonly temperature: 'C' | 'F';
}

/** Units of memory, the largest first: bytes, and name. */
export type MemoryScale = readonly [giga: MemoryStep, mega: MemoryStep, kilo: MemoryStep];

interface MemoryStep {
  readonly name: string;
  readonly size: number;
}

const SCALES: Readonly<Record<Units['memory'], MemoryScale>> = {
  GiB: [
    { name: 'GiB', size: 1024 ** 3 },
    { name: 'MiB', size: 1024 ** 2 },
    { name: 'KiB', size: 1024 }
  ],
  GB: [
    { name: 'GB', size: 1e9 },
    { name: 'MB', size: 1e6 },
    { name: 'kB', size: 1e3 }
  ]
};

let units: Units = { memory: 'GiB', temperature: 'C' };
const anyone = {};
const changes = new Signal<object, void>(anyone);

/** Emitted when figures are to be written in other units. */
export const unitsChanged: ISignal<object, void> = changes;

/** Read all figures of the page in these from now on. */
export function measureIn({ memory, temperature }: Units): void {
  if (memory !== units.memory || temperature !== units.temperature) {
    units = { memory, temperature };
    changes.emit();
  }
}

/** The units of memory now: the same object until they are others. */
export function memoryScale(): MemoryScale {
  return SCALES[units.memory];
}

/** The unit of temperature now: a degree of it in degrees Celsius, and what it calls the freezing point. */
export function temperatureUnit(): { readonly name: string; readonly size: number; readonly zero: number } {
  return units.temperature === 'C' ? { name: '°C', size: 1, zero: 0 } : { name: '°F', size: 5 / 9, zero: 32 };
}
