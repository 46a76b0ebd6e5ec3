import { Notification, showErrorMessage } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

/** JupyterLab cuts off a notification after this many characters. */
const LENGTH = 140;

/**
 * Show a notification for `milliseconds`, or until it is dismissed if that is false, with buttons for `actions`. If it
 * is too long, another button shows the whole text, below `heading`. Return the notification's id.
 */
export function notify(
  trans: TranslationBundle,
  heading: string,
  text: string,
  type: Notification.TypeOptions,
  milliseconds: number | false,
  actions: Notification.IAction[] = []
): string {
  const showAll = {
    label: trans.__('Show All'),
    callback: () => {
      void showErrorMessage(heading, text);
    }
  };
  return Notification.emit(text, type, {
    autoClose: milliseconds,
    actions: text.length > LENGTH ? [...actions, showAll] : actions
  });
}
