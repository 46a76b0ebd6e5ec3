// GENERATED from gpuwidget/sources/xids.py by `python -m tools.xids`: change that, never this file.

import type { TranslationBundle } from '@jupyterlab/translation';

/** What to do about an XID, the most severe first. */
export const XID_ACTIONS = ['drain', 'reset', 'recovery', 'restart', 'report', 'unknown', 'none'] as const;

export type XidAction = (typeof XID_ACTIONS)[number];

/** Return what to do about an XID. */
export function xidAction(xid: number): XidAction {
  switch (xid) {
    case 54:
    case 79:
    case 151:
      return 'drain';
    case 46:
    case 48:
    case 61:
    case 62:
    case 64:
    case 74:
    case 95:
    case 109:
    case 110:
    case 119:
    case 120:
    case 136:
    case 140:
    case 143:
    case 155:
    case 156:
    case 158:
      return 'reset';
    case 144:
    case 145:
    case 146:
    case 147:
    case 148:
    case 149:
    case 150:
    case 154:
      return 'recovery';
    case 8:
    case 11:
    case 13:
    case 25:
    case 31:
    case 32:
    case 39:
    case 40:
    case 41:
    case 60:
    case 68:
    case 69:
    case 70:
    case 71:
    case 72:
    case 75:
    case 76:
    case 77:
    case 80:
    case 82:
    case 83:
    case 84:
    case 85:
    case 86:
    case 88:
    case 89:
    case 94:
    case 96:
    case 97:
    case 98:
    case 99:
    case 100:
    case 101:
    case 102:
    case 103:
    case 104:
    case 105:
    case 126:
    case 127:
    case 128:
    case 129:
    case 130:
    case 131:
    case 132:
    case 133:
    case 134:
    case 135:
    case 139:
      return 'restart';
    case 37:
    case 66:
    case 137:
      return 'report';
    case 14:
    case 38:
    case 43:
    case 44:
    case 45:
    case 63:
    case 67:
    case 92:
    case 93:
    case 106:
    case 107:
    case 121:
    case 141:
    case 157:
      return 'none';
    default:
      return 'unknown';
  }
}

/** Return whether a user's own program may cause an XID: the GPU is healthy. */
export function isXidOfProgram(xid: number): boolean {
  switch (xid) {
    case 13:
    case 31:
    case 43:
    case 45:
    case 68:
    case 109:
      return true;
    default:
      return false;
  }
}

