import {
  count,
  finite,
  flag,
  index,
  later,
  list,
  nullable,
  object,
  oneOf,
  orNull,
  parsed,
  record,
  ShapeError,
  text,
  texts
} from './parsing';
import {
  KERNEL_SCHEMA,
  type CandidateGpu,
  type DeviceChoice,
  type DeviceOrder,
  type DeviceState,
  type Diagnosis,
  type Fix,
  type Issue,
  type KernelGpu,
  type KernelReply,
  type KernelState,
  type Check,
  type MessageId,
  type Problem,
  type Switch
} from './wire';

/** Maximum number of holders of a GPU, and of GPUs that a device may be: a tooltip lists them. */
const MAX_NAMES = 256;

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
  return parsed(reply, content) ?? { status: 'incompatible', version: versionIn(content) };
}

function reply(content: unknown): KernelReply {
  switch (record(content).status) {
    case 'ok':
      return okReply(content);
    case 'error':
      return errorReply(content);
    case 'examined':
      return doctorReply(content);
    default:
      throw new ShapeError();
  }
}

/** Older kernels do not report whether memory is unified. */
const isTrue = (value: unknown): boolean => value === true;

const kernelState = object<KernelState>({
  schema: oneOf(KERNEL_SCHEMA),
  version: text,
  pid: finite,
  torch: nullable(text),
  cuda_initialized: flag,
  watching: flag,
  device: object<DeviceState>({
    chosen: nullable(text),
    new_tensors: flag,
    pending: flag,
    present: nullable(text),
    note: nullable(text)
  }),
  choices: list(
    object<DeviceChoice>({
      device: text,
      uuid: nullable(text),
      index: count,
      name: nullable(text),
      compute_capability: nullable(text),
      memory_total: count,
      memory_free: count,
      unified_memory: isTrue,
      holders: list(text, MAX_NAMES),
      candidates: list(
        object<CandidateGpu>({
          uuid: text,
          index,
          name: text,
          compute_capability: nullable(text),
          memory_total: count,
          memory_free: count,
          unified_memory: isTrue
        }),
        MAX_NAMES
      )
    })
  ),
  order: object<DeviceOrder>({
    source: orNull(oneOf('cuda', 'environment')),
    notes: list(text),
    note_ids: list(object<MessageId>({ id: text, params: record }))
  }),
  unavailable: nullable(text),
  gpus: list(
    object<KernelGpu>({
      uuid: text,
      torch_device: nullable(text),
      process_memory: count,
      torch_reserved: count,
      context: flag
    })
  ),
  switches: list(
    object<Switch>({
      name: text,
      title: text,
      value: nullable(text),
      choices: list(text),
      default: text,
      pending: nullable(text),
      statement: nullable(text),
      trades: text,
      note: nullable(text)
    })
  )
});

const okReply = object<Extract<KernelReply, { status: 'ok' }>>({
  status: oneOf('ok'),
  done: nullable(text),
  state: kernelState
});

const errorReply = object<Extract<KernelReply, { status: 'error' }>>({
  status: oneOf('error'),
  reason: text,
  state: nullable(kernelState)
});

const fix = nullable(
  object<Fix>({
    id: text,
    params: record,
    before: text,
    command: nullable(text),
    after: text
  })
);

const diagnosis = object<Diagnosis>({
  schema: finite,
  version: text,
  time: finite,
  place: oneOf('kernel', 'server', 'shell'),
  python: text,
  variables: texts,
  status: oneOf('ok', 'broken', 'warning'),
  summary: text,
  unfinished: list(text),
  problems: list(
    object<Problem>({
      check: text,
      status: oneOf('broken', 'warning', 'unknown'),
      issues: list(text),
      reasons: list(text),
      fix,
      affects: list(text)
    })
  ),
  links: list(
    object<Check>({
      id: text,
      title: text,
      status: oneOf('ok', 'broken', 'warning', 'unknown', 'skipped'),
      found: text,
      reason: nullable(text),
      remedy: nullable(text),
      command: nullable(text),
      evidence: texts,
      issues: list(
        object<Issue>({
          id: text,
          status: oneOf('broken', 'warning', 'unknown'),
          params: record,
          reason: text,
          fix
        })
      )
    })
  )
});

const translations = later(texts, {});

const doctorReply = object<Extract<KernelReply, { status: 'examined' }>>({
  status: oneOf('examined'),
  doctor: diagnosis,
  texts: translations,
  state: nullable(kernelState)
});

/** A diagnosis with the translations of its texts into the language of the page, by the English text. */
export interface TranslatedDiagnosis extends Diagnosis {
  readonly texts: Readonly<Record<string, string>>;
}

/**
 * Validate the server's diagnosis and return it; null if it has another shape, as from another version of
 * gpuwidget.
 */
export function parseDiagnosis(content: unknown): TranslatedDiagnosis | null {
  return parsed(value => ({ ...diagnosis(value), texts: translations(record(value).texts) }), content);
}

/**
 * Return the gpuwidget version in a reply of another format; null if it contains none. In all formats so far,
 * the version is in the reply's `state`.
 */
function versionIn(content: unknown): string | null {
  return parsed(value => text(record(record(value).state).version), content);
}
