/** Parses the server's messages: those of the stream, single samples and the history. */

import { check, parsed } from './parsing';
import { MetricHistory, Sample, StreamMessage, type Reading, type SampleChanges } from './wire';

/**
 * Return the stream's message in `data`; null if the text isn't a message of this version. Unknown values are
 * null.
 */
export function parseStreamMessage(data: unknown): StreamMessage | null {
  try {
    return parsed(streamMessage, JSON.parse(String(data)));
  } catch (error) {
    if (error instanceof SyntaxError) {
      return null; // The text is not JSON: Python, for example, writes NaN.
    }
    throw error;
  }
}

function streamMessage(value: unknown): StreamMessage {
  const message = StreamMessage(value);
  if ('sample' in message && message.sample !== null) {
    checkReadings(message.sample);
  }
  return message;
}

/** Return a single sample; null if the server's reply isn't one of this version. */
export function parseSample(reply: unknown): Sample | null {
  return parsed(value => {
    const sample = Sample(value);
    checkReadings(sample);
    return sample;
  }, reply);
}

/** Throw a `ShapeError` unless a sample's readings are those of its GPUs, in the same order. */
function checkReadings({ gpus, readings }: Sample): void {
  check(new Set(gpus.map(({ uuid }) => uuid)).size === gpus.length);
  check(readings.length === gpus.length);
  check(readings.every(({ uuid }, place) => uuid === gpus[place]?.uuid));
}

/** Return `before` with `changes`; null if they are not those of the sample's readings. */
export function applyChanges(before: Sample, { time, readings: changes }: SampleChanges): Sample | null {
  const { readings } = before;
  const unfit = ({ uuid }: Partial<Reading>, place: number): boolean =>
    uuid !== undefined && uuid !== readings[place]?.uuid;
  return changes.length !== readings.length || changes.some(unfit)
    ? null
    : { ...before, time, readings: readings.map((each, place) => ({ ...each, ...changes[place] })) };
}

/** Return a part of the history; null if the server's reply isn't one of this version. */
export function parseHistory(reply: unknown): MetricHistory | null {
  return parsed(MetricHistory, reply);
}
