import { KERNEL_SCHEMA, type DeviceChoice, type KernelGpu, type KernelReply } from '../wire';

/**
 * A kernel's reply with every impossible number replaced by null, which means unknown.
 *
 * User code can send anything in a kernel's name: a size may be negative, too large, not finite or no number at all.
 */
export function checkedReply(reply: KernelReply): KernelReply {
  const { state } = reply;
  if (state?.schema !== KERNEL_SCHEMA) {
    return reply;
  }
  return { ...reply, state: { ...state, choices: state.choices.map(choice), gpus: state.gpus.map(gpu) } };
}

function choice(sent: DeviceChoice): DeviceChoice {
  return {
    ...sent,
    index: count(sent.index),
    memory_total: count(sent.memory_total),
    memory_free: count(sent.memory_free)
  };
}

function gpu(sent: KernelGpu): KernelGpu {
  return {
    ...sent,
    process_memory: count(sent.process_memory),
    torch_reserved: count(sent.torch_reserved)
  };
}

/** `value` if it is a whole number from 0 that JavaScript holds exactly, else null. */
function count(value: unknown): number | null {
  return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : null;
}
