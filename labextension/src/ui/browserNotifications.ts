/** What is loaded when the user turns on notifications about long cells. */

import type { BrowserNotifications } from '../model/cells/longCells';

export { LongCellNotifier } from '../model/cells/longCells';

/** The browser's notifications. */
export const BROWSER: BrowserNotifications = {
  get isPageHidden() {
    return document.visibilityState === 'hidden';
  },
  get permission() {
    return 'Notification' in window ? Notification.permission : null;
  },
  requestPermission: () => Notification.requestPermission(),
  show: (title, body, tag, onClick) => {
    const notification = new Notification(title, { body, tag });
    notification.onclick = () => {
      window.focus();
      onClick();
      notification.close();
    };
  }
};