/** Return the meaning of an XID in a few words; null if it is unknown. */
export function xidMeaning(trans: TranslationBundle, xid: number): string | null {
  switch (xid) {
    case 8:
    case 46:
      return trans.__('the GPU stopped processing');
    case 11:
    case 25:
    case 32:
      return trans.__('invalid or corrupted commands to the GPU');
    case 13:
      return trans.__('a GPU kernel failed, often because an index was out of bounds');
    case 14:
      return trans.__('a test error that a program injected');
    case 31:
      return trans.__('a GPU kernel read or wrote memory that it may not access');
    case 37:
    case 38:
      return trans.__("the driver's firmware failed");
    case 39:
    case 40:
    case 41:
    case 70:
    case 71:
    case 72:
    case 75:
    case 76:
    case 77:
    case 85:
    case 126:
    case 127:
    case 128:
    case 129:
    case 130:
    case 131:
    case 132:
    case 133:
    case 134:
    case 135:
      return trans.__('a copy engine failed');
    case 43:
      return trans.__("a program's work was stopped");
    case 44:
      return trans.__('a fault while the GPU switched between programs');
    case 45:
      return trans.__("a program's work was removed after an earlier error or after the program's end");
    case 48:
    case 171:
    case 172:
      return trans.__('an uncorrectable memory error');
    case 54:
      return trans.__("the GPU's power cable isn't connected");
    case 56:
      return trans.__('a display error');
    case 57:
      return trans.__("the GPU's memory could not be set up");
    case 58:
      return trans.__("the connection to the GPU's memory is unstable");
    case 59:
      return trans.__("the GPU's internal controller failed");
    case 60:
    case 68:
    case 83:
    case 84:
    case 88:
    case 89:
    case 96:
    case 97:
    case 98:
    case 142:
      return trans.__('the video engine failed');
    case 61:
      return trans.__("the GPU's internal controller reached a breakpoint");
    case 62:
      return trans.__("the GPU's internal controller stopped");
    case 63:
      return trans.__('faulty memory is taken out of use at the next reset');
    case 64:
      return trans.__('faulty memory could not be taken out of use');
    case 66:
    case 67:
      return trans.__('an illegal access by the driver');
    case 69:
      return trans.__('the graphics engine received a wrong command');
    case 74:
    case 144:
    case 145:
    case 146:
    case 147:
    case 148:
    case 149:
    case 150:
      return trans.__('an NVLink error');
    case 78:
      return trans.__('a virtual GPU could not start');
    case 79:
      return trans.__('the GPU fell off the bus');
    case 80:
      return trans.__('corrupted data was sent to the GPU');
    case 82:
    case 99:
    case 100:
    case 101:
    case 102:
    case 103:
    case 104:
    case 105:
      return trans.__('the JPEG engine failed');
    case 86:
    case 139:
      return trans.__('the optical flow engine failed');
    case 92:
      return trans.__('many corrected memory errors');
    case 93:
      return trans.__("the GPU's InfoROM was written too often");
    case 94:
      return trans.__('a memory error that affected one program');
    case 95:
      return trans.__('a memory error that affected all programs');
    case 106:
    case 107:
      return trans.__('a test message');
    case 109:
      return trans.__('a program did not release the GPU in time');
    case 110:
      return trans.__('a security fault');
    case 119:
      return trans.__("the GPU's system processor (GSP) does not answer");
    case 120:
      return trans.__("the GPU's system processor (GSP) failed");
    case 121:
      return trans.__('corrected errors on the link to the CPU');
    case 122:
    case 123:
    case 124:
      return trans.__("the GPU's flash memory failed");
    case 125:
      return trans.__("the GPU's InfoROM failed");
    case 136:
      return trans.__('an NVLink could not be set up');
    case 137:
      return trans.__("an illegal access to another GPU's memory over NVLink");
    case 140:
      return trans.__('an uncorrectable memory error that interrupted the driver');
    case 141:
      return trans.__("an error in CUDA's fast path");
    case 143:
      return trans.__('the GPU could not be initialized');
    case 151:
      return trans.__('the encryption keys could not be replaced');
    case 154:
      return trans.__("the driver changed the GPU's recovery action");
    case 155:
      return trans.__('an NVLink went down');
    case 156:
      return trans.__('a faulty part of the GPU was taken out of use');
    case 157:
      return trans.__('a faulty part of the GPU could not be taken out of use');
    case 158:
      return trans.__('the GPU did not answer in time');
    case 159:
      return trans.__('an error on the link to the CPU');
    case 167:
      return trans.__('PCIe did not answer in time');
    default:
      return null;
  }
}

/** Return a sentence that says what to do. */
export function xidInstruction(trans: TranslationBundle, action: XidAction): string {
  switch (action) {
    case 'drain':
      return trans.__(
        'Drain the node: ask its administrator to take the machine out of service, check the GPU and restart the machine.'
      );
    case 'reset':
      return trans.__(
        "Reset the GPU: save your work, stop all programs that use the GPU, then run nvidia-smi --gpu-reset -i N as root, where N is the GPU's number."
      );
    case 'recovery':
      return trans.__(
        "Do what the GPU's recovery action says: nvidia-smi -q shows it, and so does XID 154 in the kernel's log."
      );
    case 'restart':
      return trans.__(
        'Restart the program that failed, which in a notebook is the kernel. The GPU needs no reset.'
      );
    case 'report':
      return trans.__(
        'Look for a bug in the program (compute-sanitizer). If it has none, report the error to NVIDIA (nvidia-bug-report.sh).'
      );
    case 'unknown':
      return trans.__("Look the XID up in NVIDIA's catalog: https://docs.nvidia.com/deploy/xid-errors/.");
    case 'none':
      return trans.__('No action is needed.');
  }
}
