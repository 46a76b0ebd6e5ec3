import { parsed, record, text, texts } from './parsing';
import { Diagnosis, KernelReply } from './wire';

/** A reply from another version of gpuwidget, whose format this page cannot read. */
export interface IncompatibleReply {
  readonly status: 'incompatible';
  /** The gpuwidget version in the reply; null if the reply contains none. */
  readonly version: string | null;
}

/** A kernel's reply after validation. */
export type ParsedReply = KernelReply | IncompatibleReply;

/**
 * Validate the content of a kernel's reply. A reply with another schema or shape becomes an
 * `IncompatibleReply`. An impossible number becomes null, which means unknown.
 *
 * Callers can rely on the result, although user code can send any reply in place of the kernel, and another
 * version of gpuwidget sends other fields.
 */
export function parseReply(content: unknown): ParsedReply {
  return parsed(KernelReply, content) ?? { status: 'incompatible', version: versionIn(content) };
}

/** A diagnosis with the translations of its texts into the language of the page, by the English text. */
export interface TranslatedDiagnosis extends Diagnosis {
  readonly texts: Readonly<Record<string, string>>;
}

/**
 * Validate the server's diagnosis and return it; null if it has another shape, as from another version of
 * gpuwidget.
 */
export function parseDiagnosis(content: unknown): TranslatedDiagnosis | null {
  return parsed(value => ({ ...Diagnosis(value), texts: texts(record(value).texts) }), content);
}

/**
 * Return the gpuwidget version in a reply of another format; null if it contains none. In all formats so far,
 * the version is in the reply's `state`.
 */
function versionIn(content: unknown): string | null {
  return parsed(value => text(record(record(value).state).version), content);
}
