import type { IThemeManager } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { RunTimes } from '../cards/runTimes';
import type { Clock } from '../../model/clock';
import type { IPanelState } from '../../model/panelState';
import type { ICellRuns, IGpuSettings, IHolderActions, IMonitor } from '../../tokens';

/** What the panel's own sections show, and what they need for it. */
export interface PanelContext {
  readonly trans: TranslationBundle;
  readonly monitor: IMonitor;
  readonly cells: ICellRuns;
  readonly holders: IHolderActions;
  readonly settings: IGpuSettings;
  readonly panelState: IPanelState;
  readonly times: RunTimes;
  readonly clock: Clock;
  readonly themes: IThemeManager | null;
  /** Whether the server hides the processes of other users. */
  readonly hideOtherUsers: boolean;
  /** The language tag of the page, such as `zh-CN`. */
  readonly locale: string;
}
