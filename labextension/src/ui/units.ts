import { Signal, type ISignal } from '@lumino/signaling';

/**
 * The units in which values are displayed. The server's messages and CSV files always use bytes and degrees
 * Celsius.
 */
export interface Units {
  /** GiB is 1024³ bytes, GB is 1000³ bytes. */
  readonly memory: 'GiB' | 'GB';
  readonly temperature: 'C' | 'F';
}

/** A unit of memory. */
export interface MemoryUnit {
  readonly name: string;
  /** Size in bytes. */
  readonly size: number;
}

/** The units of memory, largest first. */
export type MemoryScale = readonly [giga: MemoryUnit, mega: MemoryUnit, kilo: MemoryUnit];

/** A unit of temperature. `celsius / size + zero` converts degrees Celsius to it. */
export interface TemperatureUnit {
  readonly name: string;
  /** One degree of this unit in degrees Celsius. */
  readonly size: number;
  /** The value of 0 °C in this unit. */
  readonly zero: number;
}

const MEMORY_SCALES: Readonly<Record<Units['memory'], MemoryScale>> = {
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
const TEMPERATURE_UNITS: Readonly<Record<Units['temperature'], TemperatureUnit>> = {
  C: { name: '°C', size: 1, zero: 0 },
  F: { name: '°F', size: 5 / 9, zero: 32 }
};

let units: Units = { memory: 'GiB', temperature: 'C' };
const sender = {};
const changes = new Signal<object, void>(sender);

/** Emitted after the units have changed. */
export const unitsChanged: ISignal<object, void> = changes;

/** Display all values of the page in these units. */
export function setUnits({ memory, temperature }: Units): void {
  if (memory !== units.memory || temperature !== units.temperature) {
    units = { memory, temperature };
    changes.emit();
  }
}

/** Return the current units of memory: the same object until the units change. */
export function memoryScale(): MemoryScale {
  return MEMORY_SCALES[units.memory];
}

/** Return the current unit of temperature. */
export function temperatureUnit(): TemperatureUnit {
  return TEMPERATURE_UNITS[units.temperature];
}
