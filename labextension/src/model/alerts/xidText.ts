/** What an alert says about errors of the driver. It is loaded when the first of them occurs. */

import type { TranslationBundle } from '@jupyterlab/translation';

import { XID_ACTIONS, xidAction, xidInstruction, xidMeaning } from '../../wire/xids';
import { gpuNumber } from '../format';
import { gpuNumbers } from '../memory/holders';
import type { Alert } from './alertRules';

/** Return the text of an alert of the kind `xid`: for each error its GPUs and its meaning, and what to do. */
export function xidAlertText(trans: TranslationBundle, { findings }: Alert): string {
  const xids = [...new Set(findings.map(({ value }) => Number(value)))];
  const errors = xids.map(xid => {
    const gpus = gpuNumbers(
      trans,
      findings.filter(({ value }) => value === xid).map(({ gpu }) => gpuNumber(gpu))
    );
    const meaning = xidMeaning(trans, xid);
    return meaning === null
      ? trans.__('%1: XID %2.', gpus, xid)
      : trans.__('%1: XID %2, %3.', gpus, xid, meaning);
  });
  const actions = new Set(xids.map(xidAction));
  const instructions = XID_ACTIONS.filter(action => actions.has(action)).map(action =>
    xidInstruction(trans, action)
  );
  return [...errors, ...instructions].join(' ');
}

/** Return the meaning of an XID, if it is known, and what to do, for the description of a GPU. */
export function xidDescription(trans: TranslationBundle, xid: number): string[] {
  const meaning = xidMeaning(trans, xid);
  const instruction = xidInstruction(trans, xidAction(xid));
  return meaning === null ? [instruction] : [meaning, instruction];
}
